package server

import (
	"context"
	"errors"

	"github.com/fieldgw/fieldgw/internal/server/admin"
)

// Operate calls do with an operator of the data directory: the server that runs on it, or, where none runs, its records
// themselves, locked meanwhile in the name of program. Errors: internal/store.ErrLocked while a server starts or stops.
func Operate(ctx context.Context, opts Options, program string, do func(admin.Operator) error) (err error) {
	client, err := admin.Dial(ctx, opts.Dir)
	if err == nil {
		return do(client)
	}
	if !errors.Is(err, admin.ErrNotRunning) {
		return err
	}
	s, err := open(opts, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return do(s.admin)
}
