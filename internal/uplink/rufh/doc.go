// Package rufh is the driver for any server of "Resumable Uploads for HTTP" (draft-ietf-httpbis-resumable-upload, interop
// version 8), which knows uploads and nothing of attachments.
package rufh
