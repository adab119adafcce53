// Package link says when this machine's way to the network changed: an address came or went, or the default route did.
//
// It promises one call after each change, with several changes at one moment taken together, and none for what the kernel
// only repeats, such as the lifetimes of IPv6 addresses. The kernel's messages (rtnetlink(7)) are a hint to look: what is
// compared is the state before and after, so that a lost message costs nothing. Where the kernel gives no messages it looks
// from time to time.
//
// Read Watch first, then state.go.
package link
