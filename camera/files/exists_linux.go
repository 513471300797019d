package files

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// exists reports whether the path still exists, without os.Stat's allocations.
//
//rt:noalloc
func exists(path []byte) bool {
	at := unix.AT_FDCWD
	_, _, no := unix.Syscall(unix.SYS_FACCESSAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])), unix.F_OK)
	return no != unix.ENOENT && no != unix.ENOTDIR
}
