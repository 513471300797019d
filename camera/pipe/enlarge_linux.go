package pipe

import "golang.org/x/sys/unix"

// pipeSize is an unprivileged program's limit: raw pictures need few wake-ups then.
const pipeSize = 1 << 20

// enlarge makes a pipe larger; where the kernel refuses, it stays as it is.
func enlarge(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize) }
