package wire

import (
	"slices"

	"github.com/dunglas/httpsfv"
)

// UploadLimit is what a server of the IETF dialect takes. A limit of 0 is none, but for the smallest sizes, which are 0 then.
type UploadLimit struct {
	MaxSize, MinSize     int64 // of a file, in bytes
	MaxAppend, MinAppend int64 // of one append but for the last, in bytes
	MaxAge               int64 // how long the upload will live, in seconds
}

// ParseUploadLimit reads Upload-Limit. Members that are not known are passed over; ok is false for a header that is missing
// or malformed, which the dialect has everybody take for missing.
func ParseUploadLimit(values []string) (limit UploadLimit, ok bool) {
	dict, err := httpsfv.UnmarshalDictionary(values)
	if err != nil || len(values) == 0 {
		return UploadLimit{}, false
	}
	known := map[string]*int64{
		"max-size": &limit.MaxSize, "min-size": &limit.MinSize, "max-append-size": &limit.MaxAppend,
		"min-append-size": &limit.MinAppend, "max-age": &limit.MaxAge,
	}
	for _, key := range slices.Sorted(slices.Values(dict.Names())) {
		to := known[key]
		if to == nil {
			continue
		}
		member, _ := dict.Get(key)
		item, isItem := member.(httpsfv.Item)
		n, isInteger := item.Value.(int64)
		if !isItem || !isInteger || n < 0 {
			return UploadLimit{}, false
		}
		*to = n
	}
	return limit, true
}
