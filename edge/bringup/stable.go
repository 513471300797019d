package bringup

import (
	"cmp"
	"os"
	"path/filepath"
)

// stableName is the link by which a device is found again after it was plugged in anew. udev
// makes one by the serial number and one by the USB socket; the first is some device's of two
// that share a serial number, and a kind's where a device has none.
type stableName struct {
	link string // empty: there is none that stays
	why  string // the link is not by serial number; empty: it is
}

// reason explains a name to people.
func (n stableName) reason() string {
	switch {
	case n.why == "":
		return ""
	case n.link == "":
		return ", without a name that stays: " + n.why
	}
	return ", by its USB socket: " + n.why
}

// usbDevices are the serial numbers of the USB devices of this machine, by their folders.
type usbDevices map[string]string

// classes are the kinds of device that are given names here.
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
			if dir := usbOf(sys, class, filepath.Base(node)); dir != "" {
				all.add(dir)
			}
		}
	}
	return all
}

func (all usbDevices) add(dir string) { all[dir] = readWord(filepath.Join(dir, "serial")) }

// usbOf is the folder of the USB device that a node belongs to; empty: none is known.
func usbOf(sys, class, node string) string {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, "class", class, node, "device"))
	if err != nil {
		return ""
	}
	for range 5 {
		for _, file := range []string{"idVendor", "serial", "product"} {
			if has(dir, file) {
				return dir
			}
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

func has(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

// choose picks the name of the device in a folder of the USB tree: the one by serial number
// only where that exists and is no other device's here.
func (all usbDevices) choose(dir, byID, byPath string) stableName {
	serial, known := all[dir]
	switch {
	case !known: // no USB device: its place is its name
		return stableName{cmp.Or(byPath, byID), ""}
	case serial == "" && !has(dir, "idVendor") && byPath == "":
		return stableName{byID, ""} // the tree has nothing of it but its name
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
