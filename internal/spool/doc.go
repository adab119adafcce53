// Package spool owns the managed storage of one account: the payloads that fieldgw has custody of.
//
//	DIR/spool/staging/ID.part         a payload on its way in; nothing is promised yet
//	DIR/spool/payload/SH/ID           a secured, undelivered payload (SH = last two hex digits of the ID)
//	DIR/spool/payload/SH/ID.manifest  its travelling manifest
//	DIR/spool/payload/SH/ID.sidecar   what the sidecar said that bound it, as it was written
//	DIR/delivered/SH/ID[.…]           copies kept after delivery, with what lay beside them
//	DIR/receipts/ID                   the server's receipt, durable before the queue says delivered
//	DIR/outbox/NAME                   a standing decision, durable before the queue knows it
//
// A payload is never written to after it left staging. Paths follow from the ID; they are stored nowhere. Every method
// that changes something is durable when it returns nil. Order between methods, and what a crash between them means, is
// the business of package intake. Read area.go first, then stage.go, secure.go and payload.go.
package spool
