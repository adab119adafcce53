package s3

import "github.com/fieldgw/fieldgw/internal/attachment"

// SetFloor lets parts be as small as a store of the tests takes them.
func (d *Driver) SetFloor(n int64) { d.floor = n }

// AddressOf is for fuzzing.
func AddressOf(id, url string) (bucket, key string, part int64, again string, err error) {
	at, err := addressOf(sessionOf(id, url))
	return at.bucket, at.key, at.part, at.session(id).URL, err
}

// Escaped, Problem and PartSize are for tests.
var (
	Escaped  = escaped
	Problem  = problem
	PartSize = partSize
)

func sessionOf(id, url string) attachment.Session { return attachment.Session{ID: id, URL: url} }
