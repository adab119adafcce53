package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

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
						a.Account, a.ID, string(a.State), length(a), a.Facts.Parent.LocalID, a.Facts.Filename,
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

// length is the attachment's number of bytes, if anybody knows it yet.
func length(a store.Attachment) string {
	if a.Facts.Length == store.UnknownLength {
		return "-"
	}
	return strconv.FormatInt(a.Facts.Length, 10)
}

// everyAttachment asks for page after page.
func everyAttachment(ctx context.Context, o admin.Operator, account string) ([]store.Attachment, error) {
	all := []store.Attachment{}
	err := eachPage(ctx, o, account, func(page []store.Attachment) { all = append(all, page...) })
	return all, err
}

func eachPage(ctx context.Context, o admin.Operator, account string, visit func([]store.Attachment)) error {
	q := admin.Query{Account: account}
	for {
		page, err := o.Attachments(ctx, q)
		if err != nil {
			return err
		}
		visit(page)
		if len(page) < admin.PageSize {
			return nil
		}
		last := page[len(page)-1]
		q.After, q.AfterID = last.Account, last.ID
	}
}

const (
	// idLength is the length of a whole ID, minReference the least number of characters of a shortened one.
	idLength     = 36
	minReference = 4
	// maxCandidates is how many IDs are named when a shortened one fits several.
	maxCandidates = 10
)

// resolve turns an ID as fieldgwctl takes it, whole or its beginning or end, into the whole one.
func resolve(ctx context.Context, o admin.Operator, account, ref string) (string, error) {
	ref = strings.ToLower(ref)
	if len(ref) >= idLength {
		return ref, nil // that there is none by this ID is for the caller to find
	}
	if len(ref) < minReference {
		return "", usagef("%q is too short for an ID, give at least %d characters", ref, minReference)
	}
	var found []string
	err := eachPage(ctx, o, account, func(page []store.Attachment) {
		for _, a := range page {
			if len(found) <= maxCandidates && (strings.HasPrefix(a.ID, ref) || strings.HasSuffix(a.ID, ref)) {
				found = append(found, a.ID)
			}
		}
	})
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fmt.Errorf("%q of account %s: %w", ref, account, store.ErrNotFound)
	case len(found) == 1:
		return found[0], nil
	case len(found) > maxCandidates:
		found = append(found[:maxCandidates], "…")
	}
	return "", usagef("%q fits several attachments: %s", ref, strings.Join(found, ", "))
}

func newAttachmentShow(c *common) *cobra.Command {
	var account string
	cmd := &cobra.Command{
		Use: "show ID", Short: "Print everything known of one attachment, as JSON", Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.operate(cmd.Context(), cmd.CommandPath(), false, func(o admin.Operator) error {
				id, err := resolve(cmd.Context(), o, account, args[0])
				if err != nil {
					return err
				}
				a, err := o.Attachment(cmd.Context(), account, id)
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
				id, err := resolve(cmd.Context(), o, account, args[0])
				if err != nil {
					return err
				}
				found, err := o.VerifyAttachment(cmd.Context(), account, id)
				if err != nil {
					return err
				}
				if err := c.printJSON(found); err != nil {
					return err
				}
				if !found.Sound {
					return fmt.Errorf("verify %s: %w", id, errAttention)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&account, "account", bootstrap.Account, "account of the attachment")
	return cmd
}
