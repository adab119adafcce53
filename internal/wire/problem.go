package wire

import (
	"maps"
	"slices"
)

// Code is the stable, machine-readable reason of a refusal; clients branch on it, never on prose. Persisted as text.
type Code string

// The problem codes of a fieldgw server.
const (
	CodeInvalid          Code = "invalid"           // 400: the request is malformed; Detail says where
	CodeLength           Code = "length_mismatch"   // 400: lengths that contradict each other
	CodeDigestField      Code = "digest_field"      // 400: Content-Digest or Repr-Digest is not that of the bytes, of which nothing counts
	CodeCredentials      Code = "credentials"       // 401: no valid token
	CodeForbidden        Code = "forbidden"         // 403: this credential may not do this
	CodeTakeoverDenied   Code = "takeover_denied"   // 403: the attachment belongs to another device and may not be taken over
	CodeNotFound         Code = "not_found"         // 404: no such attachment or route
	CodeMethod           Code = "method"            // 405
	CodeTimeout          Code = "timeout"           // 408: no byte arrived for too long; a prefix of an append is kept and confirmed
	CodeIdentityConflict Code = "identity_conflict" // 409: the ID is known with another length, digest or role
	CodeOffsetMismatch   Code = "offset_mismatch"   // 409: the append does not start at the confirmed offset, which is in Upload-Offset
	CodeNotVerified      Code = "not_verified"      // 409: registration before all bytes were verified
	CodeSessionGone      Code = "session_gone"      // 410: void, expired or lost session; reserve again
	CodeTusVersion       Code = "tus_version"       // 412
	CodePrecondition     Code = "precondition"      // 412: a conditional download whose condition does not hold
	CodeSizeLimit        Code = "size_limit"        // 413: the attachment is larger than the server takes
	CodeAppendLimit      Code = "append_limit"      // 413: the append exceeds the declared length, or the largest with a checksum
	CodeMediaType        Code = "media_type"        // 415
	CodeRange            Code = "range"             // 416: a download's range lies outside the content
	CodeParentPolicy     Code = "parent_policy"     // 422: the account's policy refuses this parent binding
	CodeDigestMismatch   Code = "digest_mismatch"   // 422: the stored bytes are not the declared ones; the session is void
	CodeBusy             Code = "busy"              // 423: another append of this session is moving; Retry-After says when
	CodeTooMany          Code = "too_many"          // 429
	CodeChecksum         Code = "checksum_mismatch" // 460: the body has another Upload-Checksum; nothing of it counts (tus 1.0.0)
	CodeInternal         Code = "internal"          // 500
	CodeShuttingDown     Code = "shutting_down"     // 503
	CodeServerFull       Code = "server_full"       // 507
)

// statuses holds the HTTP status of every code.
var statuses = map[Code]int{
	CodeInvalid: 400, CodeLength: 400, CodeDigestField: 400, CodeCredentials: 401, CodeForbidden: 403, CodeTakeoverDenied: 403, CodeNotFound: 404, CodeMethod: 405,
	CodeTimeout: 408, CodeIdentityConflict: 409, CodeOffsetMismatch: 409, CodeNotVerified: 409, CodeSessionGone: 410,
	CodeTusVersion: 412, CodePrecondition: 412, CodeSizeLimit: 413, CodeAppendLimit: 413, CodeMediaType: 415, CodeRange: 416,
	CodeParentPolicy: 422, CodeDigestMismatch: 422, CodeBusy: 423, CodeTooMany: 429, CodeChecksum: 460, CodeInternal: 500,
	CodeShuttingDown: 503, CodeServerFull: 507,
}

// Status returns the HTTP status that a fieldgw server answers this code with; 0 for a code that is not of this package.
func (c Code) Status() int { return statuses[c] }

// Codes returns every code of this package, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(statuses)) }

// Problem is an error answer (RFC 9457, application/problem+json).
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   Code   `json:"code"`
	Detail string `json:"detail,omitempty"`
	// ExpectedOffset is the confirmed offset, with offset_mismatch.
	ExpectedOffset *int64 `json:"expected-offset,omitempty"`
	// ProvidedOffset repeats the request's offset, with offset_mismatch.
	ProvidedOffset *int64 `json:"provided-offset,omitempty"`
}
