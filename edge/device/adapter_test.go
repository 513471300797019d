package device

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
)

func ok(t *testing.T, err error) {
	t.Helper()
	rttest.Do(t, err)
}

// adapters returns a fake /sys, and a function for the places of two arms with the same calibration. The fake /sys has
// two USB adapters, ttyACM0 and ttyACM1, and a port without USB.
func adapters(t *testing.T) (sys string, at func(left, right string) []Place) {
	t.Helper()
	sys, home := t.TempDir(), t.TempDir()
	for node, serial := range map[string]string{"ttyACM0": "AAA", "ttyACM1": "BBB"} {
		usb := filepath.Join(sys, "devices", "usb1", node)
		ok(t, os.MkdirAll(filepath.Join(usb, "1-1:1.0"), 0o755))
		ok(t, os.WriteFile(filepath.Join(usb, "idVendor"), []byte("1a86\n"), 0o644))
		ok(t, os.WriteFile(filepath.Join(usb, "serial"), []byte(serial+"\n"), 0o644))
		ok(t, os.MkdirAll(filepath.Join(sys, "class", "tty", node), 0o755))
		ok(t, os.Symlink(filepath.Join(usb, "1-1:1.0"), filepath.Join(sys, "class", "tty", node, "device")))
	}
	r := robotNamed(t, "bi_so101").Parts()[0].Robot
	for _, part := range []string{"left", "right"} {
		ok(t, SimCalibration(r).Save(filepath.Join(home, part+".json")))
	}
	return sys, func(left, right string) (places []Place) {
		for part, bus := range map[string]string{"left": left, "right": right} {
			places = append(places, Place{
				Part:        part,
				Bus:         bus,
				Robot:       r,
				Calibration: filepath.Join(home, part+".json"),
			})
		}
		if places[0].Part == "right" {
			places[0], places[1] = places[1], places[0]
		}
		return places
	}
}

// If two arms with the same calibration have exchanged their adapters, a run and edge-rt scan refuse them, and print
// the right flags. New adapters, and ports without a serial number, are not refused.
func TestExchangedAdapters(t *testing.T) {
	const left, right = "/dev/ttyACM0", "/dev/ttyACM1"
	sys, at := adapters(t)
	open := func(places []Place, err error) error {
		for i := range places {
			if err := swapped(places, i, servo.ArmConfig{}, err, sys); err != nil {
				return err
			}
		}
		return nil
	}
	ok(t, open(at("/dev/pts/3", "/dev/pts/4"), nil))
	ok(t, open(at(left, right), nil))
	ok(t, open(at(left, right), nil))
	wrong := at(right, left)
	err := open(wrong, nil)
	rttest.Ends(t, err, exit.Config, "serial number BBB", "--bus right="+right) // swapped ports
	rttest.Fails(t, checkSwapped(wrong, nil, sys), "--bus left="+left)
	lost := errors.New("motor 3 does not answer")
	rttest.FailsAs(t, open(wrong, lost), lost, "serial number") // a motor is missing
	other := robotNamed(t, "bi_so101").Parts()[0].Robot
	c := SimCalibration(other)
	gripper := c["gripper"]
	gripper.RangeMax--
	c["gripper"] = gripper
	ok(t, c.Save(wrong[1].Calibration))
	ok(t, open(wrong, nil)) // the two calibrations differ now: exchanged adapters are accepted
	ok(t, open(wrong, nil))
	rttest.Want(t, wrong[0].remembered(), "BBB", "left's adapter")
}
