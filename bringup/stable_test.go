package bringup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/camera/v4l2"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// tree is the /dev and the /sys of a fictitious machine.
type tree struct {
	t        *testing.T
	dev, sys string
}

func newTree(t *testing.T) tree { return tree{t, t.TempDir(), t.TempDir()} }

func (f tree) write(path, text string) {
	f.t.Helper()
	rttest.WriteFile(f.t, "", path, text)
}

func (f tree) link(target, path string) {
	f.t.Helper()
	rttest.PanicOn(os.MkdirAll(filepath.Dir(path), 0o755))
	os.Remove(path) // udev gives the name to the newest device
	rttest.PanicOn(os.Symlink(target, path))
}

// plug adds a USB device with one node; links are the device's links, below serial or v4l. An empty id makes a node
// without a USB device.
func (f tree) plug(class, node, id, serial, socket string, links ...string) {
	f.t.Helper()
	path := filepath.Join(f.dev, node)
	f.write(path, "")
	folder := filepath.Join(f.sys, "devices", "platform", node)
	if id != "" {
		usb := filepath.Join(f.sys, "devices", "usb1", socket)
		vendor, product, _ := strings.Cut(id, ":")
		f.write(filepath.Join(usb, "idVendor"), vendor+"\n")
		f.write(filepath.Join(usb, "idProduct"), product+"\n")
		if serial != "" {
			f.write(filepath.Join(usb, "serial"), serial+"\n")
		}
		folder = filepath.Join(usb, socket+":1.0")
		f.link(usb, filepath.Join(f.sys, "bus", "usb", "devices", socket))
	}
	f.write(filepath.Join(folder, "uevent"), "")
	f.link(folder, filepath.Join(f.sys, "class", class, node, "device"))
	for _, l := range links {
		f.link(path, filepath.Join(f.dev, l))
	}
}

// Ports recommends a name by serial number only where the number exists and is unique.
func TestPortsRecommendNamesThatStay(t *testing.T) {
	f := newTree(t)
	const ch340, ftdi = "serial/by-id/usb-1a86_USB_Serial-if00-port0", "serial/by-id/usb-FTDI_FT232R_0001-if00-port0"
	f.plug("tty", "ttyUSB0", "1a86:7523", "", "1-1", ch340, "serial/by-path/pci-usb-0:1:1.0-port0")
	f.plug("tty", "ttyUSB1", "1a86:7523", "", "1-2", ch340, "serial/by-path/pci-usb-0:2:1.0-port0")
	f.plug("tty", "ttyUSB2", "0403:6001", "0001", "1-3", ftdi, "serial/by-path/pci-usb-0:3:1.0-port0")
	f.plug("tty", "ttyUSB3", "0403:6001", "0001", "1-4", ftdi, "serial/by-path/pci-usb-0:4:1.0-port0")
	f.plug("tty", "ttyACM0", "1a86:55d3", "58FA0834", "1-5", "serial/by-id/usb-1a86_Single_58FA0834-if00",
		"serial/by-path/pci-usb-0:5:1.0")
	f.plug("tty", "ttyACM1", "1a86:55d3", "58FA0835", "1-6") // udev has made no link
	f.plug("tty", "ttyCH341USB0", "1a86:7523", "", "1-7")
	f.plug("tty", "ttyXRUSB0", "04e2:1410", "X7", "1-8", "serial/by-id/usb-Exar_X7-if00")
	f.plug("tty", "ttyODD0", "1234:5678", "ODD", "1-9", "serial/by-id/usb-Odd_ODD-if00")
	f.plug("tty", "ttyTHS1", "", "", "")
	f.plug("tty", "ttyAMA0", "", "", "", "serial/by-path/platform-uart")
	f.plug("tty", "tty1", "", "", "") // a console
	want := map[string][2]string{     // node: its name, and the reason why it is not by serial number
		"ttyUSB0": {"serial/by-path/pci-usb-0:1:1.0-port0", "it has no serial number"},
		"ttyUSB1": {"serial/by-path/pci-usb-0:2:1.0-port0", "it has no serial number"},
		"ttyUSB2": {"serial/by-path/pci-usb-0:3:1.0-port0",
			"another device here has the same serial number, 0001"},
		"ttyUSB3": {"serial/by-path/pci-usb-0:4:1.0-port0",
			"another device here has the same serial number, 0001"},
		"ttyACM0":      {"serial/by-id/usb-1a86_Single_58FA0834-if00", ""},
		"ttyACM1":      {"", "udev has made no name by its serial number 58FA0835"},
		"ttyCH341USB0": {"", "it has no serial number"},
		"ttyXRUSB0":    {"serial/by-id/usb-Exar_X7-if00", ""},
		"ttyODD0":      {"serial/by-id/usb-Odd_ODD-if00", ""},
		"ttyTHS1":      {"", ""},
		"ttyAMA0":      {"serial/by-path/platform-uart", ""},
	}
	out := new(screen)
	cfg := PortsConfig{Config: Config{In: strings.NewReader(""), Out: out}, Dev: f.dev, Sys: f.sys}
	rttest.Do(t, Ports(t.Context(), cfg))
	got := map[string][2]string{}
	for _, p := range list(f.dev, f.sys) {
		stable := strings.TrimPrefix(strings.TrimPrefix(p.Stable, f.dev), "/")
		got[filepath.Base(p.Node)] = [2]string{stable, p.Why}
		if p.Why != "" && !strings.Contains(out.String(), p.Why) {
			t.Errorf("it does not say of %s that %s:\n%s", p.Node, p.Why, out)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Two cameras of one kind have the serial number SN0001: the link by serial number leads to the
// newest one.
func TestCamerasRecommendNamesThatStay(t *testing.T) {
	f := newTree(t)
	f.plug("video4linux", "video0", "0c45:6366", "SN0001", "1-1")
	f.plug("video4linux", "video2", "0c45:6366", "SN0001", "1-2")
	f.plug("video4linux", "video4", "046d:085c", "A1B2", "1-3")
	f.plug("video4linux", "video6", "1bcf:2284", "", "1-4")
	f.plug("video4linux", "video8", "", "", "")
	info := func(n int, byID, byPath string) v4l2.Info {
		return v4l2.Info{Path: fmt.Sprintf("/dev/video%d", n), ByID: byID, ByPath: byPath}
	}
	found := []v4l2.Info{
		info(0, "", "by-path/1"), info(2, "by-id/SN0001", "by-path/2"), info(4, "by-id/A1B2", "by-path/3"),
		info(6, "by-id/no-number", "by-path/4"), info(8, "", "by-path/csi"),
	}
	out, report := new(screen), new(strings.Builder)
	cfg := Config{Place: device.Place{}, Out: out, JSON: report}
	if err := listCameras(cfg, false, f.sys, found, nil); exit.Of(err) != exit.Clean {
		t.Fatal(err)
	}
	rttest.Contains(t, out.String(),
		"by-path/1, by its USB socket: another device here has the same serial number, SN0001",
		"by-path/2, by its USB socket: another device here has the same serial number, SN0001",
		"by-id/A1B2\n", "by-path/4, by its USB socket: it has no serial number", "by-path/csi\n",
		"--camera front=by-path/1")
	rttest.Contains(t, report.String(),
		`"stable":"by-path/2","why":"another device here has the same serial number, SN0001"`)
}
