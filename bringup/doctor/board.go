package doctor

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/edge/device"
)

const (
	hotMilli     = 80_000  // degrees Celsius / 1000 at which a Pi slows down
	coldestMilli = -40_000 // degrees Celsius / 1000, least plausible
	hottestMilli = 150_000 // degrees Celsius / 1000, most plausible
	leastGiB     = 2       // free room for records
	gib          = 1 << 30 // bytes
)

// board examines power, heat, disk and clock.
func (d *doctor) board() []Finding {
	all := []Finding{d.power(), d.heat()}
	for i, folder := range d.Folders {
		all = append(all, disk(folder, i == 0))
	}
	return append(all, d.timeSync())
}

// The bits of a Raspberry Pi's get_throttled.
//
// Source: Raspberry Pi documentation, vcgencmd get_throttled.
const (
	underVoltageNow = 1 << 0
	throttledNow    = 1<<1 | 1<<2 | 1<<3
	underVoltageWas = 1 << 16
	throttledWas    = 1<<17 | 1<<18 | 1<<19
	throttledBits   = underVoltageNow | throttledNow | underVoltageWas | throttledWas
)

// throttled returns the bits in the file get_throttled. The result here reports whether this board has the file. The
// result bad is the reason why the bits are not plausible; empty: they are.
func (d *doctor) throttled() (bits uint64, here bool, bad string) {
	for _, file := range d.glob("sys/devices/platform/soc*/soc*:firmware/get_throttled") {
		here = true
		text, ok := d.read(d.below(file))
		n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
		switch {
		case !ok:
			bad = unreadable(d.below(file))
		case err != nil || n&^throttledBits != 0:
			bad = implausible(text, "the bits of get_throttled", d.below(file))
		default:
			bits |= n
		}
	}
	return bits, here, bad
}

// voltageAlarm returns the alarm of a Raspberry Pi's supply: 1 for under-voltage, otherwise 0. The result here
// reports whether this board has the alarm. The result bad is the reason why its value is not plausible; empty: it is.
func (d *doctor) voltageAlarm() (alarm int64, here bool, bad string) {
	for _, name := range d.glob("sys/class/hwmon/hwmon*/name") {
		if dir := filepath.Dir(d.below(name)); d.text(dir, "name") == "rpi_volt" {
			alarm, bad = d.number(0, 1, dir, "in0_lcrit_alarm")
			return alarm, true, bad
		}
	}
	return 0, false, ""
}

func (d *doctor) power() Finding {
	f := Finding{Check: "power", Level: OK, Found: "no under-voltage, no throttling"}
	bits, firmware, bad := d.throttled()
	alarm, sensor, alarmBad := d.voltageAlarm()
	const better = "the board's own 27 W supply; the motors have a supply of their own"
	switch {
	case !firmware && !sensor:
		f.unknown("this board does not measure its supply")
	case bits&underVoltageNow != 0 || alarm == 1:
		f.set(Problem, "the board's supply is too low now", better)
	case bits&throttledNow != 0:
		f.set(Problem, "the board has slowed its processor down", "a cooler, or a stronger supply")
	case bits&underVoltageWas != 0:
		f.set(Advice, "the board's supply was too low since its start", better)
	case bits&throttledWas != 0:
		f.set(Advice, "the board slowed its processor down since its start", "a cooler")
	case bad+alarmBad != "":
		f.unknown(cmp.Or(bad, alarmBad))
	}
	return f
}

// heat examines the hottest sensor with a plausible value; a board may also have sensors without a plausible value.
func (d *doctor) heat() Finding {
	hottest, why := int64(math.MinInt64), "no sensor"
	for _, file := range d.glob("sys/class/thermal/thermal_zone[0-9]*/temp") {
		milli, bad := d.number(coldestMilli, hottestMilli, d.below(file))
		if bad != "" {
			why = bad
			continue
		}
		hottest = max(hottest, milli)
	}
	f := Finding{Check: "heat", Level: OK, Found: fmt.Sprintf("%d C", hottest/1000)}
	switch {
	case hottest == math.MinInt64:
		f.unknown(why)
	case hottest >= hotMilli:
		f.Level, f.Better = Problem, fmt.Sprintf("below %d C: a cooler", hotMilli/1000)
	}
	return f
}

func disk(folder string, own bool) Finding {
	var st unix.Statfs_t
	for unix.Statfs(folder, &st) != nil { // before the first run, which makes the folder, its parent is examined
		parent := filepath.Dir(folder)
		if parent == folder {
			return Finding{Check: "disk", Level: Unknown, Found: folder + " cannot be examined"}
		}
		folder = parent
	}
	free := st.Bavail * uint64(st.Bsize) / gib
	f := Finding{Check: "disk", Level: OK, Found: fmt.Sprintf("%d GiB free at %s", free, folder)}
	if free < leastGiB {
		f.Level, f.Better = Problem, fmt.Sprintf("%d GiB for records: delete old ones, or --record-dir on another disk",
			leastGiB)
		f.Command = "du -sh " + device.Quote(folder)
	} else if own && unix.Access(folder, unix.W_OK) != nil {
		f.set(Advice, fmt.Sprintf("this user may not write to %s, where records go", folder),
			"--record-dir with a folder of this user")
	}
	return f
}

// timeSync examines whether the network sets the clock: records have its time, and the check of a certificate needs it.
func (d *doctor) timeSync() Finding {
	f := Finding{Check: "time of day", Level: OK, Found: "set by the network"}
	var state unix.Timex
	code, err := unix.Adjtimex(&state)
	switch {
	case err != nil:
		f.unknown(fmt.Sprintf("the kernel does not report it: %v", err))
	case code == unix.TIME_ERROR || state.Status&unix.STA_UNSYNC != 0:
		f.offer(Advice, "not set by the network", "synchronised: certificates and records depend on it",
			"sudo timedatectl set-ntp true")
	}
	return f
}
