package uplink

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// OffsetIn reads the offset of an answer of tus: decimal digits that fit, and nothing else.
func OffsetIn(resp *remote.Response) (int64, error) {
	text := resp.Header.Get(wire.HeaderUploadOffset)
	if strings.Trim(text, "0123456789") == "" {
		if at, err := strconv.ParseInt(text, 10, 64); err == nil {
			return at, nil
		}
	}
	return 0, resp.Mismatch(fmt.Errorf("%w: %s is %.40q", ErrAnswer, wire.HeaderUploadOffset, text))
}
