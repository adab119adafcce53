package rig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// Registered returns every attachment that the server has registered, by its ID. It asks the server directly, past the
// link.
func (r *Rig) Registered(ctx context.Context) (map[string]wire.Attachment, error) {
	all := map[string]wire.Attachment{}
	cursor := ""
	for {
		var page wire.AttachmentList
		err := r.get(ctx, "/v1/attachments?after="+cursor, func(body io.Reader) error { return json.NewDecoder(body).Decode(&page) })
		if err != nil {
			return nil, err
		}
		for _, a := range page.Attachments {
			if _, twice := all[a.AttachmentID]; twice {
				return nil, fmt.Errorf("the server lists %s twice", a.AttachmentID)
			}
			all[a.AttachmentID] = a
		}
		if cursor = page.Next; cursor == "" {
			return all, nil
		}
	}
}

// ContentDigest downloads what the server stored for an attachment and returns its SHA-256 in hex.
func (r *Rig) ContentDigest(ctx context.Context, id string) (string, error) {
	h := sha256.New()
	err := r.get(ctx, "/v1/attachments/"+id+"/content", func(body io.Reader) error {
		_, err := io.Copy(h, body)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// NewToken has the server make a token of the default account for a device, and writes it, whole or not at all, to path. With
// a time it expires then.
func (r *Rig) NewToken(ctx context.Context, device, path string, expires time.Time) error {
	args := []string{"token", "create", "--data", r.Path("server"), "--account", "default", "--device", device}
	if !expires.IsZero() {
		args = append(args, "--expires", expires.UTC().Format(time.RFC3339))
	}
	cmd := exec.CommandContext(ctx, filepath.Join(r.Bin, "fieldgw-server"), args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	token, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("make a token: %w: %s", err, errOut.String())
	}
	if err := os.WriteFile(path+".new", token, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ServerURL is the server's own address, past the link.
func (r *Rig) ServerURL() string { return "https://" + r.serverAddr }

func (r *Rig) get(ctx context.Context, path string, read func(io.Reader) error) (err error) {
	client, token, err := r.serverClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.ServerURL()+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return read(resp.Body)
}

func (r *Rig) serverClient() (*http.Client, string, error) {
	pem, err := os.ReadFile(r.Path("server", "tls", "cert.pem"))
	if err != nil {
		return nil, "", err
	}
	token, err := os.ReadFile(r.Path("server", "device.token"))
	if err != nil {
		return nil, "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	return client, strings.TrimSpace(string(token)), nil
}
