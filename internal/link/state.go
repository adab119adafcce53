package link

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"slices"
	"strings"
)

// state is what decides by which way packets leave.
type state struct {
	addrs  []string // with their interface; those of this machine itself and of one link left out
	routes []string // that lead to everywhere, one a line as the kernel lists them
}

func (s state) equal(o state) bool {
	return slices.Equal(s.addrs, o.addrs) && slices.Equal(s.routes, o.routes)
}

// up reports whether packets can leave.
func (s state) up() bool { return len(s.addrs) > 0 }

// now reads the state. What cannot be read counts as empty: it reads alike the next time.
func now() state {
	var s state
	interfaces, err := net.Interfaces()
	if err != nil {
		interfaces = nil
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range addrs {
			if p, ok := a.(*net.IPNet); ok && p.IP.IsGlobalUnicast() {
				s.addrs = append(s.addrs, i.Name+" "+p.String())
			}
		}
	}
	s.routes = append(defaults4(read("/proc/self/net/route")), defaults6(read("/proc/self/net/ipv6_route"))...)
	slices.Sort(s.addrs)
	slices.Sort(s.routes)
	return s
}

func read(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}

// defaults4 finds the default routes of IPv4: interface, gateway and metric of those with destination and mask 0.
func defaults4(table []byte) (routes []string) {
	for fields := range lines(table) {
		if len(fields) >= 8 && fields[1] == "00000000" && fields[7] == "00000000" {
			routes = append(routes, strings.Join([]string{fields[0], fields[2], fields[6]}, " "))
		}
	}
	return routes
}

// defaults6 finds those of IPv6: destination and prefix length are 0, and the interface is not lo, where the kernel keeps
// the route that refuses what has none.
func defaults6(table []byte) (routes []string) {
	for fields := range lines(table) {
		if len(fields) >= 10 && strings.Trim(fields[0], "0") == "" && fields[1] == "00" && fields[9] != "lo" {
			routes = append(routes, strings.Join([]string{fields[9], fields[4], fields[5]}, " "))
		}
	}
	return routes
}

func lines(table []byte) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for scan := bufio.NewScanner(bytes.NewReader(table)); scan.Scan(); {
			if !yield(strings.Fields(scan.Text())) {
				return
			}
		}
	}
}
