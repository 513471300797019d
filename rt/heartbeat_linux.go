package rt

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// heartbeatSize is the size of a page in bytes; heartbeatPage is at its beginning.
const heartbeatSize = 4096

const _ = uint(heartbeatSize - unsafe.Sizeof(heartbeatPage{}))

// newHeartbeat makes a page that has no name.
func newHeartbeat() (*Heartbeat, *os.File, error) {
	fd, err := unix.MemfdCreate("edgert-heartbeat", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("rt: heartbeat: %w", err)
	}
	f := os.NewFile(uintptr(fd), "heartbeat")
	if err := f.Truncate(heartbeatSize); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("rt: heartbeat: %w", err), f.Close())
	}
	p, err := mapHeartbeat(fd)
	return p, f, err
}

// OpenHeartbeat maps another process's Heartbeat. It fails with errNoHeartbeat when the file is not
// a heartbeat.
func OpenHeartbeat(f *os.File) (*Heartbeat, error) {
	st, err := f.Stat()
	if err != nil || st.Size() != heartbeatSize {
		return nil, errNoHeartbeat
	}
	p, err := mapHeartbeat(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	if p.page.magic.Load() != heartbeatMagic {
		p.Close()
		return nil, errNoHeartbeat
	}
	return p, nil
}

func mapHeartbeat(fd int) (*Heartbeat, error) {
	memory, err := unix.Mmap(fd, 0, heartbeatSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("rt: heartbeat: %w", err)
	}
	return &Heartbeat{page: (*heartbeatPage)(unsafe.Pointer(&memory[0])), unmap: func() { unix.Munmap(memory) }}, nil
}
