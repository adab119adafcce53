package store

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif, answer is struct seccomp_notif_resp (seccomp_unotify(2)).
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// fileCall is a system call and which of its arguments is a file descriptor.
type fileCall struct{ nr, arg uint32 }

// failSyscall makes the n-th call of a system call for one descriptor from now on fail with errno without being done.
func failSyscall(what fileCall, fd uintptr, n int, errno unix.Errno) error {
	return holdSyscall(what, fd, func(count int) unix.Errno {
		if count == n {
			return errno
		}
		return 0
	})
}

// holdSyscall asks hold before each call of a system call for one descriptor from now on, counted over all threads of this
// process from 1: the call waits for the answer, is done for 0 and else fails with it. It cannot be undone, so it belongs
// into a child.
func holdSyscall(what fileCall, fd uintptr, hold func(count int) unix.Errno) error {
	listener, err := notify(what, fd)
	if err != nil {
		return err
	}
	go func() {
		for count := 1; ; count++ {
			asked := notification{}
			if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&asked)); err != nil {
				fmt.Println("receive:", err)
				os.Exit(1)
			}
			reply := answer{id: asked.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			if errno := hold(count); errno != 0 {
				reply = answer{id: asked.id, errno: -int32(errno)}
			}
			if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&reply)); err != nil {
				fmt.Println("answer:", err)
				os.Exit(1)
			}
		}
	}()
	return nil
}

// notify has the kernel ask, on the descriptor returned, before it does a system call on a descriptor for any thread of this
// process.
func notify(what fileCall, fd uintptr) (int, error) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: what.nr},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16 + 8*what.arg + lowHalf()}, // seccomp_data.args
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(fd)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if e != 0 {
		return 0, e
	}
	return int(fd), nil
}

// lowHalf is where the lower 32 bits of 64 are.
func lowHalf() uint32 {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return 4
	}
	return 0
}

func ioctl(fd int, request uint, arg unsafe.Pointer) error {
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg))
		if e == 0 || e == unix.ENOENT { // the thread that called is gone
			return nil
		}
		if e != unix.EINTR {
			return e
		}
	}
}
