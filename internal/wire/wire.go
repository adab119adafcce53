// Package wire holds the protocol between device and server: messages, headers, problem codes and limits.
//
// It is pure: no I/O, no clock. docs/protocol.md is the normative text; a test keeps the two in step.
// Read control.go for the JSON messages, headers.go for the data plane, problem.go for errors.
package wire

// Protocol is the version that every answer carries in HeaderProtocol.
const Protocol = 1

// ServiceName is what Status.Service says on a fieldgw server.
const ServiceName = "fieldgw"

// Limits that both sides enforce.
const (
	// MaxControlBody bounds a control-plane request or answer, in bytes.
	MaxControlBody = 1 << 20
	// MaxFilename bounds a filename, in bytes of its raw form (NAME_MAX on Linux).
	MaxFilename = 255
	// MaxParentID bounds a parent's local or server ID, in bytes.
	MaxParentID = 1024
	// MaxLength bounds an attachment, in bytes (1 TiB).
	MaxLength = 1 << 40
)
