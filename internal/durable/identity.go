package durable

import (
	"io/fs"
	"syscall"
)

// IdentityOf reads the identity and the number of hard links out of a file's description; ok is false for a description
// that did not come from the operating system.
func IdentityOf(info fs.FileInfo) (id Identity, links uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Identity{}, 0, false
	}
	// The conversions widen on 32-bit ARM.
	id = Identity{Device: uint64(st.Dev), Inode: uint64(st.Ino), Size: st.Size, MTimeNS: info.ModTime().UnixNano()}
	return id, uint64(st.Nlink), true
}

// ChangeTime reads when a file or directory last changed in any way (st_ctim, inode(7)), in nanoseconds. Unlike the
// modification time no program can set it; the wall clock can.
func ChangeTime(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Ctim.Nano()
}
