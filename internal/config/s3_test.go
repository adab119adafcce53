package config

import (
	"strings"
	"testing"
)

// A store is described strictly, and every problem is named with its key.
func TestS3(t *testing.T) {
	for text, want := range map[string]string{
		"bucket = \"evidence\"":                "",
		"":                                     "uplink.s3.bucket: the driver s3 needs a bucket",
		"bucket = \"Evidence\"":                "uplink.s3.bucket: no bucket is called",
		"bucket = \"a..b\"":                    "uplink.s3.bucket: no bucket is called",
		"bucket = \"a/b\"":                     "uplink.s3.bucket: no bucket is called",
		"bucket = \"evidence\"\nregion = \"\"": "uplink.s3.region: no region is called",
		"bucket = \"evidence\"\nkey = \"{filename}\"":           "uplink.s3.key: unusable template: without {id} or {sha256}",
		"bucket = \"evidence\"\nkey = \"{id}/{name}\"":          "uplink.s3.key: unusable template: {name} is unknown",
		"bucket = \"evidence\"\nkey = \"../{id}\"":              "uplink.s3.key: unusable template: an empty segment",
		"bucket = \"evidence\"\naddressing = \"subdomain\"":     "uplink.s3.addressing: want",
		"bucket = \"evidence\"\naccess_key_id = \"AKIASECRET\"": "uplink.s3.access_key_id: unknown key",
	} {
		_, err := Load(write(t, t.TempDir(), "f.toml", "[uplink]\ndriver = \"s3\"\n[uplink.s3]\n"+text), noEnv)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "AKIASECRET"):
			t.Errorf("%q: the error repeats a value: %v", text, err)
		}
	}
}

// Amazon wants the bucket in the host's name, where a certificate can cover it; elsewhere hosts rarely have names for buckets.
func TestVirtual(t *testing.T) {
	for _, c := range []struct {
		addressing Addressing
		endpoint   string
		bucket     string
		want       bool
	}{
		{AddressingAuto, "https://s3.eu-central-1.amazonaws.com", "evidence", true},
		{AddressingAuto, "https://s3.eu-central-1.amazonaws.com", "evidence.plant", false},
		{AddressingAuto, "https://store.example.com", "evidence", false},
		{AddressingVirtual, "https://store.example.com", "evidence", true},
		{AddressingPath, "https://s3.eu-central-1.amazonaws.com", "evidence", false},
	} {
		if got := (S3{Bucket: c.bucket, Addressing: c.addressing}).Virtual(c.endpoint); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
