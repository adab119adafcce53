// Package daemon assembles fieldgwd: it connects watch, intake, queue and uplink into loops and answers the control API.
// It decides nothing that a lower package decides; what it adds is who wakes whom, and when.
//
//	watch ──candidates──► custody ──adopt──► intake ──► spool + queue
//	                                                        │ wake
//	                                                        ▼
//	control API ◄──status── queue ◄──outcomes── dispatcher ──► uplink ──► server
//
// Loops: custody (custody.go), the dispatcher and its workers (dispatch.go, deliver.go, outcome.go), storage and clock
// (storage.go, housekeeping.go). The control backend is in the backend_*.go files. Read daemon.go first: it is the
// order of start and stop.
package daemon
