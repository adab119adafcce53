// Package config owns the device's configuration: the keys that exist, their defaults, their units and the rules
// between them. It reads TOML strictly and promises that a bad configuration is refused as a whole, with every problem
// named at once by file, line and key, and that no secret is ever part of a configuration or of an error.
//
// Read Config for the keys, [Load] for how files are found and merged, and example.toml for what an operator sees.
// A key exists here only when the program obeys it.
package config

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/fieldgw/fieldgw/internal/receipt"
)

// Version is the one configuration format this program reads (key version).
const Version = 1

// DefaultPath is the main file of an installed gateway.
const DefaultPath = "/etc/fieldgw/fieldgw.toml"

// Config is one complete, validated configuration. It is read-only after [Load]: a reload makes a new one.
type Config struct {
	Version  int               `toml:"version"`   // always Version
	StateDir string            `toml:"state_dir"` // absolute, clean path of the state directory
	Device   Device            `toml:"device"`
	Watch    map[string]*Watch `toml:"watch"` // by name; empty when no directory is watched
	Storage  Storage           `toml:"storage"`
	Uplink   Uplink            `toml:"uplink"`
	Control  Control           `toml:"control"`
	Log      Log               `toml:"log"`
}

// Device is the table [device].
type Device struct {
	ID string `toml:"id"` // empty: only the credential names the device
}

// Watch is one table [watch.NAME]: a directory whose completed files are adopted.
type Watch struct {
	Name      string     `toml:"-"`         // NAME of the table
	Path      string     `toml:"path"`      // absolute, clean path; it need not exist (a card may come later)
	Recursive bool       `toml:"recursive"` // descend into subdirectories
	Parent    ParentRule `toml:"parent"`
	Pattern   string     `toml:"pattern"` // with parent = "pattern": RE2 on the path below Path, with the group parent
	// SidecarWait is how long a file waits for its sidecar, with parent = "sidecar".
	SidecarWait Duration `toml:"sidecar_wait"`
	Include     []string `toml:"include"`   // path.Match patterns on the base name; empty: every file
	Exclude     []string `toml:"exclude"`   // path.Match patterns on the base name; stronger than Include
	Temporary   []string `toml:"temporary"` // path.Match patterns on the base names of unfinished files, besides those known
	Settle      Duration `toml:"settle"`    // how long a file must be unchanged before it counts as complete
	Events      Events   `toml:"events"`
	Marker      string   `toml:"marker"` // clean path below Path of a file that proves that the medium is there; empty: none
	Adopt       Adopt    `toml:"adopt"`
	Repeated    Repeated `toml:"repeated"`

	pattern *regexp.Regexp
}

// Storage is the table [storage].
type Storage struct {
	WarnFree     Size     `toml:"warn_free"`     // below this much free space the operator is warned
	Reserve      Size     `toml:"reserve"`       // below this much free space adoption stops; at most WarnFree
	StagingGrace Duration `toml:"staging_grace"` // age at which unnamed staging counts as abandoned
}

// Uplink is the table [uplink].
type Uplink struct {
	Driver     Driver `toml:"driver"`
	Endpoint   string `toml:"endpoint"`    // https URL, or http to loopback; empty: not configured
	Account    string `toml:"account"`     // whose captures these are, where the credential does not say
	Credential string `toml:"credential"`  // path of the token file; empty: none named, and systemd gave none
	CAFile     string `toml:"ca_file"`     // path of PEM roots; empty: the system's
	ClientCert string `toml:"client_cert"` // path of the device's own certificate in PEM; empty: none
	ClientKey  string `toml:"client_key"`  // path of its key; set exactly when ClientCert is
	Proxy      string `toml:"proxy"`       // URL without user; "none"; empty: what the environment says
	// ProxyCredential is the path of a file with user:password; empty: the proxy asks for none.
	ProxyCredential string    `toml:"proxy_credential"`
	ChunkSize       ChunkSize `toml:"chunk_size"`     // most that is sent beyond the last confirmed offset
	Workers         int       `toml:"workers"`        // transfers at one time
	Small           Size      `toml:"small"`          // up to which a file never waits for larger ones; a power of two
	RateLimit       Rate      `toml:"rate_limit"`     // of all transfers together; 0: none
	Windows         []Window  `toml:"windows"`        // when files may be sent; empty: always
	IdleTimeout     Duration  `toml:"idle_timeout"`   // longest time without a byte moving
	AnswerTimeout   Duration  `toml:"answer_timeout"` // longest wait for the answer after the last byte
	// AcceptGrade is the least that a receipt must be worth to count as delivery.
	AcceptGrade AcceptGrade `toml:"accept_grade"`
	Verify      Verify      `toml:"verify"`  // what is asked of a server that says no digest of its own
	Webhook     string      `toml:"webhook"` // URL by the rules of Endpoint that hears of what was sent; empty: none
	// WebhookCredential is the path of a file with a token or user:password; empty: the webhook asks for none.
	WebhookCredential string `toml:"webhook_credential"`
	Retry             Retry  `toml:"retry"`
	HTTP              HTTP   `toml:"http"`
}

// Identified reports whether there is something that a server can know the device by.
func (u Uplink) Identified() bool { return u.Credential != "" || u.ClientCert != "" }

// Configured reports whether there is a server to send to. A gateway without one captures and keeps.
func (u Uplink) Configured() bool { return u.Endpoint != "" }

// Retry is the table [uplink.retry]: the range from which the wait before each further attempt is drawn.
// Both ends of the ranges never decrease from First to Cap.
type Retry struct {
	First  DurationRange `toml:"first"`
	Second DurationRange `toml:"second"`
	Third  DurationRange `toml:"third"`
	Cap    DurationRange `toml:"cap"` // what later waits grow to, doubling
}

