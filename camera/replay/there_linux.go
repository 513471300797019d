package replay

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// there reports whether the path still leads somewhere. It allocates nothing, as
// the capture thread must not.
//
//rt:noalloc
func there(path []byte) bool {
	at := unix.AT_FDCWD
	_, _, no := unix.Syscall(unix.SYS_FACCESSAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])), unix.F_OK)
	return no != unix.ENOENT && no != unix.ENOTDIR
}
