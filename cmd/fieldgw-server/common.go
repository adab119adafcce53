package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
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
	level          level
	format         string
}

func (c *common) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&c.data, "data", "./fieldgw-server-data", "data directory")
	flags.Var(&c.level, "log-level", "least severity that is logged: "+strings.Join(levels, ", "))
	flags.StringVar(&c.format, "log-format", string(logging.FormatAuto), "auto, text, json or journal")
}

// level is --log-level: slog's severity under its word in lower case.
type level string

var levels = []string{"debug", "info", "warn", "error"}

// String implements pflag.Value.
func (l *level) String() string { return string(*l) }

// Set implements pflag.Value.
func (l *level) Set(text string) error {
	if !slices.Contains(levels, text) {
		return fmt.Errorf("want %s", strings.Join(levels, ", "))
	}
	*l = level(text)
	return nil
}

// Type implements pflag.Value.
func (l *level) Type() string { return "level" }

func (l level) severity() slog.Level {
	return map[level]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError}[l]
}

func (c *common) logger() (*slog.Logger, error) {
	options := logging.Options{Level: c.level.severity(), Format: logging.Format(c.format), Writer: c.stderr}
	switch options.Format {
	case logging.FormatAuto, logging.FormatText, logging.FormatJSON, logging.FormatJournal:
	default:
		return nil, usagef("--log-format is auto, text, json or journal, not %q", c.format)
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
