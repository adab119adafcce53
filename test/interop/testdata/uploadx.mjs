// A tus server with files in a directory: node uploadx.mjs DIRECTORY HOST PORT
import { createServer } from 'node:http'
import { createRequire } from 'node:module'

const { Tus, DiskStorage } = createRequire(import.meta.url)('@uploadx/core')
const [directory, host, port] = process.argv.slice(2)
const storage = new DiskStorage({ directory, maxUploadSize: '2GB', filename: (file) => file.id, path: '/files' })
const tus = new Tus({ storage })
createServer((request, response) => tus.handle(request, response)).listen({ host, port: Number(port) })
