package client

import (
	"context"

	"github.com/fieldgw/fieldgw/internal/control"
)

// Check has the daemon hold queue and spool against each other, and repair what can be repaired when asked to.
func (c *Client) Check(ctx context.Context, request control.CheckRequest) (control.CheckReport, error) {
	return post[control.CheckReport](ctx, c, "/v1/check", request)
}
