package attachment

// Code is the reason why something waits, needs a person or was not taken. The list is closed, documented and may grow.
// Persisted as this text.
type Code string

// Kind groups codes by what they mean for the item.
type Kind string

// The kinds of codes.
const (
	// KindHold: sending or taking stops now and goes on by itself.
	KindHold Kind = "hold"
	// KindAttention: a person is needed for this item.
	KindAttention Kind = "attention"
	// KindNotTaken: a path in a capture directory that is not an attachment, or not yet.
	KindNotTaken Kind = "not-taken"
)

// Reasons that hold sending or capturing. HoldCredentials is the server's refusal; with HoldCredentialUnusable there was no
// credential to ask it with.
const (
	HoldQueued             Code = "queued"
	HoldBackoff            Code = "backoff"
	HoldPaused             Code = "paused"
	HoldChannelPaused      Code = "channel_paused"
	HoldNotConfigured      Code = "not_configured"
	HoldOffline            Code = "offline"
	HoldServerBusy         Code = "server_busy"
	HoldServerError        Code = "server_error"
	HoldServerFull         Code = "server_full"
	HoldNotOurServer       Code = "not_our_server"
	HoldCredentials        Code = "credentials"
	HoldCredentialUnusable Code = "credential_unusable"
	HoldTLS                Code = "tls_untrusted"
	HoldCertificate        Code = "client_certificate"
	HoldProxy              Code = "proxy_refused"
	HoldWaitingParent      Code = "parent_pending"
	HoldSidecar            Code = "sidecar_pending"
	HoldStorageReserve     Code = "storage_reserve"
	HoldStorageUnknown     Code = "storage_unknown"
	HoldDeviceFull         Code = "device_full"
	HoldGrade              Code = "receipt_grade"
	HoldOutsideWindow      Code = "outside_window"
	HoldClockUnset         Code = "clock_unset"
)

// Reasons that need a person.
const (
	NeedsSizeLimit        Code = "size_limit"
	NeedsMediaType        Code = "media_type"
	NeedsParentPolicy     Code = "parent_policy"
	NeedsIdentityConflict Code = "identity_conflict"
	NeedsTakeover         Code = "takeover_denied"
	NeedsForbidden        Code = "forbidden"
	NeedsRefused          Code = "server_refused"
	NeedsReceiptMismatch  Code = "receipt_mismatch"
	NeedsPayloadMissing   Code = "payload_missing"
	NeedsPayloadChanged   Code = "payload_changed"
	NeedsDamagedEarly     Code = "damaged_before_custody"
	NeedsEmptyFile        Code = "empty"
	NeedsNoAnswer         Code = "submission_unanswered"
	NeedsManifestDamaged  Code = "manifest_damaged"
	NeedsSidecarInvalid   Code = "sidecar_invalid"
	NeedsPatternMismatch  Code = "pattern_mismatch"
)

// Reasons why a path was not taken.
const (
	NotTakenSettling         Code = "settling"
	NotTakenOpen             Code = "still_open"
	NotTakenEmpty            Code = "empty_file"
	NotTakenUnreadable       Code = "unreadable"
	NotTakenPermission       Code = "no_permission"
	NotTakenSpecial          Code = "special_file"
	NotTakenTemporary        Code = "temporary_name"
	NotTakenUnavailable      Code = "unavailable"
	NotTakenStorage          Code = "storage_full"
	NotTakenChanged          Code = "changed_while_read"
	NotTakenQueue            Code = "queue_unavailable"
	NotTakenTooDeep          Code = "too_deep"
	NotTakenNotWatched       Code = "not_watched"
	NotTakenSidecarWaits     Code = "sidecar_waits"
	NotTakenSidecarAlone     Code = "sidecar_alone"
	NotTakenSidecarAmbiguous Code = "sidecar_ambiguous"
	NotTakenSidecarLate      Code = "sidecar_late"
	NotTakenQueueFull        Code = "queue_full"
	NotTakenRepeated         Code = "repeated"
)

// Who names the person who can act.
type Who string

// The people who can act. Nobody means that waiting is right.
const (
	WhoNobody     Who = "nobody"
	WhoTechnician Who = "technician"
	WhoOperator   Who = "operator"
)

// Advice is what a person is told about a code.
type Advice struct {
	Code     Code   `json:"code"`
	Kind     Kind   `json:"kind"`
	Sentence string `json:"sentence"`
	Remedy   string `json:"remedy"`
	Who      Who    `json:"who"`
	// Command is what to type, with ID in place of the attachment's ID; empty where typing does not help.
	Command string `json:"command,omitempty"`
}

// Explain returns the advice for a code. An unknown code gets a sentence that says so; it never fails.
func Explain(code Code) Advice {
	for _, a := range advice {
		if a.Code == code {
			return a
		}
	}
	return Advice{
		Code: code, Kind: KindAttention, Sentence: "This version does not know the reason " + Printable(string(code)) + ".",
		Remedy: "Look into the service's log.", Who: WhoOperator, Command: "fieldgwctl show ID",
	}
}

// Codes lists the advice of every code.
func Codes() []Advice { return append([]Advice(nil), advice...) }
