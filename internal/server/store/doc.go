// Package store keeps what the receiving server knows and holds.
//
// It owns two things that later stores may combine differently. Store is the contract for records: tokens, attachments,
// upload sessions, media items and receipts; each method is one transaction, and Embedded implements it in one bbolt
// file. Files holds the bytes: open uploads and finished contents, below one directory per account. It promises that a
// method which returned nil is durable, that every key and every path begins with the account, and that no method of an
// account sees another account's rows.
//
// What a replayed reserve or registration may change is decided by the pure functions in rules.go, so that every
// implementation answers alike; storetest holds the suite that an implementation must pass.
// Read contract.go first, then rules.go, embedded.go, files.go, content.go and place.go. The order in which records and bytes are made durable
// is drawn up in package server.
package store
