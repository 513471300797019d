package notify

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// port is a connected datagram socket's descriptor.
type port int

// closed is a port that sends nothing, and reports every message as sent.
const closed port = -1

// dial connects to a socket in the file system, or to an abstract one, whose
// name begins with @.
func dial(name string) (port, error) {
	if name[0] != '/' && name[0] != '@' {
		return closed, fmt.Errorf("want a path or @NAME")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return closed, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd)
		return closed, err
	}
	return port(fd), nil
}

//rt:noalloc
func (p port) send(message []byte) bool {
	if p == closed {
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
	if p != closed {
		_ = unix.Close(int(p)) // no data is buffered, so an error loses none
	}
}
