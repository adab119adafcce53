package wire

// Headers of the control plane.
const (
	// HeaderProtocol is on every answer of a fieldgw server; an answer without it is not our server.
	HeaderProtocol = "Fieldgw-Protocol"
	// HeaderIdempotencyKey carries the attachment ID (draft-ietf-httpapi-idempotency-key-header: a quoted string).
	HeaderIdempotencyKey = "Idempotency-Key"
)

// Headers and values of the data plane, tus 1.0.0 core protocol.
const (
	HeaderTusResumable = "Tus-Resumable"
	HeaderTusVersion   = "Tus-Version"
	HeaderUploadOffset = "Upload-Offset"
	HeaderUploadLength = "Upload-Length"
	// HeaderMethodOverride names the method to use in place of the request's own (tus 1.0.0, X-HTTP-Method-Override).
	HeaderMethodOverride = "X-HTTP-Method-Override"
	// TusVersion is the only version spoken.
	TusVersion = "1.0.0"
	// ContentTypeOffset is the media type of a PATCH body.
	ContentTypeOffset = "application/offset+octet-stream"
)

// Media types of the control plane.
const (
	ContentTypeJSON    = "application/json"
	ContentTypeProblem = "application/problem+json"
)

// DialectTus names the tus 1.0.0 dialect in Upload.Dialects.
const DialectTus = "tus-1.0.0"
