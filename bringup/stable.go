package bringup

import (
	"cmp"
	"path/filepath"

	"github.com/edge-rt/edge-rt/edge/device"
)

// stableName is a link that leads to a device again after it was plugged in anew. udev makes a link by the serial
// number and a link by the USB socket. The link by serial number is ambiguous if several devices have the same number,
// and names only the kind of device if the device has no number.
type stableName struct {
	link string // empty: no link is permanent
	why  string // reason why the link is not by serial number; empty: it is by serial number
}

// reason returns the reason why the link is not by serial number, to add after the name; empty: it is by serial number.
func (n stableName) reason() string {
	switch {
	case n.why == "":
		return ""
	case n.link == "":
		return ", without a name that stays: " + n.why
	}
	return ", by its USB socket: " + n.why
}

// usbDevices are the serial numbers of this machine's USB devices, by the devices' folders.
type usbDevices map[string]string

// classes are the classes of devices that get names here.
var classes = []string{"tty", "video4linux"}

func findUSB(sys string) usbDevices {
	all := usbDevices{}
	found, _ := filepath.Glob(filepath.Join(sys, "bus", "usb", "devices", "*"))
	for _, link := range found {
		if dir, err := filepath.EvalSymlinks(link); err == nil {
			all.add(dir)
		}
	}
	for _, class := range classes {
		nodes, _ := filepath.Glob(filepath.Join(sys, "class", class, "*"))
		for _, node := range nodes {
			if dir := device.USBFolder(sys, class, filepath.Base(node)); dir != "" {
				all.add(dir)
			}
		}
	}
	return all
}

func (all usbDevices) add(dir string) { all[dir] = readWord(filepath.Join(dir, "serial")) }

// choose returns the name of the device in the folder dir. A USB device gets its link by serial number only if it has a
// number that no other device here has.
func (all usbDevices) choose(dir, byID, byPath string) stableName {
	serial, known := all[dir]
	switch {
	case !known: // a device without USB is named by its place
		return stableName{cmp.Or(byPath, byID), ""}
	case serial == "" && !exists(filepath.Join(dir, "idVendor")) && byPath == "":
		return stableName{byID, ""} // the device's folder describes nothing: only the name is known
	case serial == "":
		return stableName{byPath, "it has no serial number"}
	}
	for other, its := range all {
		if other != dir && its == serial {
			return stableName{byPath, "another device here has the same serial number, " + serial}
		}
	}
	if byID == "" {
		return stableName{byPath, "udev has made no name by its serial number " + serial}
	}
	return stableName{byID, ""}
}

// linksIn maps device nodes to the first link to them in a folder.
func linksIn(folder string) map[string]string {
	links := map[string]string{}
	found, _ := filepath.Glob(filepath.Join(folder, "*"))
	for _, link := range found {
		if node, err := filepath.EvalSymlinks(link); err == nil && links[node] == "" {
			links[node] = link
		}
	}
	return links
}
