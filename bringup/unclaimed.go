package bringup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// adapters are serial adapters, by vendor and product, with chips that brltty also takes for
// Braille displays. Source: brltty's Autostart/Udev/usb-all.rules.in.
var adapters = map[string]string{"1a86:7523": "CH340", "10c4:ea60": "CP210x", "0403:6001": "FT232R"}

// unclaimed returns a line of text for each adapter that is plugged in but has no port.
func unclaimed(sys, proc string) (lines []string) {
	found, _ := filepath.Glob(filepath.Join(sys, "bus", "usb", "devices", "*", "idProduct"))
	for _, file := range found {
		dir := filepath.Dir(file)
		id := readWord(filepath.Join(dir, "idVendor")) + ":" + readWord(file)
		chip, known := adapters[id]
		if !known || hasPort(dir) {
			continue
		}
		lines = append(lines, fmt.Sprintf("A %s adapter (%s, USB %s) is plugged in and gives no port: %s.", chip, id,
			filepath.Base(dir), explainUnclaimed(dir, proc)))
	}
	return lines
}

func hasPort(dir string) bool {
	direct, _ := filepath.Glob(filepath.Join(dir, "*:*", "tty*"))
	below, _ := filepath.Glob(filepath.Join(dir, "*:*", "tty", "tty*"))
	return len(direct)+len(below) > 0
}

// explainUnclaimed returns a text with the program or driver that uses the device, and the remedy.
func explainUnclaimed(dir, proc string) string {
	const cure = "sudo systemctl mask --now brltty-udev.service brltty.service (or install edge-rt's udev rules, or " +
		"apt remove brltty), then plug it in again"
	running := isRunning(proc, "brltty")
	drivers, _ := filepath.Glob(filepath.Join(dir, "*:*", "driver"))
	for _, link := range drivers {
		if target, err := os.Readlink(link); err == nil && filepath.Base(target) == "usbfs" {
			if running {
				return "brltty has it, for a Braille display: " + cure
			}
			return "a program has it through usbfs; where that is brltty, which takes it for a Braille display: " + cure
		}
	}
	if running {
		return "brltty runs, which throws the kernel's driver out to look for a Braille display: " + cure
	}
	return "no driver has it; load the chip's (modprobe ch341, cp210x or ftdi_sio), or plug it in again. If it has " +
		"had a port for a second, that was brltty: " + cure
}

func isRunning(proc, name string) bool {
	all, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	return slices.ContainsFunc(all, func(file string) bool { return readWord(file) == name })
}

func readWord(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}
