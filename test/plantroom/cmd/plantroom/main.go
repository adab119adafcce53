// Command plantroom writes the plant-room fixture into a directory and prints one line per file in
// the format of sha256sum(1), so that "sha256sum -c" run in that directory checks it. It owns the
// command line only; read package plantroom for what the files are and promise. Exit status: 0
// written, 1 not written, 2 wrong usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/fieldgw/fieldgw/test/plantroom"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("plantroom", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "directory to write to, created if need be (required)")
	seed := flags.Uint64("seed", 1, "seed: the same seed gives the same photographs")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if *dir == "" || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "plantroom: want -dir DIRECTORY and no further arguments")
		return 2
	}
	files, err := plantroom.Generate(*dir, *seed)
	if err != nil {
		fmt.Fprintf(stderr, "plantroom: %v\n", err)
		return 1
	}
	for _, f := range files {
		if _, err := fmt.Fprintf(stdout, "%s  %s\n", f.SHA256, f.Name); err != nil {
			fmt.Fprintf(stderr, "plantroom: print result: %v\n", err)
			return 1
		}
	}
	return 0
}
