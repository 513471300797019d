package motor

import (
	"math"

	"edgert/rt"
)

const (
	ambient   = 30.0  // deg C
	heatTime  = 540.0 // s, of the housing
	heatStall = 89.6  // deg C above ambient in the end, at full duty and standing still: half of it for ten minutes gives 15
	railOhm   = 0.15
	sagMax    = 5.0 // V, that the rail may lose
)

// Heat is the temperature of a motor's housing.
type Heat struct {
	Celsius float64
	at      rt.Instant
	source  float64 // degrees that something else adds
}

// NewHeat is a motor that was off for long.
//
//rt:noalloc
func NewHeat(now rt.Instant) Heat { return Heat{Celsius: ambient, at: now} }

// Since is how long ago the temperature was brought up to date.
//
//rt:noalloc
func (h *Heat) Since(now rt.Instant) float64 { return now.Sub(h.at).Seconds() }

// Advance brings the temperature up to an instant; the motor drew amps until then.
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

// Add puts degrees on the housing at once that stay; 0 takes their source away.
//
//rt:noalloc
func (h *Heat) Add(degrees float64) {
	h.source = degrees
	h.Celsius += degrees
}

// Rail is the supply that all motors of a bus share.
type Rail struct{ amps float64 }

// Draw replaces what one motor drew from the supply by what it draws now.
//
//rt:noalloc
func (r *Rail) Draw(before, now float64) { r.amps = max(r.amps+now-before, 0) }

// Volts is what is left of a supply under the load of all.
//
//rt:noalloc
func (r *Rail) Volts(supply float64) float64 { return max(supply-min(r.amps*railOhm, sagMax), 0) }
