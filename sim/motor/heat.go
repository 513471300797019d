package motor

import (
	"math"

	"github.com/edge-rt/edge-rt/rt"
)

const (
	ambient  = 30.0  // temperature of the room in deg C
	heatTime = 540.0 // s, time constant of the housing
	// deg C above ambient in the long run, at full duty without motion: at half the duty, ten
	// minutes give 15
	heatStall = 89.6
	railOhm   = 0.15
	sagMax    = 5.0 // largest voltage drop of the rail
)

// Heat is the temperature of a motor's housing.
type Heat struct {
	Celsius float64
	at      rt.Instant
	source  float64 // degrees that another source adds
}

// NewHeat returns the temperature of a motor that was off for a long time.
//
//rt:noalloc
func NewHeat(now rt.Instant) Heat { return Heat{Celsius: ambient, at: now} }

// Since returns the time from the last update of the temperature to now, in seconds.
//
//rt:noalloc
func (h *Heat) Since(now rt.Instant) float64 { return now.Sub(h.at).Seconds() }

// Advance updates the temperature to now. amps is the motor's current since the last update.
//
//rt:noalloc
func (h *Heat) Advance(m *Motor, amps float64, now rt.Instant) {
	dt := h.Since(now)
	if dt <= 0 {
		return
	}
	share := amps * m.Ohm / m.Volts
	end := ambient + h.source + heatStall*share*share
	h.Celsius = end + (h.Celsius-end)*math.Exp(-dt/heatTime)
	h.at = now
}

// Add simulates another source of heat: it raises the temperature at once by this number of degrees, and keeps it
// raised. With 0 it removes the source.
//
//rt:noalloc
func (h *Heat) Add(degrees float64) {
	h.source = degrees
	h.Celsius += degrees
}

// Rail is the supply that all motors of a bus share.
type Rail struct{ amps float64 }

// Draw replaces the current that a motor drew before by the current that it draws now.
//
//rt:noalloc
func (r *Rail) Draw(before, now float64) { r.amps = max(r.amps+now-before, 0) }

// Volts returns the voltage under the load of all motors; supply is the voltage without load.
//
//rt:noalloc
func (r *Rail) Volts(supply float64) float64 { return max(supply-min(r.amps*railOhm, sagMax), 0) }
