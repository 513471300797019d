package stage

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// OpenTerminal opens a pseudo-terminal. It returns the side on which a person would type and read,
// and the side of the program.
func OpenTerminal() (person, program *os.File, err error) {
	const flags = os.O_RDWR | unix.O_NOCTTY
	if person, err = os.OpenFile("/dev/ptmx", flags, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), flags, 0)
	}
	if err != nil {
		person.Close()
		return nil, nil, err
	}
	return person, program, nil
}

// Terminal opens a pseudo-terminal whose output is discarded. A program with this terminal as its
// standard error shows its status line, as it does for a person.
func Terminal() (*os.File, error) {
	person, program, err := OpenTerminal()
	if err != nil {
		return nil, err
	}
	go func() { // ends when the last descriptor of the program's side is closed
		io.Copy(io.Discard, person)
		person.Close()
	}()
	return program, nil
}
