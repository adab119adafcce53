package transport

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/wire"
	"github.com/fieldgw/fieldgw/test/rig"
)

// A device without a token is known by its certificate. One that expired and one of another authority hold sending, each
// with its own reason and at nobody's expense; a new one is used without a restart.
func TestDeviceCertificate(t *testing.T) {
	dir := shortDir(t)
	cert, key, authorities := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "authorities.pem")
	install := func(uri string, until time.Time) []byte {
		_, certificate, private := selfSigned(t, uri, until)
		for path, content := range map[string][]byte{key: private, cert: certificate} {
			must(t, "write", os.WriteFile(path+".new", content, 0o600))
			must(t, "replace", os.Rename(path+".new", path))
		}
		return certificate
	}
	uri, tomorrow := wire.IdentityURI("default", "tablet-7"), time.Now().Add(24*time.Hour)
	second := install(uri, tomorrow) // is its own authority, as are the others
	secondKey, err := os.ReadFile(key)
	must(t, "read key", err)
	first := install(uri, tomorrow)
	must(t, "write authorities", os.WriteFile(authorities, append(first, second...), 0o644))
	s := newScene(t, rig.Options{
		Dir: dir, ServerArgs: []string{"--client-ca", authorities}, Uplink: fmt.Sprintf("client_cert = %q\nclient_key = %q", cert, key),
	})
	must(t, "make conf.d", os.Mkdir(s.Path("device", "conf.d"), 0o755))
	must(t, "take the token away", os.WriteFile(s.Path("device", "conf.d", "no-token.toml"), []byte("uplink.credential = \"\"\n"), 0o644))
	must(t, "start", s.StartDaemon(t.Context()))
	s.drop("a.jpg", 300<<10)
	s.delivered("a.jpg")
	if status := s.status(); status.Account != "default" || status.Device != "tablet-7" {
		t.Errorf("account %s, device %s", status.Account, status.Device)
	}

	install(uri, tomorrow) // of an authority that the server does not know
	s.drop("b.jpg", 300<<10)
	s.held(attachment.HoldCredentials)
	install(uri, time.Now().Add(-time.Hour))
	s.held(attachment.HoldCertificate)
	if status := s.status(); !status.NeedsAttention() {
		t.Error("nobody is told that a person is needed")
	}
	must(t, "write key", os.WriteFile(key, secondKey, 0o600))
	must(t, "write certificate", os.WriteFile(cert, second, 0o600))
	s.delivered("b.jpg")
	s.uncharged("b.jpg", 1)
}
