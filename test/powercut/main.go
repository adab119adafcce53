// Command powercut cuts the power under the real programs and checks every promise afterwards. It needs root and loop
// devices.
//
// The volume under test is an ext4, xfs or btrfs image on a loop device, with the kernel's periodic writeback switched
// off. A cut is a SIGKILL followed at once by a copy of the image, without unmounting: the copy holds what was flushed and
// nothing else, as a disk does after a power cut. The kernel mounts the copy and replays its journal, the program starts
// on it and has to finish. Three volumes are cut: the device's own (state and capture directory on it, so that custody is
// taken by a move), a capture volume alone (custody is taken by a copy, the state survives), and the server's.
//
// Every cut has a seed, which fixes files, moment and pace; the schedule of the machine is not fixed, so a replay aims at
// the same moment and may meet another. A campaign begins by proving its own eyes: a file that was not synced must be
// missing in the copy, or empty, and one that was synced must be whole. Each cut carries such an unsynced file as well; a
// cut that kept it (somebody ran sync(1) meanwhile) proves nothing, is called weak and is not counted.
//
// What cuts cannot show: a kill waits for the fsync that is under way, so moments inside an fsync are rare, and the image
// takes writes in order.
//
// The crash-state explorer (-explore) shows those. It records a run of the device over a disk in user space that logs every
// write and flush, rebuilds from the log what a disk that reorders its cache may leave at any moment, and lets the kernel
// mount that and the daemon start on it. The same disk can lose one write with EIO (-eio).
//
// Read cut.go for one cut, verdict.go for what is checked, explore.go and eio.go for the disk in user space, volume.go for
// images and mounts, guard.go for what is changed on the machine and how it is put back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fieldgw/fieldgw/test/rig"
)

// errViolated is returned by a campaign in which a promise did not hold.
var errViolated = errors.New("promises were broken")

// options are the command line.
type options struct {
	cuts    int
	explore int
	eio     int
	seed    uint64
	systems []string
	roles   []string
	dir     string
	bin     string
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil && !guarded() {
		os.Exit(guard())
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "powercut:", err)
		os.Exit(1)
	}
}

func parse(args []string, usage io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("powercut", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.cuts, "cuts", 60, "number of power cuts")
	flags.Uint64Var(&o.seed, "seed", 0, "seed of the first cut, the next one has the next number; 0 takes one from the clock")
	flags.IntVar(&o.explore, "explore", 0, "instead of cuts: record a run on ext4 and check so many crash states of a disk that reorders")
	flags.IntVar(&o.eio, "eio", 0, "instead of cuts: so many runs on ext4 on a disk that answers one write of a captured file with EIO")
	systems := flags.String("fs", strings.Join(allSystems, ","), "file systems to cut")
	roles := flags.String("roles", strings.Join(allRoles, ","), "volumes to cut")
	flags.StringVar(&o.dir, "dir", "", "directory for images; empty: /dev/shm where it has room, else the temporary one")
	flags.StringVar(&o.bin, "bin", "", "directory of the built programs; empty: build them")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.systems, err = choose("-fs", *systems, allSystems); err == nil {
		o.roles, err = choose("-roles", *roles, allRoles)
	}
	switch {
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.cuts < 1 || o.explore < 0 || o.eio < 0:
		return o, errors.New("-cuts is at least 1, -explore and -eio are not negative")
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1e9
	}
	return o, nil
}

func choose(name, list string, known []string) ([]string, error) {
	chosen := strings.Split(list, ",")
	for _, c := range chosen {
		if !slices.Contains(known, c) {
			return nil, fmt.Errorf("%s: %q is none of %s", name, c, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// run prepares what all cuts share and makes the campaign.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	parent := o.dir
	if parent == "" {
		parent = scratch()
	}
	dir, err := os.MkdirTemp(parent, "fgwcut-")
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept { // what a violation left is evidence
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if o.bin == "" {
		o.bin = filepath.Join(dir, "bin")
		if err := rig.Build(ctx, o.bin); err != nil {
			return err
		}
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	if o.explore > 0 || o.eio > 0 {
		o.systems = []string{ext4}
	}
	pristine := map[string]string{}
	for _, system := range o.systems {
		if pristine[system], err = prove(ctx, dir, system, out); err != nil {
			return err
		}
	}
	if o.explore > 0 {
		kept, err = explore(ctx, o, dir, pristine[ext4], out)
		return err
	}
	if o.eio > 0 {
		kept, err = refusals(ctx, o, dir, pristine[ext4], out)
		return err
	}
	c := campaign{options: o, dir: dir, pristine: pristine, out: out}
	err = c.run(ctx)
	kept = c.kept
	return err
}

// memoryRoom is the free space that makes a memory file system good enough for images, in bytes.
const memoryRoom = 2 << 30

// scratch prefers memory: what is measured is what reached the image, not what became of it there, and a disk's own
// flushes would only cost time.
func scratch() string {
	const shm = "/dev/shm"
	var s syscall.Statfs_t
	if err := syscall.Statfs(shm, &s); err == nil && int64(s.Bavail)*s.Bsize >= memoryRoom {
		return shm
	}
	return os.TempDir()
}
