package stage

import "golang.org/x/sys/unix"

// waitDeath returns when a child process has died, whether or not its parent has waited for it.
func waitDeath(pid int, waited <-chan struct{}) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		<-waited
		return
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds, -1); n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}
