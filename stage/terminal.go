package stage

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Terminal opens a pseudo-terminal whose output is discarded: a program with it as stderr shows its
// status line as to a person.
func Terminal() (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		master.Close()
		return nil, err
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		master.Close()
		return nil, err
	}
	go func() { // ends when the last slave is closed
		io.Copy(io.Discard, master)
		master.Close()
	}()
	return slave, nil
}
