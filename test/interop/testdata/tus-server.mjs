// A tus server with files in a directory: node tus-server.mjs DIRECTORY HOST PORT
import { Server } from '@tus/server'
import { FileStore } from '@tus/file-store'

const [directory, host, port] = process.argv.slice(2)
const server = new Server({ path: '/files', datastore: new FileStore({ directory }), relativeLocation: true })
server.listen({ host, port: Number(port) })
