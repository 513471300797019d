package device

import (
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

const (
	sysfs           = "/sys"
	maxAdapterBytes = 256 // maximum size of the file with a serial number
	usbDepth        = 5   // number of folders to search from a device's node up to the USB device
)

// USBFolder returns the folder of the USB device of a node in /sys, empty without one.
func USBFolder(sys, class, node string) string {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, "class", class, node, "device"))
	if err != nil {
		return ""
	}
	for range usbDepth {
		for _, file := range []string{"idVendor", "serial", "product"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
				return dir
			}
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// Adapter returns the serial number of the USB adapter at a port, empty if there is none.
func Adapter(port string) string { return adapter(port, sysfs) }

func (p *Place) adapter(sys string) string { return adapter(p.Bus, sys) }

func adapter(port, sys string) string {
	dir := USBFolder(sys, "tty", filepath.Base(RealPath(port)))
	if dir == "" {
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(dir, "serial"))
	return strings.TrimSpace(string(text))
}

// adapterFile returns the file with the serial number of a part's adapter, beside the part's
// calibration. It returns "" for a robot of one part, and if only the motors identify the
// calibration.
func (p *Place) adapterFile() string {
	if p.Part == "" || p.ID == "" && p.Calibration == "" {
		return ""
	}
	return strings.TrimSuffix(p.File(), ".json") + ".adapter"
}

// remembered returns the serial number of the adapter at which the part was last opened or
// calibrated, empty if it is not known.
func (p *Place) remembered() string {
	file := p.adapterFile()
	if file == "" {
		return ""
	}
	text, _ := userfile.Read(file, maxAdapterBytes)
	return strings.TrimSpace(string(text))
}

// RememberAdapter notes the serial number of the adapter at which the part was opened or calibrated.
// If the folder cannot be written to, the earlier number stays.
func (p *Place) RememberAdapter() { p.rememberAdapter(sysfs) }

func (p *Place) rememberAdapter(sys string) {
	if is := p.adapter(sys); is != "" && p.adapterFile() != "" && is != p.remembered() {
		_ = userfile.Replace(p.adapterFile(), []byte(is+"\n"))
	}
}

// exchanged reports whether each of two parts now has the adapter that the other part had before.
func exchanged(a, b *Place, sys string) bool {
	ofA, ofB := a.adapter(sys), b.adapter(sys)
	return ofA != "" && ofB != "" && ofA != ofB && ofA == b.remembered() && ofB == a.remembered()
}

// alike reports whether two parts have the same calibration, so that the motors cannot tell them
// apart.
func alike(a, b *Place) bool {
	one := a.calibration()
	return one != nil && maps.Equal(one, b.calibration())
}
