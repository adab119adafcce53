package logging

// The fixed attribute keys. A record names each fact by one of them and by no other word, so that a search in the
// journal (FIELDGW_ATTACHMENT=…) or in JSON finds all of it. None of them ever carries a credential.
const (
	KeyMessageID  = "message_id" // 128-bit ID of a message with a catalog entry (systemd.journal-fields(7)), 32 hex digits
	KeyAttachment = "attachment" // attachment ID
	KeyParent     = "parent"     // local ID of the record an attachment belongs to
	KeyWatch      = "watch"      // name of the watch
	KeyPath       = "path"       // path of a file, as the file system spells it
	KeyAddress    = "address"    // network address that is listened on
	KeyState      = "state"      // state after a transition
	KeyFrom       = "from"       // state before it
	KeyEvent      = "event"      // what caused it
	KeyReason     = "reason"     // reason code: why something waits or was refused
	KeyHold       = "hold"       // code of a hold
	KeyCode       = "code"       // problem code of the server, or code of an attention
	KeySeq        = "seq"        // journal sequence number
	KeyAttempt    = "attempt"    // number of the attempt, from 1
	KeyNotBefore  = "not_before" // time of the next attempt at the earliest
	KeyBytes      = "bytes"      // length or amount, in bytes
	KeyOffset     = "offset"     // confirmed offset, in bytes
	KeySession    = "session"    // upload session
	KeyStatus     = "status"     // HTTP status
	KeyAccount    = "account"    // account name
	KeyDevice     = "device"     // device name
	KeyUID        = "uid"        // user ID of a caller on the control socket
	KeyBy         = "by"         // who decided: a person, the server, the daemon
	KeyDuration   = "duration"   // how long something took or lasted
	KeyCount      = "count"      // how many
	KeyErr        = "err"        // the error
	KeyFailure    = "failure"    // message of the failure that is over
	KeyVersion    = "version"    // version of the program
)
