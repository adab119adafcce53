package config

import (
	"github.com/fieldgw/fieldgw/internal/placement"
)

// DriverHTTP sends whole files to a web server.
const DriverHTTP Driver = "http"

// HTTP is the table [uplink.http], for the driver of that name.
type HTTP struct {
	Method HTTPMethod `toml:"method"`
	Path   string     `toml:"path"` // with PUT: where a file goes below the endpoint, a template of package placement
}

// HTTPMethod is how a whole file is sent.
type HTTPMethod string

// The methods.
const (
	HTTPPut  HTTPMethod = "PUT"  // to an address of its own, from which it can be read back
	HTTPPost HTTPMethod = "POST" // to the endpoint itself
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *HTTPMethod) UnmarshalText(text []byte) error { return setWord(m, text, HTTPPut, HTTPPost) }

func defaultHTTP() HTTP { return HTTP{Method: HTTPPut, Path: placement.Default} }

// validateForeign checks what is set for servers that are not fieldgw-server.
func (l *loader) validateForeign(u Uplink) {
	l.checkEndpoint("uplink.webhook", u.Webhook)
	l.checkPath("uplink.webhook_credential", u.WebhookCredential)
	if u.Webhook != "" && u.Driver == DriverFieldgw && l.sound("uplink.webhook", "uplink.driver") {
		l.problemAt("uplink.webhook", "fieldgw-server registers by itself", "a webhook is for every other driver")
	}
	if u.WebhookCredential != "" && u.Webhook == "" && l.sound("uplink.webhook", "uplink.webhook_credential") {
		l.problemAt("uplink.webhook_credential", "there is no webhook to use it with", "set webhook too")
	}
	l.checkPlacement("uplink.http.path", u.HTTP.Path)
}

// checkPlacement demands a template that gives every file a name of its own.
func (l *loader) checkPlacement(key, text string) {
	if !l.sound(key) {
		return
	}
	if _, err := placement.Parse(text); err != nil {
		l.problemAt(key, err.Error(), "such as "+quote(placement.Default))
	}
}
