package remote

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// listen lets hear know of interim answers to a request that is sent with the returned context, until the returned function
// is called: the transport may read on after it gave up on a request. It also lifts the transport's limit on the size of
// all of them together, which stays for each one.
func listen(ctx context.Context, hear func(http.Header)) (context.Context, func()) {
	if hear == nil {
		return ctx, func() {}
	}
	var mu sync.Mutex
	ended := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
			header := http.Header(h)
			version, ok := wire.ParseInteger(header.Values(wire.HeaderInteropVersion))
			if status != wire.StatusResumption || !ok || version != wire.InteropVersion {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if !ended {
				hear(header)
			}
			return nil
		},
	})
	return ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}
