package wire

// Headers of the control plane.
const (
	// HeaderProtocol is on every answer of a fieldgw server; an answer without it is not our server.
	HeaderProtocol = "Fieldgw-Protocol"
	// HeaderAttachment names the attachment that an upload resource belongs to.
	HeaderAttachment = "Fieldgw-Attachment"
	// HeaderIdempotencyKey carries the attachment ID, or a key that stands for one (draft-ietf-httpapi-idempotency-key-header: a quoted string).
	HeaderIdempotencyKey = "Idempotency-Key"
)

// Headers and values of the data plane, tus 1.0.0.
const (
	HeaderTusResumable = "Tus-Resumable"
	HeaderTusVersion   = "Tus-Version"
	HeaderUploadOffset = "Upload-Offset"
	HeaderUploadLength = "Upload-Length"
	// HeaderUploadDefer is 1 where the length is told later (tus 1.0.0, creation-defer-length).
	HeaderUploadDefer    = "Upload-Defer-Length"
	HeaderUploadMetadata = "Upload-Metadata"
	// HeaderUploadConcat belongs to an extension that is not spoken.
	HeaderUploadConcat = "Upload-Concat"
	// HeaderUploadExpires tells when an upload ends that gets no more bytes (tus 1.0.0, expiration).
	HeaderUploadExpires = "Upload-Expires"
	HeaderTusExtension  = "Tus-Extension"
	HeaderTusMaxSize    = "Tus-Max-Size"
	// HeaderUploadChecksum is over the bytes of one body; HeaderTusAlgorithms lists what it may be of (tus 1.0.0, checksum).
	HeaderUploadChecksum = "Upload-Checksum"
	HeaderTusAlgorithms  = "Tus-Checksum-Algorithm"
	// HeaderMethodOverride names the method to use in place of the request's own (tus 1.0.0, X-HTTP-Method-Override).
	HeaderMethodOverride = "X-HTTP-Method-Override"
	// TusVersion is the only version spoken.
	TusVersion = "1.0.0"
	// ContentTypeOffset is the media type of a PATCH body.
	ContentTypeOffset = "application/offset+octet-stream"
)

// TusExtensions are the extensions of tus 1.0.0 that a fieldgw server speaks.
func TusExtensions() []string {
	return []string{"creation", "creation-with-upload", "creation-defer-length", "checksum", "expiration", "termination"}
}

// Headers and values of the data plane, Resumable Uploads for HTTP (draft-ietf-httpbis-resumable-upload) and Digest Fields
// (RFC 9530). HeaderUploadOffset and HeaderUploadLength are shared with tus.
const (
	// HeaderUploadComplete says whether a request ends the upload, or whether an answer is the one of a finished upload.
	HeaderUploadComplete = "Upload-Complete"
	HeaderUploadLimit    = "Upload-Limit"
	// HeaderInteropVersion carries InteropVersion: who does not send it gets no 104.
	HeaderInteropVersion = "Upload-Draft-Interop-Version"
	InteropVersion       = 8
	// HeaderContentDigest is over the bytes of one message, HeaderReprDigest over the whole file.
	HeaderContentDigest  = "Content-Digest"
	HeaderReprDigest     = "Repr-Digest"
	HeaderWantReprDigest = "Want-Repr-Digest"
	// ContentTypePartial is the media type of a PATCH body.
	ContentTypePartial = "application/partial-upload"
	// StatusResumption is the interim answer that tells where an upload is and how far it has come.
	StatusResumption = 104
	// TypeUploadOffset and TypeUploadLength are the problem types of the draft.
	TypeUploadOffset = "https://iana.org/assignments/http-problem-types#mismatching-upload-offset"
	TypeUploadLength = "https://iana.org/assignments/http-problem-types#inconsistent-upload-length"
)

// Media types of the control plane.
const (
	ContentTypeJSON    = "application/json"
	ContentTypeProblem = "application/problem+json"
)

// The dialects of an upload resource, in Upload.Dialects.
const (
	DialectTus  = "tus-1.0.0"
	DialectRUFH = "rufh-8" // Resumable Uploads for HTTP, draft interop version 8
)
