package link

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Default routes are found in the kernel's tables as it writes them (proc(5)); others and half lines are none.
func TestDefaults(t *testing.T) {
	four := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n" +
		"wlan0\t0001A8C0\t00000000\t0001\t0\t0\t600\t00FFFFFF\t0\t0\t0\nwlan0\t00000000\n"
	if got := defaults4([]byte(four)); !slices.Equal(got, []string{"wlan0 0101A8C0 600"}) {
		t.Errorf("IPv4: %q", got)
	}
	zero := "00000000000000000000000000000000"
	gateway := "fe800000000000000000000000000001"
	six := zero + " 00 " + zero + " 00 " + gateway + " 00000400 00000001 00000000 00000003 wwan0\n" +
		zero + " 00 " + zero + " 00 " + zero + " ffffffff 00000001 00000000 00200200       lo\n" +
		"fe80" + zero[4:] + " 40 " + zero + " 00 " + zero + " 00000100 00000001 00000000 00000001 wwan0\n"
	if got := defaults6([]byte(six)); !slices.Equal(got, []string{"wwan0 " + gateway + " 00000400"}) {
		t.Errorf("IPv6: %q", got)
	}
}

// No table of routes, whatever it holds, breaks its reading.
func FuzzRoutes(f *testing.F) {
	f.Add([]byte("wlan0 00000000 0101A8C0 0003 0 0 600 00000000 0 0 0\n"))
	f.Fuzz(func(t *testing.T, table []byte) {
		for _, r := range append(defaults4(table), defaults6(table)...) {
			if r == "" {
				t.Error("an empty route")
			}
		}
	})
}

// ownNetwork is set in the process that has a network namespace to itself.
const ownNetwork = "FIELDGW_TEST_OWN_NETWORK"

// inOwnNetwork runs this test again where nobody else changes addresses.
func inOwnNetwork(t *testing.T) {
	if err := exec.Command("unshare", "-n", "true").Run(); err != nil {
		t.Skipf("not run: no network namespace can be made here (root, unshare): %v", err)
	}
	cmd := exec.Command("unshare", "-n", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownNetwork+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("not run: in a namespace of its own: %s", out)
	}
}

// A real address that comes and goes is told of, each time once the kernel is silent; one that is only renewed is not.
func TestWatch(t *testing.T) {
	if os.Getenv(ownNetwork) == "" {
		inOwnNetwork(t)
		return
	}
	ip := func(args ...string) error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	const dev = "fgwlink0"
	if err := ip("link", "add", dev, "type", "dummy"); err != nil {
		if err = ip("link", "add", dev, "type", "veth", "peer", "name", "fgwlink1"); err != nil {
			t.Skipf("not run: no interface can be made here: %v", err)
		}
	}
	t.Cleanup(func() {
		if err := ip("link", "del", dev); err != nil {
			t.Error(err)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	told, done := make(chan bool, 16), make(chan struct{})
	go func() {
		defer close(done)
		Watch(ctx, slog.New(slog.DiscardHandler), func(up bool) { told <- up })
	}()
	for _, step := range [][]string{
		{"addr", "add", "192.0.2.77/24", "dev", dev}, {"link", "set", dev, "up"}, {"addr", "change", "192.0.2.77/24", "dev", dev, "preferred_lft", "500", "valid_lft", "1000"},
		{"addr", "del", "192.0.2.77/24", "dev", dev},
	} {
		before := now()
		if err := ip(step...); err != nil {
			t.Fatal(err)
		}
		if now().equal(before) {
			continue // nothing to tell: the address is not up yet, or was only renewed
		}
		select {
		case <-told:
		case <-time.After(30 * time.Second):
			t.Fatalf("not told of %v", step)
		}
	}
	stop()
	<-done
	if len(told) != 0 {
		t.Errorf("told %d times too often", len(told))
	}
}
