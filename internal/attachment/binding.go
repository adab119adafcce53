package attachment

import "time"

// BindingRule says what names the parent of an attachment. Persisted as this text.
type BindingRule string

// The rules.
const (
	BindNone      BindingRule = "none"      // files of its watch belong to nothing
	BindDirectory BindingRule = "directory" // the first directory below the watch's root
	BindPattern   BindingRule = "pattern"   // the watch's pattern, on the path below its root
	BindSidecar   BindingRule = "sidecar"   // a JSON file beside it
	BindCaller    BindingRule = "caller"    // the program that submitted it
)

// Binding is how an attachment comes to its parent.
type Binding struct {
	Rule BindingRule `json:"rule,omitempty"`
	// Until is when the wait for a sidecar ends by the wall clock, Wait is its length: whichever of wall and running time
	// ends first ends it. Zero where nothing is waited for.
	Until time.Time     `json:"until,omitzero"`
	Wait  time.Duration `json:"wait_ns,omitempty"`
	// Sidecar is the one that bound it; nil while none has.
	Sidecar *Sidecar `json:"sidecar,omitempty"`
}

// Sidecar is where a binding came from. What it said travels beside the payload as ID.sidecar.
type Sidecar struct {
	// Path is absolute, RelPath relative to the watch's root.
	Path    Name `json:"path"`
	RelPath Name `json:"rel_path"`
	// Identity and SHA256 are those of the file; Entry is set when what concerns this attachment is a part of it.
	Identity SourceIdentity `json:"identity"`
	SHA256   Digest         `json:"sha256"`
	Entry    bool           `json:"entry,omitempty"`
	// ReleasePending: it is kept beside the payload and is still to be removed where it came from.
	ReleasePending bool `json:"release_pending,omitempty"`
	// Kept says why it was left in place although the watch moves files; empty when it was not.
	Kept string `json:"kept,omitempty"`
}

// Unbound reports whether a sidecar may still bind this attachment: its watch goes by sidecars, none has come, and the
// server has not got it.
func (m *Manifest) Unbound() bool {
	return m.Binding.Rule == BindSidecar && m.Binding.Sidecar == nil && m.State.Undelivered()
}

// Awaiting reports whether sending waits for a sidecar.
func (m *Manifest) Awaiting() bool { return m.State == Captured && m.Unbound() && m.Binding.Wait > 0 }

// ReleasePending reports whether something is still to be removed from a capture directory: the source, or its sidecar.
func (m *Manifest) ReleasePending() bool {
	return m.Source.ReleasePending || m.Binding.Sidecar != nil && m.Binding.Sidecar.ReleasePending
}
