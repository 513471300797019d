package bringup

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
)

// PortsConfig holds the settings of edge-rt ports.
type PortsConfig struct {
	Config
	Unplug bool   // find the port by unplugging it
	Dev    string // /dev
	Sys    string // /sys
	Proc   string // /proc
}

// PortsReport is the --json of edge-rt ports; with --unplug it contains only the ports of the arm's adapter.
type PortsReport struct {
	Ports     []SerialPort `json:"ports"`
	Unclaimed []string     `json:"unclaimed"` // adapters without a port, with the reason
}

// SerialPort is one device with its permanent name.
type SerialPort struct {
	Node    string `json:"node"`    // device, such as /dev/ttyACM0
	Stable  string `json:"stable"`  // link by serial number or by socket; empty without one
	Adapter string `json:"adapter"` // product name of the adapter
	Why     string `json:"why"`     // why stable is not by serial number; empty otherwise
	usb     string // folder of the adapter in /sys; empty without one
}

// Ports lists the serial ports. With --unplug it finds the arm's port while the operator pulls the arm's cable.
func Ports(ctx context.Context, cfg PortsConfig) error {
	s := newSession(cfg.Config)
	report := PortsReport{Ports: list(cfg.Dev, cfg.Sys), Unclaimed: append([]string{}, unclaimed(cfg.Sys, cfg.Proc)...)}
	for _, line := range report.Unclaimed {
		s.printf("%s", line)
	}
	var err error
	switch {
	case len(report.Ports) == 0 && cfg.Unplug:
		err = exit.Errorf(exit.Absent, "no serial port here: plug the adapter in first")
	case len(report.Ports) == 0:
		err = exit.Errorf(exit.Absent, "no serial port here: plug the adapter in; on a Raspberry Pi's own pins "+
			"enable uart0 and use /dev/ttyAMA0")
	case cfg.Unplug:
		report.Ports, err = s.findUnplugged(ctx, cfg, report.Ports)
	default:
		for _, p := range report.Ports {
			s.printf("%-16s %s%s%s", p.Node, p.name(), bracket(p.Adapter), stableName{p.Stable, p.Why}.reason())
		}
		s.printf("\nWhich one is the arm? Run edge-rt ports --unplug. Then: edge-rt scan --bus %s",
			device.Quote(report.Ports[0].name()))
	}
	return errors.Join(err, s.report(report))
}

// findUnplugged returns the ports of the adapter that disappears when the operator pulls the arm's cable.
func (s *session) findUnplugged(ctx context.Context, cfg PortsConfig, before []SerialPort) ([]SerialPort, error) {
	if _, err := s.ask(ctx, "Unplug the arm's USB cable (%d ports are here now), then press Enter.",
		len(before)); err != nil {
		return nil, err
	}
	after := list(cfg.Dev, cfg.Sys)
	var gone []SerialPort
	for _, p := range before {
		if !slices.ContainsFunc(after, func(q SerialPort) bool { return q.Node == p.Node }) {
			gone = append(gone, p)
		}
	}
	switch {
	case len(gone) == 0:
		return nil, exit.Errorf(exit.Absent,
			"no port has gone: is the cable a charging cable, or was another one pulled? Try again")
	case slices.ContainsFunc(gone[1:], func(p SerialPort) bool { return p.usb == "" || p.usb != gone[0].usb }):
		return nil, exit.Errorf(exit.Absent, "%d ports have gone: pull one cable only", len(gone))
	case len(gone) > 1:
		s.printf("The arm's adapter%s has %d ports. Plug it in again, and look for the motors at each:",
			bracket(gone[0].Adapter), len(gone))
		for _, p := range gone {
			s.printf("edge-rt scan --bus %s", device.Quote(p.name()))
		}
		return gone, nil
	}
	where := ""
	if gone[0].Stable != "" && gone[0].Why != "" {
		where = " into the same USB socket, which is its name: " + gone[0].Why
	}
	s.printf("The arm is %s%s. Plug it in again%s.", gone[0].name(), bracket(gone[0].Adapter), where)
	if gone[0].Stable == "" {
		s.printf("It has no name of its own and may come back under another number: install the udev rules " +
			"(make install).")
	}
	s.printf("Next: edge-rt scan --bus %s", device.Quote(gone[0].name()))
	return gone, nil
}

// name returns the best name of the port for a configuration: the stable link, or without it the node.
func (p SerialPort) name() string { return cmp.Or(p.Stable, p.Node) }

func bracket(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// portPatterns are the nodes of serial adapters and of the UARTs of small computers: the names of the kernel's drivers,
// and of the drivers of WCH (CH341, CH343, CH9344), Exar and NVIDIA.
var portPatterns = []string{
	"ttyACM*", "ttyUSB*", "ttyCH34[0-9]USB*", "ttyCH9344USB*", "ttyXRUSB*", "ttyAMA*", "ttyTHS*", "ttymxc*",
}

// list finds the ports: the nodes of known drivers, and every other tty of a USB device.
func list(dev, sys string) []SerialPort {
	ports, seen := []SerialPort{}, map[string]bool{}
	byID, byPath := linksIn(filepath.Join(dev, "serial", "by-id")), linksIn(filepath.Join(dev, "serial", "by-path"))
	devices := findUSB(sys)
	add := func(node string) {
		real, err := filepath.EvalSymlinks(node)
		if err != nil || seen[real] {
			return
		}
		seen[real] = true
		usb := device.USBFolder(sys, "tty", filepath.Base(node))
		name := devices.choose(usb, byID[real], byPath[real])
		ports = append(ports, SerialPort{
			Node:    node,
			Stable:  name.link,
			Adapter: readWord(usb + "/product"),
			Why:     name.why,
			usb:     usb,
		})
	}
	for _, pattern := range portPatterns {
		found, _ := filepath.Glob(filepath.Join(dev, pattern))
		for _, node := range found {
			add(node)
		}
	}
	all, _ := filepath.Glob(filepath.Join(sys, "class", "tty", "tty*"))
	for _, entry := range all {
		if tty := filepath.Base(entry); device.USBFolder(sys, "tty", tty) != "" {
			add(filepath.Join(dev, tty))
		}
	}
	return ports
}
