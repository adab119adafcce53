package config

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// chunkAuto is the upper bound of chunk_size = "auto".
	chunkAuto = 8 << 20

	// The names under which the unit's LoadCredential= hands over what is secret (systemd.exec(5)).
	credentialToken = "uplink-token"
	credentialCert  = "uplink-cert"
	credentialKey   = "uplink-key"
	credentialProxy = "uplink-proxy"
)

// Default returns the configuration without any file. env is asked for STATE_DIRECTORY, RUNTIME_DIRECTORY and
// CREDENTIALS_DIRECTORY, which systemd sets from the unit (systemd.exec(5)); nil means that none is set.
func Default(env func(string) string) *Config {
	state := "/var/lib/fieldgw"
	if dir := firstDir(env, "STATE_DIRECTORY"); dir != "" {
		state = filepath.Clean(dir)
	}
	socket := "/run/fieldgw/control.sock"
	if dir := firstDir(env, "RUNTIME_DIRECTORY"); dir != "" {
		socket = filepath.Join(dir, "control.sock")
	}
	c := &Config{
		Version:  Version,
		StateDir: state,
		Watch:    map[string]*Watch{},
		Storage: Storage{
			WarnFree:     64 << 20,
			Reserve:      32 << 20,
			StagingGrace: Duration(60 * time.Minute),
		},
		Uplink: Uplink{
			Driver:        DriverFieldgw,
			Account:       "local",
			ChunkSize:     ChunkSize{Auto: true, Max: chunkAuto},
			Workers:       4,
			Small:         1 << 20,
			Windows:       []Window{},
			IdleTimeout:   Duration(30 * time.Second),
			AnswerTimeout: Duration(5 * time.Minute),
			AcceptGrade:   AcceptRegistered,
			Verify:        VerifyDigest,
			HTTP:          defaultHTTP(),
			Retry: Retry{
				First:  DurationRange{Duration(15 * time.Second), Duration(45 * time.Second)},
				Second: DurationRange{Duration(time.Minute), Duration(3 * time.Minute)},
				Third:  DurationRange{Duration(5 * time.Minute), Duration(15 * time.Minute)},
				Cap:    DurationRange{Duration(30 * time.Minute), Duration(60 * time.Minute)},
			},
		},
		Control: Control{Socket: socket, Group: "fieldgw"},
		Log:     Log{Level: LogInfo, Format: FormatAuto},
	}
	c.fromSystem(env)
	return c
}

// fromSystem takes what systemd hands over for the keys that name no file. A certificate needs its key.
func (c *Config) fromSystem(env func(string) string) {
	u := &c.Uplink
	if u.Credential == "" {
		u.Credential = systemCredential(env, credentialToken)
	}
	if u.ProxyCredential == "" {
		u.ProxyCredential = systemCredential(env, credentialProxy)
	}
	if u.ClientCert == "" && u.ClientKey == "" {
		cert, key := systemCredential(env, credentialCert), systemCredential(env, credentialKey)
		if cert != "" && key != "" {
			u.ClientCert, u.ClientKey = cert, key
		}
	}
}

// systemCredential returns the path of a credential that systemd hands over, or "" where it does not.
func systemCredential(env func(string) string, name string) string {
	dir := firstDir(env, "CREDENTIALS_DIRECTORY")
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// defaultWatch returns a watch with everything but its path.
func defaultWatch(name string) *Watch {
	return &Watch{
		Name:        name,
		Recursive:   true,
		Parent:      ParentDirectory,
		SidecarWait: Duration(10 * time.Minute),
		Settle:      Duration(2 * time.Second),
		Events:      EventsAuto,
		Adopt:       AdoptMove,
		Repeated:    RepeatedSend,
	}
}

// firstDir returns the first directory of a variable that systemd may fill with several, separated by colons.
func firstDir(env func(string) string, name string) string {
	if env == nil {
		return ""
	}
	first, _, _ := strings.Cut(env(name), ":")
	return first
}
