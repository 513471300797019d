package doctor

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/edge/device"
	"golang.org/x/sys/unix"
)

func keys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// ports examines the serial ports of the configured arms, or without such arms the ports of all adapters.
func (d *doctor) ports() (all []Finding) {
	var nodes []string
	for _, p := range d.Places {
		if p.Bus != device.Sim {
			nodes = append(nodes, p.Bus)
		}
	}
	if len(nodes) == 0 {
		nodes = append(d.glob("dev/ttyACM*"), d.glob("dev/tty*USB*")...)
	}
	var here []string
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
		here = append(here, real)
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
			Better: "plug the arm in, or give --bus for an arm at a serial port of the board",
		})
	}
	return append(all, d.daemons(), d.controllers(here))
}

func (d *doctor) permission(node string) Finding {
	f := Finding{Check: "permission", Level: OK, Found: node + " may be opened"}
	if unix.Access(node, unix.R_OK|unix.W_OK) == nil {
		return f
	}
	f.offer(Problem, node+" may not be opened by this user", "the group of the port, then log in again",
		fmt.Sprintf(`sudo usermod -aG "$(stat -c %%G %s)" "$USER"`, device.Quote(node)))
	return f
}

// holder examines whether another program has opened the port. Only root sees the files of other users.
func (d *doctor) holder(node string) Finding {
	f := Finding{Check: "port is free", Level: OK, Found: "no other program has " + node}
	processes := d.glob("proc/[0-9]*")
	hidden := len(processes) == 0
	for _, process := range processes {
		files, err := os.ReadDir(filepath.Join(process, "fd"))
		hidden = hidden || errors.Is(err, os.ErrPermission)
		for _, fd := range files {
			target, err := os.Readlink(filepath.Join(process, "fd", fd.Name()))
			if pid := filepath.Base(process); err == nil && target == node && pid != strconv.Itoa(os.Getpid()) {
				program, line := d.text(d.below(process), "comm"), d.text(d.below(process), "cmdline")
				if program != "edge-rt" || !strings.Contains(line, "\x00sim-bus\x00") { // sim-bus serves the port
					return held(node, pid, program, line)
				}
			}
		}
	}
	if hidden {
		f.unknown("no other program that this user may see has " + node)
		f.Command = "sudo edge-rt doctor"
	}
	return f
}

// answers matches the command line of an edge-rt that answers edge-rt ctl. It also matches one without arguments,
// because a run may have all its flags in environment variables.
var answers = regexp.MustCompile("^[^\x00]*\x00($|-|run\x00|teleop\x00|replay\x00)")

// held returns the finding for a port that another program has opened.
func held(node, pid, program, line string) Finding {
	f := Finding{Check: "port is free", Command: "kill " + pid}
	f.set(Problem, fmt.Sprintf("%s (process %s) has %s", program, pid, node), "end it")
	if program == "edge-rt" && answers.MatchString(line) {
		f.set(Advice, f.Found, "a run has the arm: its page shows the bus")
		f.Command = "edge-rt ctl status"
	}
	return f
}

// latency examines the timer of FTDI adapters; other adapters have none.
func (d *doctor) latency(node string) Finding {
	file := filepath.Join("sys/bus/usb-serial/devices", filepath.Base(node), "latency_timer")
	if len(d.glob(file)) == 0 {
		return Finding{}
	}
	ms, bad := d.number(0, 255, file)
	f := Finding{Check: "latency timer", Level: OK, Found: fmt.Sprintf("%s: %d ms", node, ms)}
	switch {
	case bad != "":
		f.unknown(bad)
	case ms > 1:
		f.offer(Advice, fmt.Sprintf("%s collects bytes for %d ms", node, ms), "1 ms; the udev rules set it",
			"echo 1 | sudo tee /"+file)
	}
	return f
}

// daemons examines programs that open every new serial port. Our udev rules hide the arm from
// ModemManager.
func (d *doctor) daemons() Finding {
	f := Finding{Check: "port daemons", Level: OK, Found: "neither brltty nor ModemManager runs"}
	ruled := len(slices.Concat(d.glob("etc/udev/rules.d/99-edge-rt.rules"),
		d.glob("usr/lib/udev/rules.d/99-edge-rt.rules"),
		d.glob("usr/local/lib/udev/rules.d/99-edge-rt.rules"))) > 0
	found := map[string]bool{}
	seen := 0
	for _, file := range d.glob("proc/[0-9]*/comm") {
		switch name := d.text(d.below(file)); {
		case name == "":
			continue
		case name == "brltty", name == "ModemManager" && !ruled:
			found[name] = true
		case name == "ModemManager":
			f.Found = "ModemManager runs, and the udev rules hide the arm from it"
		}
		seen++
	}
	switch {
	case seen == 0:
		f.unknown(unreadable("proc/PID/comm"))
	case len(found) > 0:
		f.offer(Problem, strings.Join(keys(found), " and ")+" run, which open new serial ports and write into them",
			"off, or the udev rules, which hide the arm from ModemManager",
			"sudo systemctl mask --now "+
				strings.Replace(strings.Join(keys(found), " "), "brltty", "brltty-udev brltty", 1))
	}
	return f
}

// controllers examines whether an arm shares a USB controller with a camera, whose isochronous
// transfers come first.
func (d *doctor) controllers(nodes []string) Finding {
	f := Finding{Check: "USB tree", Level: OK, Found: "no arm shares a controller with a camera"}
	if len(nodes) == 0 {
		f.unknown("no arm is here")
		return f
	}
	cameras := map[string]string{}
	for _, file := range d.glob("sys/class/video4linux/video*/device") {
		bus, err := usbBus(file)
		if err != nil {
			f.unknown(unreadable(d.below(file)))
		}
		if bus != "" {
			cameras[bus] = filepath.Base(filepath.Dir(file))
		}
	}
	for _, node := range nodes {
		bus, err := usbBus(filepath.Join(d.Root, "sys/class/tty", filepath.Base(node), "device"))
		if err != nil {
			f.unknown("the kernel does not name the controller of " + node)
		}
		if camera := cameras[bus]; bus != "" && camera != "" {
			f.set(Advice, fmt.Sprintf("%s and %s share the controller %s", filepath.Base(node), camera, bus),
				"the arm at a USB 2 socket and the cameras at USB 3 sockets (on a Pi 5 these have controllers of "+
					"their own)")
			f.Command = "lsusb -t"
			return f
		}
	}
	return f
}

// usbBus returns the name of the USB controller of a device, such as usb1, "" if it has none.
func usbBus(link string) (string, error) {
	path, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", err
	}
	for part := range strings.SplitSeq(path, "/") {
		if n, ok := strings.CutPrefix(part, "usb"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			return part, nil
		}
	}
	return "", nil
}
