package config

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/fieldgw/fieldgw/internal/placement"
)

// DriverS3 writes to a store that speaks the API of Amazon S3.
const DriverS3 Driver = "s3"

// S3 is the table [uplink.s3], for the driver of that name.
type S3 struct {
	Bucket     string     `toml:"bucket"`
	Region     string     `toml:"region"` // what requests are signed for
	Key        string     `toml:"key"`    // the objects' names, a template of package placement
	Addressing Addressing `toml:"addressing"`
}

// Addressing says how a bucket is named in requests.
type Addressing string

// The ways (Amazon S3 User Guide, "Virtual hosting of buckets").
const (
	AddressingAuto    Addressing = "auto"    // by the host at Amazon, by the path elsewhere
	AddressingPath    Addressing = "path"    // https://HOST/BUCKET/KEY
	AddressingVirtual Addressing = "virtual" // https://BUCKET.HOST/KEY
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Addressing) UnmarshalText(text []byte) error {
	return setWord(a, text, AddressingAuto, AddressingPath, AddressingVirtual)
}

func defaultS3() S3 {
	return S3{Region: "us-east-1", Key: placement.DefaultKey, Addressing: AddressingAuto}
}

// Virtual reports whether the host names the bucket. No certificate covers one with a dot.
func (s S3) Virtual(endpoint string) bool {
	if s.Addressing != AddressingAuto {
		return s.Addressing == AddressingVirtual
	}
	u, err := url.Parse(endpoint)
	return err == nil && strings.HasSuffix(strings.ToLower(u.Hostname()), ".amazonaws.com") && !strings.Contains(s.Bucket, ".")
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9-]{0,62}$`)
)

func (l *loader) validateS3(u Uplink, device string) {
	s := u.S3
	if l.sound("uplink.s3.bucket", "uplink.driver") {
		switch {
		case s.Bucket == "" && u.Driver == DriverS3:
			l.problemAt("uplink.s3.bucket", "the driver s3 needs a bucket", `bucket = "…"`)
		case s.Bucket != "" && (!bucketName.MatchString(s.Bucket) || strings.Contains(s.Bucket, "..")):
			l.problemAt("uplink.s3.bucket", "no bucket is called "+quote(s.Bucket), "3 to 63 of a-z, 0-9, hyphen and dot")
		}
	}
	if l.sound("uplink.s3.region") && !regionName.MatchString(s.Region) {
		l.problemAt("uplink.s3.region", "no region is called "+quote(s.Region), `such as "eu-central-1"; most stores but Amazon's take any`)
	}
	if l.sound("uplink.s3.key", "uplink.account", "device.id") {
		if _, err := placement.ParseKey(s.Key, u.Account, device); err != nil {
			l.problemAt("uplink.s3.key", err.Error(), "such as "+quote(placement.DefaultKey))
		}
	}
}
