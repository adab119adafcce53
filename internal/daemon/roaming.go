package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/link"
	"github.com/fieldgw/fieldgw/internal/remote"
)

// followLink makes every client notice that this machine's addresses or routes changed.
func (s *session) followLink(ctx context.Context) error {
	if len(s.clients) == 0 {
		return nil
	}
	link.Watch(ctx, s.log, func(up bool) { s.linkChanged(ctx, up) })
	for _, c := range s.clients {
		c.CloseIdle()
	}
	return nil
}

// linkChanged leaves behind the connections that cannot get on, whose transfers go on at once over others. A wait for a link
// that was down ends early, after a random delay, so that a fleet that came online together does not arrive together.
func (s *session) linkChanged(ctx context.Context, up bool) {
	d, ended := s.dispatcher, 0
	for _, c := range s.clients {
		ended += c.LinkChanged()
	}
	s.log.InfoContext(ctx, "the link changed", slog.Bool("up", up), slog.Int("connections_ended", ended))
	state := d.channel.State()
	if up && state.Class == remote.ChannelTransient && time.Until(state.NotBefore) > remote.OnlineSpread {
		d.channel.Reset(remote.OnlineSpread)
	}
	d.poke()
}
