package rt

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pulseSize is a page's; the words are at its beginning.
const pulseSize = 4096

const _ = uint(pulseSize - unsafe.Sizeof(pulsePage{}))

// newPulse makes a page that has no name.
func newPulse() (*Pulse, *os.File, error) {
	fd, err := unix.MemfdCreate("edgert-pulse", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("rt: pulse: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pulse")
	if err := f.Truncate(pulseSize); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("rt: pulse: %w", err), f.Close())
	}
	p, err := mapPulse(fd)
	return p, f, err
}

// OpenPulse maps another process's Pulse from a descriptor that was inherited. It
// fails with ErrNoPulse.
func OpenPulse(f *os.File) (*Pulse, error) {
	st, err := f.Stat()
	if err != nil || st.Size() != pulseSize {
		return nil, ErrNoPulse
	}
	p, err := mapPulse(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	if p.page.magic.Load() != pulseMagic {
		p.Close()
		return nil, ErrNoPulse
	}
	return p, nil
}

func mapPulse(fd int) (*Pulse, error) {
	memory, err := unix.Mmap(fd, 0, pulseSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("rt: pulse: %w", err)
	}
	return &Pulse{page: (*pulsePage)(unsafe.Pointer(&memory[0])), end: func() { unix.Munmap(memory) }}, nil
}
