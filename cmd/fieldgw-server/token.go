package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/server/admin"
)

func newToken(c *common) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and revoke device tokens", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newTokenCreate(c), newTokenRevoke(c), newTokenList(c))
	return cmd
}

func newTokenCreate(c *common) *cobra.Command {
	var account, device, expires string
	cmd := &cobra.Command{
		Use: "create --account A --device D", Short: "Make a token and print its text, which is shown only now", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if account == "" || device == "" {
				return missing(account, device)
			}
			request := admin.TokenRequest{Account: account, Device: device}
			if expires != "" {
				at, err := time.Parse(time.RFC3339, expires)
				if err != nil {
					return usagef("--expires is a time such as 2027-01-31T00:00:00Z")
				}
				at = at.UTC()
				request.ExpiresAt = &at
			}
			return c.operate(cmd.Context(), cmd.CommandPath(), true, func(o admin.Operator) error {
				t, err := o.CreateToken(cmd.Context(), request)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.stdout, t.Text)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&account, "account", "", "account that the device belongs to: a-z, 0-9 and hyphen (required)")
	cmd.Flags().StringVar(&device, "device", "", "name of the device: a-z, 0-9 and hyphen (required)")
	cmd.Flags().StringVar(&expires, "expires", "", "time after which the token is refused (RFC 3339); never unless given")
	return cmd
}

// missing names what token create needs and was not given.
func missing(account, device string) error {
	what := "--device is missing: the name of the device that will send"
	switch {
	case account == "" && device == "":
		what = "--account and --device are missing: whose files, and the name of the device that will send"
	case account == "":
		what = "--account is missing: whose files the device sends"
	}
	return usagef("%s", what)
}

func newTokenRevoke(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End a token; its ID is shown by token list", Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.operate(cmd.Context(), cmd.CommandPath(), false, func(o admin.Operator) error {
				t, err := o.RevokeToken(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.stdout, "%s revoked: account %s, device %s\n", t.ID, t.Account, t.Device)
				return err
			})
		},
	}
}

func newTokenList(c *common) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List tokens, without their text", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.operate(cmd.Context(), cmd.CommandPath(), false, func(o admin.Operator) error {
				all, err := o.Tokens(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return c.printJSON(all)
				}
				rows := make([][]string, 0, len(all))
				for _, t := range all {
					rows = append(rows, []string{t.ID, t.Account, t.Device, day(&t.CreatedAt), day(t.ExpiresAt), day(t.RevokedAt)})
				}
				return c.printTable([]string{"ID", "ACCOUNT", "DEVICE", "CREATED", "EXPIRES", "REVOKED"}, rows)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// day shows a time in a table.
func day(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
