package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	hotMilli = 80_000  // degrees Celsius / 1000 at which a Pi slows down
	leastGiB = 2       // free room for records
	gib      = 1 << 30 // bytes
)

// board examines power, heat, disk and clock.
func (d *doctor) board() []Finding { return []Finding{d.power(), d.heat(), d.disk(), d.timeSync()} }

// The bits of a Raspberry Pi's get_throttled.
//
// Source: Raspberry Pi documentation, vcgencmd get_throttled.
const (
	underVoltageNow = 1 << 0
	throttledNow    = 1<<1 | 1<<2 | 1<<3
	underVoltageWas = 1 << 16
	throttledWas    = 1<<17 | 1<<18 | 1<<19
)

func (d *doctor) power() Finding {
	f := Finding{Check: "power", Level: OK, Found: "no under-voltage, no throttling"}
	text := d.read("sys/devices/platform/soc/soc:firmware/get_throttled")
	bits, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
	alarm := ""
	for _, name := range d.glob("sys/class/hwmon/hwmon*/name") {
		dir := strings.TrimPrefix(filepath.Dir(name), d.Root)
		if d.read(dir, "name") == "rpi_volt" {
			alarm = d.read(dir, "in0_lcrit_alarm")
		}
	}
	const better = "the board's own 27 W supply; the motors have a supply of their own"
	switch {
	case err != nil && alarm == "":
		f.Level, f.Found = Unknown, "this board does not measure its supply"
	case bits&underVoltageNow != 0 || alarm == "1":
		f.Level = Problem
		f.Found = "the board's supply is too low now"
		f.Better = better
	case bits&throttledNow != 0:
		f.Level = Problem
		f.Found = "the board has slowed its processor down"
		f.Better = "a cooler, or a stronger supply"
	case bits&underVoltageWas != 0:
		f.Level = Advice
		f.Found = "the board's supply was too low since its start"
		f.Better = better
	case bits&throttledWas != 0:
		f.Level = Advice
		f.Found = "the board slowed its processor down since its start"
		f.Better = "a cooler"
	}
	return f
}

func (d *doctor) heat() Finding {
	milli, err := strconv.Atoi(d.read("sys/class/thermal/thermal_zone0/temp"))
	f := Finding{Check: "heat", Level: OK, Found: fmt.Sprintf("%d C", milli/1000)}
	switch {
	case err != nil:
		f.Level, f.Found = Unknown, "no sensor"
	case milli >= hotMilli:
		f.Level, f.Better = Problem, fmt.Sprintf("below %d C: a cooler", hotMilli/1000)
	}
	return f
}

func (d *doctor) disk() Finding {
	var st unix.Statfs_t
	folder := d.Folder
	for unix.Statfs(folder, &st) != nil { // the folder is made by the first run
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
		f.Command = "du -sh " + folder
	}
	return f
}

// timeSync examines whether the network sets the clock: records carry it, and certificates need it.
func (d *doctor) timeSync() Finding {
	f := Finding{Check: "time of day", Level: OK, Found: "set by the network"}
	var state unix.Timex
	code, err := unix.Adjtimex(&state)
	switch {
	case err != nil:
		f.Level, f.Found = Unknown, fmt.Sprintf("the kernel does not tell: %v", err)
	case code == unix.TIME_ERROR || state.Status&unix.STA_UNSYNC != 0:
		f.Level, f.Safe = Advice, true
		f.Found = "not set by the network"
		f.Better = "synchronised: certificates and records depend on it"
		f.Command = "sudo timedatectl set-ntp true"
	}
	return f
}

// RecordFolder returns the folder whose disk is examined: dir, else the user's state folder.
func RecordFolder(dir string) string {
	if dir != "" {
		return dir
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state")
	}
	return "/"
}
