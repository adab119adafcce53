// Package upload is the data plane of the receiving server: it takes the bytes of an attachment and verifies them.
//
// It owns upload sessions while they move: who may append, where, how long, and when the bytes are the declared ones.
// It promises that an offset in any answer is durable (data fsynced, then recorded, then answered), that an interrupted
// append keeps and confirms the prefix that arrived, that one session has one append at a time, and that an attachment
// is verified only from what the server itself read back from its files. It knows which finished contents this process has
// read, so that neither waived bytes nor a new receipt rest on the length of a file; one that it finds damaged it takes out
// of its place for good.
//
// Read engine.go for who may append, append.go and verify.go for the order of things, content.go for what is known of
// finished contents, recover.go for what a start does,
// tidy.go for what happens without being asked, create.go for uploads that a client opens without the control plane,
// and tus.go for how all this looks in tus 1.0.0.
package upload
