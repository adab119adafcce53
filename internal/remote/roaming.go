package remote

import (
	"net"
	"net/netip"
)

// strandedNow returns a test for connections that cannot get on with the addresses and routes of this moment: packets of
// one whose address is gone are sent by nobody, and those of one whose address belongs to another interface than the one
// that now leads to its peer are mostly dropped on the way. A connection is given the benefit of the doubt.
func strandedNow() func(*watchedConn) bool {
	at := interfaces()
	return func(c *watchedConn) bool {
		local, peer := addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())
		if at == nil || !local.IsValid() || !peer.IsValid() {
			return false
		}
		own, there := at[local]
		if !there {
			return !local.IsLoopback() // all of 127.0.0.0/8 is there without being listed
		}
		source, ok := sourceFor(c.RemoteAddr())
		if !ok || source == local {
			return false // without a route the link may come back as it was
		}
		now, there := at[source]
		return there && now != own
	}
}

// interfaces maps the addresses of this machine to the interfaces that have them; nil when they cannot be read.
func interfaces() map[netip.Addr]int {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	at := map[netip.Addr]int{}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return nil
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				at[prefix.Addr().Unmap().WithZone("")] = i.Index
			}
		}
	}
	return at
}

// sourceFor asks the kernel which address it would send from now: connecting UDP chooses one and sends nothing (udp(7)).
func sourceFor(peer net.Addr) (netip.Addr, bool) {
	conn, err := net.Dial("udp", peer.String())
	if err != nil {
		return netip.Addr{}, false
	}
	source := addrOf(conn.LocalAddr())
	return source, conn.Close() == nil && source.IsValid()
}

func addrOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
