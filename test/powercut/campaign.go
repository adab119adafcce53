package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// campaign is many cuts and their sums.
type campaign struct {
	options
	dir      string
	pristine map[string]string
	out      io.Writer
	results  []result
	weak     int
	kept     bool
}

// run makes cuts until enough of them count. It returns errViolated when a promise was broken; other errors mean that
// the campaign could not be made.
func (c *campaign) run(ctx context.Context) error {
	began := time.Now()
	for n := 0; len(c.results) < c.cuts; n++ {
		if c.weak > c.cuts {
			return fmt.Errorf("%d weak cuts: something on this machine keeps writing everything back, perhaps sync(1)", c.weak)
		}
		fs := c.systems[n%len(c.systems)]
		role := c.roles[n/len(c.systems)%len(c.roles)]
		res, err := c.one(ctx, newPlan(fs, role, c.seed+uint64(n)))
		if ctx.Err() != nil {
			if len(c.results) > 0 {
				c.table(time.Since(began))
			}
			return errors.Join(fmt.Errorf("after %d cuts: %w", len(c.results), context.Cause(ctx)), err)
		}
		if err != nil {
			return err
		}
		c.line(res)
		if res.weak && len(res.broken) == 0 {
			c.weak++
			continue
		}
		c.results = append(c.results, res)
	}
	violated := c.table(time.Since(began))
	if violated > 0 {
		return fmt.Errorf("%w by %d of %d cuts", errViolated, violated, len(c.results))
	}
	return nil
}

// one makes one cut in a directory of its own, which stays when a promise was broken or the cut could not be judged.
func (c *campaign) one(ctx context.Context, p plan) (result, error) {
	u := &cut{plan: p, dir: filepath.Join(c.dir, fmt.Sprint(p.seed))}
	if err := os.Mkdir(u.dir, 0o755); err != nil {
		return result{}, err
	}
	res, err := u.run(ctx, c.bin, c.pristine[p.fs])
	if len(res.broken) > 0 || err != nil && ctx.Err() == nil {
		c.kept = true
		fmt.Fprintf(c.out, "  kept: %s\n  again: %s\n", u.dir, p.replay())
	} else if rerr := os.RemoveAll(u.dir); rerr != nil {
		err = errors.Join(err, rerr)
	}
	if err != nil {
		err = fmt.Errorf("seed %d, %s, %s: %w", p.seed, p.fs, p.role, err)
	}
	return res, err
}

// line prints one cut.
func (c *campaign) line(r result) {
	verdict := "ok"
	if r.weak {
		verdict = "weak"
	}
	if len(r.broken) > 0 {
		verdict = "BROKEN"
	}
	var met []string
	for _, p := range phases {
		if n := r.counts[p]; n > 0 {
			met = append(met, fmt.Sprintf("%d %s", n, p))
		}
	}
	fmt.Fprintf(c.out, "seed %-10d %-5s %-7s %-11s %-6s recovery %4d ms, again %6d B, took %4d ms  (%s)\n", r.seed, r.fs, r.role, r.phase, verdict,
		r.recovery.Milliseconds(), r.resent, r.took.Milliseconds(), strings.Join(met, ", "))
	if len(r.broken) > 0 {
		fmt.Fprintln(c.out, "    "+texts(r.broken))
	}
}

// group is a row of the table.
type group struct {
	fs, role string
	phase    phase
}

// table prints the sums and returns how many cuts broke a promise.
func (c *campaign) table(took time.Duration) (violated int) {
	groups := map[group][]result{}
	for _, r := range c.results {
		g := group{r.fs, r.role, r.phase}
		groups[g] = append(groups[g], r)
		if len(r.broken) > 0 {
			violated++
		}
	}
	keys := make([]group, 0, len(groups))
	for g := range groups {
		keys = append(keys, g)
	}
	slices.SortFunc(keys, func(a, b group) int {
		return cmp.Or(slices.Index(allSystems, a.fs)-slices.Index(allSystems, b.fs), slices.Index(allRoles, a.role)-slices.Index(allRoles, b.role),
			slices.Index(phases, a.phase)-slices.Index(phases, b.phase))
	})
	fmt.Fprintf(c.out, "\n%d power cuts in %s, %d weak ones not counted; chunk %d KiB, %d files of %d KiB together\n\n", len(c.results),
		took.Round(time.Second), c.weak, chunk/kib, len(sizes), total()/kib)
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	head := []string{"fs", "volume", "phase", "cuts"}
	head = append(head, kinds...)
	head = append(head, "again p50", "again max", "recovery p50", "recovery max")
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, g := range keys {
		row(w, []string{g.fs, g.role, string(g.phase)}, groups[g])
	}
	row(w, []string{"all", "", ""}, c.results)
	_ = w.Flush() // the writer below is the terminal's
	fmt.Fprintln(c.out)
	return violated
}

func total() (n int) {
	for _, s := range sizes {
		n += s
	}
	return n
}

func row(w io.Writer, cells []string, of []result) {
	cells = append(cells, fmt.Sprint(len(of)))
	for _, kind := range kinds {
		n := 0
		for _, r := range of {
			if slices.ContainsFunc(r.broken, func(v violation) bool { return v.kind == kind }) {
				n++
			}
		}
		cells = append(cells, fmt.Sprint(n))
	}
	var again []int64
	var recovery []time.Duration
	for _, r := range of {
		again, recovery = append(again, r.resent), append(recovery, r.recovery)
	}
	slices.Sort(again)
	slices.Sort(recovery)
	n := len(of)
	cells = append(cells, fmt.Sprintf("%d B", again[n/2]), fmt.Sprintf("%d B", again[n-1]),
		fmt.Sprintf("%d ms", recovery[n/2].Milliseconds()), fmt.Sprintf("%d ms", recovery[n-1].Milliseconds()))
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}
