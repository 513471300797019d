package bringup

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgert/edge/device"
	"edgert/internal/exit"
	"edgert/servo"
)

// pingOnly is a line at 1 Mbaud whose Feetech servos 1 and 2 answer a ping and no
// question, as over a cable that lets short frames through only.
func pingOnly(t *testing.T) (path string) {
	t.Helper()
	line, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(line.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(line.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	path = fmt.Sprintf("/dev/pts/%d", n)
	open, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY, 0) // or the line would end with its first client
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close(); unix.Close(open) })
	go func() {
		var heard []byte
		for buf := make([]byte, 256); ; {
			n, err := line.Read(buf)
			if err != nil {
				return
			}
			mode, err := unix.IoctlGetTermios(int(line.Fd()), unix.TCGETS2)
			if err != nil || mode.Ospeed != 1_000_000 {
				continue
			}
			heard = append(heard, buf[:n]...)
			for _, id := range []byte{1, 2, servo.Broadcast} {
				ping := []byte{0xFF, 0xFF, id, 2, 1, ^(id + 3)}
				if before, after, ok := bytes.Cut(heard, ping); ok {
					heard = append(before, after...)
					id = min(id, 2)
					line.Write([]byte{0xFF, 0xFF, id, 2, 0, ^(id + 2)})
				}
			}
			heard = heard[max(0, len(heard)-16):]
		}
	}()
	return path
}

// Motors that answer a ping and not the question what they are, as over a bad
// cable, are no other model.
func TestScanOfABadCable(t *testing.T) {
	t.Parallel()
	out := new(screen)
	cfg := Config{Place: device.Place{Bus: pingOnly(t), Robot: named(t, "so101"), ID: "black"}, In: strings.NewReader(""), Out: out}
	err := Scan(t.Context(), ScanConfig{Config: cfg, Last: servo.ID(7), Named: true})
	if exit.Of(err) != exit.Absent || strings.Contains(out.String(), "number 0") || strings.Count(out.String(), "not every question") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
