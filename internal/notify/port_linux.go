package notify

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// port is a connected datagram socket's descriptor.
type port int

// mute is the port to nobody.
const mute port = -1

// dial connects to a socket in the file system, or to an abstract one, whose
// name begins with @.
func dial(name string) (port, error) {
	if name[0] != '/' && name[0] != '@' {
		return mute, fmt.Errorf("want a path or @NAME")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return mute, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd)
		return mute, err
	}
	return port(fd), nil
}

//rt:noalloc
func (p port) send(message []byte) bool {
	if p == mute {
		return true
	}
	for {
		_, err := unix.Write(int(p), message)
		if err != unix.EINTR {
			return err == nil
		}
	}
}

func (p port) close() {
	if p != mute {
		_ = unix.Close(int(p)) // nothing is buffered
	}
}
