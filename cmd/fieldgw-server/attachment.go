package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/bootstrap"
	"github.com/fieldgw/fieldgw/internal/server/store"
)

func newAttachment(c *common) *cobra.Command {
	cmd := &cobra.Command{Use: "attachment", Short: "Look at received attachments", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newAttachmentList(c), newAttachmentShow(c), newAttachmentVerify(c))
	return cmd
}

func newAttachmentList(c *common) *cobra.Command {
	var asJSON bool
	var account string
	cmd := &cobra.Command{
		Use: "list", Short: "List attachments, complete or not", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.operate(cmd.Context(), cmd.CommandPath(), false, func(o admin.Operator) error {
				all, err := everyAttachment(cmd.Context(), o, account)
				if err != nil {
					return err
				}
				if asJSON {
					return c.printJSON(all)
				}
				rows := make([][]string, 0, len(all))
				for _, a := range all {
					rows = append(rows, []string{
						a.Account, a.ID, string(a.State), strconv.FormatInt(a.Facts.Length, 10), a.Facts.Parent.LocalID, a.Facts.Filename,
					})
				}
				return c.printTable([]string{"ACCOUNT", "ATTACHMENT", "STATE", "BYTES", "PARENT", "FILE"}, rows)
			})
		},
	}
	cmd.Flags().StringVar(&account, "account", "", "only those of this account")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// everyAttachment asks for page after page.
func everyAttachment(ctx context.Context, o admin.Operator, account string) ([]store.Attachment, error) {
	all := []store.Attachment{}
	q := admin.Query{Account: account}
	for {
		page, err := o.Attachments(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < admin.PageSize {
			return all, nil
		}
		last := page[len(page)-1]
		q.After, q.AfterID = last.Account, last.ID
	}
}

func newAttachmentShow(c *common) *cobra.Command {
	var account string
	cmd := &cobra.Command{
		Use: "show ID", Short: "Print everything known of one attachment, as JSON", Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.operate(cmd.Context(), cmd.CommandPath(), false, func(o admin.Operator) error {
				a, err := o.Attachment(cmd.Context(), account, args[0])
				if err != nil {
					return err
				}
				return c.printJSON(a)
			})
		},
	}
	cmd.Flags().StringVar(&account, "account", bootstrap.Account, "account of the attachment")
	return cmd
}

func newAttachmentVerify(c *common) *cobra.Command {
	var account string
	cmd := &cobra.Command{
		Use: "verify ID", Short: "Read the stored content back and compare it with its record", Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.operate(cmd.Context(), cmd.CommandPath(), false, func(o admin.Operator) error {
				found, err := o.VerifyAttachment(cmd.Context(), account, args[0])
				if err != nil {
					return err
				}
				if err := c.printJSON(found); err != nil {
					return err
				}
				if !found.Sound {
					return fmt.Errorf("verify %s: %w", args[0], errAttention)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&account, "account", bootstrap.Account, "account of the attachment")
	return cmd
}
