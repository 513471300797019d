package bringup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// usb adds a USB device to a /sys made by the test.
func usb(t *testing.T, sys, place, vendor, product, driver string, tty ...string) {
	t.Helper()
	dir := filepath.Join(sys, "bus", "usb", "devices", place)
	port := filepath.Join(dir, place+":1.0")
	rttest.Do(t, os.MkdirAll(filepath.Join(append([]string{port}, tty...)...), 0o755))
	for name, text := range map[string]string{"idVendor": vendor, "idProduct": product} {
		rttest.WriteFile(t, dir, name, text+"\n")
	}
	if driver != "" {
		rttest.Do(t, os.Symlink(filepath.Join("..", "..", "drivers", driver), filepath.Join(port, "driver")))
	}
}

// An adapter that brltty has taken for a Braille display has no port. The command ports names the program that uses the
// adapter, and the remedy.
func TestPortsTellsOfAnAdapterThatBrlttyHas(t *testing.T) {
	for _, tt := range []struct {
		name, driver string
		tty          []string
		product      string
		brltty       bool
		says         []string
	}{
		{"brltty holds it", "usbfs", nil, "7523", true,
			[]string{"CH340", "1a86:7523", "USB 1-3", "brltty has it", "systemctl mask", "plug it in again"}},
		{"somebody holds it", "usbfs", nil, "7523", false, []string{"1a86:7523", "a program has it", "brltty"}},
		{"brltty has thrown the driver out", "", nil, "7523", true, []string{"brltty runs", "systemctl mask"}},
		{"no driver", "", nil, "7523", false, []string{"no driver has it", "modprobe", "brltty"}},
		{"as it should be", "ch341", []string{"ttyUSB0"}, "7523", true, nil},
		{"a CDC device as it should be", "cdc_acm", []string{"tty", "ttyACM0"}, "7523", true, nil},
		{"another device", "usbfs", nil, "0001", true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dev := t.TempDir()
			sys := t.TempDir()
			proc := t.TempDir()
			usb(t, sys, "1-3", "1a86", tt.product, tt.driver, tt.tty...)
			usb(t, sys, "1-4", "046d", "0825", "uvcvideo")
			comm := map[bool]string{true: "brltty", false: "bash"}[tt.brltty]
			rttest.WriteFile(t, proc, "812/comm", comm+"\n")
			rttest.WriteFile(t, dev, "ttyAMA0", "")
			for _, there := range []bool{true, false} { // there is another port, or none
				out := new(screen)
				cfg := PortsConfig{Config: Config{In: strings.NewReader(""), Out: out}, Dev: dev, Sys: sys, Proc: proc}
				if !there {
					cfg.Dev = t.TempDir()
				}
				err := Ports(t.Context(), cfg)
				if (exit.Of(err) == exit.Absent) == there {
					t.Errorf("another port there: %t; it ends with %v", there, err)
				}
				if tt.says == nil && strings.Contains(out.String(), "gives no port") {
					t.Errorf("it says %s", out)
				}
				for _, words := range tt.says {
					rttest.Contains(t, out.String(), words)
				}
			}
		})
	}
}
