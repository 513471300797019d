package pipe

import "golang.org/x/sys/unix"

// pipeSize is the largest size, in bytes, that an unprivileged program may set. With a large pipe, the program wakes
// Grab less often for each raw picture.
const pipeSize = 1 << 20

// enlarge makes a pipe larger. If the kernel refuses, the pipe keeps its size.
func enlarge(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize) }