// Control is the table [control]: the local socket that fieldgwctl talks to.
type Control struct {
	Socket string `toml:"socket"` // absolute, clean path that fits into sockaddr_un (unix(7))
	Group  string `toml:"group"`  // group that may connect; empty: the socket keeps the daemon's own group
}

// Log is the table [log].
type Log struct {
	Level  LogLevel  `toml:"level"`
	Format LogFormat `toml:"format"`
}

// Watches returns the watches in the order of their names.
func (c *Config) Watches() []*Watch {
	out := make([]*Watch, 0, len(c.Watch))
	for _, w := range c.Watch {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *Watch) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ParentRule says how a file finds the record it belongs to.
type ParentRule string

// The parent rules.
const (
	ParentDirectory ParentRule = "directory" // the directory that holds the file names the record
	ParentSidecar   ParentRule = "sidecar"   // a JSON file beside it names the record
	ParentPattern   ParentRule = "pattern"   // a part of its path names the record
	ParentNone      ParentRule = "none"      // files belong to no record
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *ParentRule) UnmarshalText(text []byte) error {
	return setWord(p, text, ParentDirectory, ParentSidecar, ParentPattern, ParentNone)
}

// Events says how far the kernel's file events are relied on.
type Events string

// The ways of finding out that something changed.
const (
	EventsAuto Events = "auto" // events, and frequent scans where the filesystem tells that they cannot be complete
	EventsPoll Events = "poll" // frequent scans as well, whatever the filesystem
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Events) UnmarshalText(text []byte) error { return setWord(e, text, EventsAuto, EventsPoll) }

// Adopt says what becomes of the source file.
type Adopt string

// The ways of adoption.
const (
	AdoptMove Adopt = "move" // the source leaves the capture directory
	AdoptCopy Adopt = "copy" // the source stays
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Adopt) UnmarshalText(text []byte) error { return setWord(a, text, AdoptMove, AdoptCopy) }

// Repeated says what becomes of bytes that a watch has given before for the same record.
type Repeated string

// What to do with a repetition.
const (
	RepeatedSend Repeated = "send" // it is an attachment of its own, marked as a repetition
	RepeatedSkip Repeated = "skip" // it is left where it is
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Repeated) UnmarshalText(text []byte) error {
	return setWord(r, text, RepeatedSend, RepeatedSkip)
}

// Driver names the protocol spoken to the server.
type Driver string

// The drivers.
const (
	DriverFieldgw Driver = "fieldgw" // fieldgw-server
	DriverTus     Driver = "tus"     // any server of tus 1.0.0
)

// Names reports whether the driver's credential names account and device. Another's only opens a door.
func (d Driver) Names() bool { return d == DriverFieldgw }

// Drivers lists the drivers that there are.
func Drivers() []Driver { return []Driver{DriverFieldgw, DriverTus, DriverHTTP} }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Driver) UnmarshalText(text []byte) error { return setWord(d, text, Drivers()...) }

// AcceptGrade is the least grade of a receipt that counts as delivery; the words are those of package receipt.
type AcceptGrade string

// The grades that may be asked for.
const (
	AcceptRegistered     AcceptGrade = "registered"      // a server registered the attachment
	AcceptVerifiedDigest AcceptGrade = "verified-digest" // the digest was read back from the server, which registered nothing
)

// UnmarshalText implements encoding.TextUnmarshaler. A length is refused with its reason: it proves nothing about the bytes.
func (g *AcceptGrade) UnmarshalText(text []byte) error {
	if string(text) == string(receipt.LengthOnly) {
		return &valueError{
			msg:  quote(string(text)) + " can never count as delivery: bytes of the right length may be any bytes",
			hint: "use a server that tells a digest, or one whose bytes can be read back",
		}
	}
	return setWord(g, text, AcceptRegistered, AcceptVerifiedDigest)
}

// Verify says how much is asked of a server that knows no registrations before bytes count as sent.
type Verify string

// The ways of verifying.
const (
	VerifyDigest Verify = "digest" // its digest of the stored bytes, or the bytes read back where it says none
	VerifyLength Verify = "length" // their number alone; nothing is read back
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Verify) UnmarshalText(text []byte) error {
	return setWord(v, text, VerifyDigest, VerifyLength)
}

// LogLevel is the least severity that is logged.
type LogLevel string

// The log levels.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *LogLevel) UnmarshalText(text []byte) error {
	return setWord(l, text, LogDebug, LogInfo, LogWarn, LogError)
}

// Slog returns the level in log/slog's terms.
func (l LogLevel) Slog() slog.Level {
	switch l {
	case LogDebug:
		return slog.LevelDebug
	case LogWarn:
		return slog.LevelWarn
	case LogError:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

// LogFormat says where and how log records are written; the words are those of package logging.
type LogFormat string

// The log formats.
const (
	FormatAuto    LogFormat = "auto"    // journal under systemd, else text
	FormatText    LogFormat = "text"    // key=value lines on standard error
	FormatJSON    LogFormat = "json"    // one JSON object per line on standard error
	FormatJournal LogFormat = "journal" // structured records to systemd-journald
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *LogFormat) UnmarshalText(text []byte) error {
	return setWord(f, text, FormatAuto, FormatText, FormatJSON, FormatJournal)
}

// setWord stores text in dst when it is one of the allowed words.
func setWord[T ~string](dst *T, text []byte, allowed ...T) error {
	words := make([]string, len(allowed))
	for i, w := range allowed {
		words[i] = string(w)
	}
	got := string(text)
	if !slices.Contains(words, got) {
		return &valueError{
			msg:  "want " + orList(words) + ", got " + quote(got),
			hint: didYouMean(got, words),
		}
	}
	*dst = T(got)
	return nil
}
