// Package foreignclients has clients that nobody here wrote upload to the real fieldgw-server, over https and a link that is
// cut in the middle: tus-js-client from npm and Debian's python3-tuspy. They prove that the server's tus is what others
// take it for. A test whose client is not there says so and is skipped.
package foreignclients
