// Package control holds the messages of the local control API: what fieldgwd says about itself and its attachments, and
// what it can be told to do.
//
// It owns the types, their JSON names, the limits and the list of problem codes; nothing here runs. It promises an additive
// schema: within one version of a document (the member "schema") members are added, never renamed, removed or given another
// meaning, so that a reader who ignores members it does not know keeps working. Times are RFC 3339 in UTC, sizes are bytes,
// a member that does not apply is absent.
//
// Read status.go first, then waiting.go (the one answer to "why is it waiting"), item.go, and problem.go for refusals. The
// routes are in package server.
package control

import "github.com/fieldgw/fieldgw/internal/wire"

// The document kinds, as they stand in the member "schema".
const (
	SchemaStatus       = "fieldgw.status/v1"
	SchemaItemList     = "fieldgw.item-list/v1"
	SchemaItem         = "fieldgw.item/v1"
	SchemaNotTakenList = "fieldgw.not-taken-list/v1"
	SchemaRecordList   = "fieldgw.record-list/v1"
	SchemaAction       = "fieldgw.action/v1"
	SchemaSubmission   = "fieldgw.submission/v1"
	SchemaTransition   = "fieldgw.transition/v1"
	SchemaError        = "fieldgw.error/v1"
)

// The limits that both ends keep.
const (
	// DefaultPage and MaxPage are the numbers of rows in one page of a list, unasked and at most.
	DefaultPage = 200
	MaxPage     = 1000
	// MaxActionIDs is how many attachments one action names.
	MaxActionIDs = 1000
	// MaxResults is how many single results the answer to an action holds; the rest is only counted.
	MaxResults = 1000
	// MaxCandidates is how many IDs are named when a reference is ambiguous.
	MaxCandidates = 10
	// MinReference is the least number of characters of a shortened ID.
	MinReference = 4
	// MaxReason is the length in bytes of the reason that a person gives.
	MaxReason = 1000
	// MaxDetail is the length in bytes of the cause behind a wait.
	MaxDetail = 200
	// MaxJournal is how many journal rows an item's detail holds, the newest.
	MaxJournal = 1000
	// MaxSubmissionFiles is how many files one submission holds.
	MaxSubmissionFiles = 1000
	// MaxSubmissionHeader is the size in bytes of a submission's first part.
	MaxSubmissionHeader = 4 << 20
	// MaxFileLength is the length in bytes of one file (1 TiB).
	MaxFileLength = wire.MaxLength
	// MaxFilename is the length in bytes of a file's name, as on Linux filesystems (NAME_MAX).
	MaxFilename = wire.MaxFilename
	// MaxPath is the length in bytes of the source path that is kept for showing (PATH_MAX).
	MaxPath = 4096
	// MaxRecordID is the length in bytes of a record's local ID.
	MaxRecordID = wire.MaxParentID
	// MaxBody is the size in bytes of a JSON request, MaxAnswer that of a JSON answer.
	MaxBody   = 1 << 20
	MaxAnswer = 16 << 20
)
