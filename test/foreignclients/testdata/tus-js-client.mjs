// Uploads FILE to ENDPOINT with tus-js-client, in one append for as long as nothing breaks, and goes on by itself where
// the link was cut. The token is in the environment. Says what happens, a line each.
import fs from 'node:fs'
import { createRequire } from 'node:module'

const [modules, endpoint, file, parent] = process.argv.slice(2)
const tus = createRequire(modules + '/')('tus-js-client')

const upload = new tus.Upload(fs.readFileSync(file), {
  endpoint,
  headers: { Authorization: 'Bearer ' + process.env.TOKEN },
  retryDelays: Array(60).fill(500),
  metadata: { filename: 'boiler room.jpg', filetype: 'image/jpeg', parent },
  onUploadUrlAvailable: () => console.log('upload', upload.url),
  onAfterResponse: (req, res) => console.log(req.getMethod(), res.getStatus(), 'Upload-Offset', res.getHeader('Upload-Offset')),
  onShouldRetry: (err) => {
    console.log('interrupted:', err.message.split('\n')[0].slice(0, 200))
    return true
  },
  onError: (err) => {
    console.error(err)
    process.exitCode = 1
  },
  onSuccess: () => console.log('done'),
})
upload.start()
