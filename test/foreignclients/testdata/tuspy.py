"""Uploads FILE to ENDPOINT with tuspy, in appends of 1 MiB, and goes on with the upload whose URL an earlier run has
stored. The token is in the environment. Says what happens, a line each."""

import os
import sys

from tusclient.client import TusClient
from tusclient.storage.filestorage import FileStorage

endpoint, file, storage, sha256 = sys.argv[1:]
client = TusClient(endpoint, headers={"Authorization": "Bearer " + os.environ["TOKEN"]})
uploader = client.uploader(
    file, chunk_size=1 << 20, store_url=True, url_storage=FileStorage(storage), retries=60, retry_delay=1,
    metadata={"filename": "boiler room.jpg", "filetype": "image/jpeg", "sha256": sha256})
print("begins at", uploader.offset, flush=True)
uploader.upload()
print("ends at", uploader.offset, flush=True)
