package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server"
	"github.com/fieldgw/fieldgw/internal/server/admin"
)

// common is what every command has.
type common struct {
	stdout, stderr io.Writer
	data           string
	level          slog.Level
	format         string
}

func (c *common) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&c.data, "data", "./fieldgw-server-data", "data directory")
	flags.TextVar(&c.level, "log-level", slog.LevelInfo, "least severity that is logged: debug, info, warn or error")
	flags.StringVar(&c.format, "log-format", string(logging.FormatAuto), "auto, text, json or journal")
}

func (c *common) logger() (*slog.Logger, error) {
	options := logging.Options{Level: c.level, Format: logging.Format(c.format), Writer: c.stderr}
	switch options.Format {
	case logging.FormatAuto, logging.FormatText, logging.FormatJSON, logging.FormatJournal:
	default:
		return nil, fmt.Errorf("%w: --log-format is auto, text, json or journal, not %q", errUsage, c.format)
	}
	log, _ := logging.New(options)
	return log, nil
}

// operate does an operator's command through the running server or on its directory, which must exist unless make is set.
func (c *common) operate(ctx context.Context, program string, make bool, do func(admin.Operator) error) error {
	log, err := c.logger()
	if err != nil {
		return err
	}
	if _, err := os.Stat(c.data); err != nil && !make {
		return fmt.Errorf("look at data directory: %w", err)
	}
	return server.Operate(ctx, server.Options{Dir: c.data, Logger: log}, program, do)
}

// printJSON writes one answer as indented JSON.
func (c *common) printJSON(answer any) error {
	enc := json.NewEncoder(c.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(answer)
}

// printTable writes rows in columns. What devices named may hold anything, so that whatever does not print is replaced.
func (c *common) printTable(head []string, rows [][]string) error {
	w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			end := "\t"
			if i == len(row)-1 {
				end = "\n"
			}
			if _, err := fmt.Fprint(w, strings.Map(printable, cell), end); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}
