package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/control/client"
)

// versions is the answer of version, as JSON.
type versions struct {
	Schema string `json:"schema"`
	CLI    string `json:"fieldgwctl"`
	// Daemon is absent when no daemon answers.
	Daemon string `json:"fieldgwd,omitempty"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the daemon",
		RunE:  a.run(func(ctx context.Context, _ []string) error { return a.version(ctx) }),
	}
}

// version answers without a daemon too: what is installed does not depend on what runs.
func (a *app) version(ctx context.Context) error {
	v := versions{Schema: "fieldgw.version/v1", CLI: buildinfo.String()}
	daemon := "not running"
	st, err := a.daemon.Status(ctx)
	switch {
	case err == nil:
		v.Daemon = st.Version
		daemon = text(st.Version)
	case errors.Is(err, client.ErrNotPermitted):
		daemon = "not known: no permission for " + attachment.Printable(a.socket)
	case !errors.Is(err, client.ErrNotRunning):
		return err
	}
	if a.structured() {
		return a.print(v)
	}
	_, err = fmt.Fprintf(a.env.Stdout, "fieldgwctl  %s\nfieldgwd    %s\n", text(v.CLI), daemon)
	return err
}
