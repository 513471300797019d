package doctor

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/edge/device"
	"golang.org/x/sys/unix"
)

func keys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// ports examines the serial ports: of the arms, else of all adapters.
func (d *doctor) ports() (all []Finding) {
	var nodes []string
	for _, p := range d.Places {
		if p.Bus != device.Sim {
			nodes = append(nodes, p.Bus)
		}
	}
	if len(nodes) == 0 {
		nodes = slices.Concat(d.glob("dev/ttyACM*"), d.glob("dev/ttyUSB*"))
	}
	for _, node := range nodes {
		real, err := filepath.EvalSymlinks(node)
		if err != nil {
			all = append(all, Finding{
				Check:   "port",
				Level:   Problem,
				Found:   fmt.Sprintf("%s: %v", node, err),
				Better:  "a port that is here",
				Command: "edge-rt ports",
			})
			continue
		}
		all = append(all, d.permission(real), d.holder(real))
		if timer := d.latency(real); timer.Check != "" {
			all = append(all, timer)
		}
	}
	if len(nodes) == 0 {
		all = append(all, Finding{
			Check:  "port",
			Level:  Advice,
			Found:  "no serial adapter here",
			Better: "plug the arm in",
		})
	}
	return append(all, d.daemons(), d.controllers(nodes))
}

func (d *doctor) permission(node string) Finding {
	f := Finding{Check: "permission", Level: OK, Found: node + " may be opened"}
	if unix.Access(node, unix.R_OK|unix.W_OK) == nil {
		return f
	}
	f.Level, f.Safe = Problem, true
	f.Found = node + " may not be opened by this user"
	f.Better = "the group of the port, then log in again"
	f.Command = fmt.Sprintf(`sudo usermod -aG "$(stat -c %%G %s)" "$USER"`, node)
	return f
}

// holder examines whether another program has the port.
func (d *doctor) holder(node string) Finding {
	f := Finding{Check: "port is free", Level: OK, Found: "no other program that this user may see has " + node}
	for _, fd := range d.glob("proc/[0-9]*/fd/*") {
		target, err := os.Readlink(fd)
		if err != nil || target != node {
			continue
		}
		dir := strings.TrimPrefix(filepath.Dir(filepath.Dir(fd)), d.Root)
		pid := filepath.Base(dir)
		if pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		f.Level, f.Found = Problem, fmt.Sprintf("%s (process %s) has %s", d.read(dir, "comm"), pid, node)
		f.Better, f.Command = "end it", "kill "+pid
		if d.read(dir, "comm") == "edge-rt" {
			f.Level = Advice
			f.Better = "a run has the arm: its page shows the bus"
			f.Command = "edge-rt ctl status"
		}
	}
	return f
}

// latency examines the timer of FTDI adapters; other adapters have none.
func (d *doctor) latency(node string) Finding {
	file := filepath.Join("sys/bus/usb-serial/devices", filepath.Base(node), "latency_timer")
	ms, err := strconv.Atoi(d.read(file))
	switch {
	case err != nil:
		return Finding{}
	case ms <= 1:
		return Finding{Check: "latency timer", Level: OK, Found: fmt.Sprintf("%s: %d ms", node, ms)}
	}
	return Finding{
		Check:   "latency timer",
		Level:   Advice,
		Found:   fmt.Sprintf("%s collects bytes for %d ms", node, ms),
		Better:  "1 ms; the udev rules set it",
		Command: fmt.Sprintf("echo 1 | sudo tee /%s", file),
		Safe:    true,
	}
}

// daemons examines programs that open every new serial port.
func (d *doctor) daemons() Finding {
	found := map[string]bool{}
	for _, file := range d.glob("proc/[0-9]*/comm") {
		if name := d.read(strings.TrimPrefix(file, d.Root)); name == "brltty" || name == "ModemManager" {
			found[name] = true
		}
	}
	if len(found) == 0 {
		return Finding{Check: "port daemons", Level: OK, Found: "neither brltty nor ModemManager runs"}
	}
	return Finding{
		Check:   "port daemons",
		Level:   Problem,
		Found:   strings.Join(keys(found), " and ") + " run, which open new serial ports and write into them",
		Better:  "off, or the udev rules, which hide the arm from ModemManager",
		Command: "sudo systemctl disable --now " + strings.Join(keys(found), " "),
		Safe:    true,
	}
}

// controllers examines whether an arm shares a USB controller with a camera, whose isochronous
// transfers come first.
func (d *doctor) controllers(nodes []string) Finding {
	cameras := map[string]string{}
	for _, file := range d.glob("sys/class/video4linux/video*/device") {
		if bus := d.usbBus(file); bus != "" {
			cameras[bus] = filepath.Base(filepath.Dir(file))
		}
	}
	f := Finding{Check: "USB tree", Level: OK, Found: "no arm shares a controller with a camera"}
	for _, node := range nodes {
		bus := d.usbBus(filepath.Join(d.Root, "sys/class/tty", filepath.Base(node), "device"))
		if camera := cameras[bus]; bus != "" && camera != "" {
			f.Level = Advice
			f.Found = fmt.Sprintf("%s and %s share the controller %s", filepath.Base(node), camera, bus)
			f.Better = "the arm at a USB 2 socket and the cameras at USB 3 sockets (on a Pi 5 these have controllers " +
				"of " +
				"their own)"
			f.Command = "lsusb -t"
		}
	}
	return f
}

// usbBus returns the name of the USB controller of a device, such as usb1, "" if it has none.
func (d *doctor) usbBus(link string) string {
	path, err := filepath.EvalSymlinks(link)
	if err != nil {
		return ""
	}
	for part := range strings.SplitSeq(path, "/") {
		if n, ok := strings.CutPrefix(part, "usb"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			return part
		}
	}
	return ""
}
