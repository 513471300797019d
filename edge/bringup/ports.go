package bringup

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edgert/internal/exit"
)

// PortsConfig is one edge-rt ports.
type PortsConfig struct {
	Config
	Unplug bool   // find one by unplugging it
	Dev    string // /dev
	Sys    string // /sys
	Proc   string // /proc
}

// serialPort is one device and the names that stay its own.
type serialPort struct {
	node   string // /dev/ttyACM0
	stable string // a link by serial number or by place, "" where there is none
	what   string // what the adapter calls itself
}

// Ports lists the serial ports, or finds one by having it unplugged.
func Ports(ctx context.Context, cfg PortsConfig) error {
	s := newSession(cfg.Config)
	before := list(cfg.Dev, cfg.Sys)
	for _, line := range taken(cfg.Sys, cfg.Proc) {
		s.say("%s", line)
	}
	if !cfg.Unplug {
		for _, p := range before {
			s.say("%-16s %s%s", p.node, p.name(), bracket(p.what))
		}
		if len(before) == 0 {
			return exit.Errorf(exit.Absent, "no serial port here: plug the adapter in; on a Raspberry Pi's own pins enable uart0 and use /dev/ttyAMA0")
		}
		s.say("\nWhich one is the arm? Run edge-rt ports --unplug. Then: edge-rt scan --bus %s", before[0].name())
		return nil
	}
	if len(before) == 0 {
		return exit.Errorf(exit.Absent, "no serial port here: plug the adapter in first")
	}
	if _, err := s.ask(ctx, "Unplug the arm's USB cable (%d ports are here now), then press Enter.", len(before)); err != nil {
		return err
	}
	after := list(cfg.Dev, cfg.Sys)
	var gone []serialPort
	for _, p := range before {
		if !slices.ContainsFunc(after, func(q serialPort) bool { return q.node == p.node }) {
			gone = append(gone, p)
		}
	}
	switch len(gone) {
	case 0:
		return exit.Errorf(exit.Absent, "no port has gone: is the cable a charging cable, or was another one pulled? Try again")
	case 1:
	default:
		return exit.Errorf(exit.Absent, "%d ports have gone: pull one cable only", len(gone))
	}
	s.say("The arm is %s%s. Plug it in again.", gone[0].name(), bracket(gone[0].what))
	if gone[0].stable == "" {
		s.say("It has no name of its own and may come back under another number: install the udev rules (make install).")
	}
	s.say("Next: edge-rt scan --bus %s", gone[0].name())
	return nil
}

// name is what to call the port in a configuration.
func (p serialPort) name() string {
	if p.stable != "" {
		return p.stable
	}
	return p.node
}

func bracket(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// list finds the ports: what udev links, and what drivers usually call them. A
// link by serial number comes before one by place, which stays with the socket.
func list(dev, sys string) (ports []serialPort) {
	links := map[string]string{}
	for _, folder := range []string{"by-path", "by-id"} {
		found, _ := filepath.Glob(filepath.Join(dev, "serial", folder, "*"))
		for _, link := range found {
			if node, err := filepath.EvalSymlinks(link); err == nil {
				links[node] = link
			}
		}
	}
	for _, pattern := range []string{"ttyACM*", "ttyUSB*", "ttyAMA*", "ttyCH343USB*"} {
		found, _ := filepath.Glob(filepath.Join(dev, pattern))
		for _, node := range found {
			ports = append(ports, serialPort{node, links[node], product(sys, filepath.Base(node))})
		}
	}
	return ports
}

// product reads what the USB device says of itself; it lies one to three folders
// above the tty's.
func product(sys, tty string) string {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, "class", "tty", tty, "device"))
	if err != nil {
		return ""
	}
	for range 4 {
		if text, err := os.ReadFile(filepath.Join(dir, "product")); err == nil {
			return strings.TrimSpace(string(text))
		}
		dir = filepath.Dir(dir)
	}
	return ""
}
