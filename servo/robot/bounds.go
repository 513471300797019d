package robot

import (
	"fmt"
	"math"
	"strconv"
)

// Bounds are measured values of a motor at which the robot reacts. They are for motors whose own
// limits are too lax: an STS3215 has the same limits at 7.4 V and at 12 V. 0: no bound.
type Bounds struct {
	HotWarn, HotAct int // degrees Celsius: HotWarn and above warns, HotAct and above causes Safety.Overheat
	LowWarn, LowAct int // tenths of a volt: LowWarn and below warns, LowAct and below causes Safety.Voltage
}

// The least and the largest value of a bound. The motors measure whole degrees and tenths of a volt.
const (
	minCelsius, maxCelsius = 30, 120
	minTenths, maxTenths   = 30, 600
)

// boundKeys are the keys of a safety block that set bounds.
const boundKeys = "overheat_warn, overheat_act, undervoltage_warn or undervoltage_act"

// place returns the field that a key sets, nil when the key sets no bound.
func (b *Bounds) place(key string) *int {
	places := map[string]*int{
		"overheat_warn": &b.HotWarn, "overheat_act": &b.HotAct,
		"undervoltage_warn": &b.LowWarn, "undervoltage_act": &b.LowAct,
	}
	return places[key]
}

func (b *Bounds) fill(file map[string]string) error {
	for key, value := range file {
		at := b.place(key)
		if at == nil {
			continue
		}
		v, err := boundOf(key, value)
		if err != nil {
			return fmt.Errorf("safety: %s: got %q, want %w", key, value, err)
		}
		*at = v
	}
	return nil
}

// fillOnly is fill for the safety block of a motor. It fails on a key that sets no bound.
func (b *Bounds) fillOnly(file map[string]string) error {
	for key := range file {
		if b.place(key) == nil {
			return fmt.Errorf("safety: %s: a motor's block may set only %s; the other keys are the robot's", key,
				boundKeys)
		}
	}
	return b.fill(file)
}

func boundOf(key, value string) (int, error) {
	if key == "overheat_warn" || key == "overheat_act" {
		v, err := strconv.Atoi(value)
		if err != nil || v != 0 && (v < minCelsius || v > maxCelsius) {
			return 0, fmt.Errorf("whole degrees Celsius, %d to %d, or 0 for no bound", minCelsius, maxCelsius)
		}
		return v, nil
	}
	volts, err := strconv.ParseFloat(value, 64)
	tenths := math.Round(volts * 10)
	if err != nil || !(math.Abs(volts*10-tenths) < 1e-6) || tenths != 0 && (tenths < minTenths || tenths > maxTenths) {
		return 0, fmt.Errorf("volts to one decimal, %g to %g, or 0 for no bound", minTenths/10., maxTenths/10.)
	}
	return int(tenths), nil
}

func (b Bounds) check(s Safety) error {
	switch {
	case b.HotWarn != 0 && b.HotAct != 0 && b.HotWarn >= b.HotAct:
		return fmt.Errorf("safety: got overheat_warn %d and overheat_act %d, want the warning at a lower temperature",
			b.HotWarn, b.HotAct)
	case b.LowWarn != 0 && b.LowAct != 0 && b.LowWarn <= b.LowAct:
		return fmt.Errorf("safety: got undervoltage_warn %g and undervoltage_act %g, want the warning at a higher "+
			"voltage", volts(b.LowWarn), volts(b.LowAct))
	case b.HotAct != 0 && s.Overheat == Ignore:
		return fmt.Errorf("safety: overheat_act is %d and overheat is ignore, so that nothing would happen; want "+
			"overheat: hold, limp or stop, or no overheat_act", b.HotAct)
	case b.LowAct != 0 && s.Voltage == Ignore:
		return fmt.Errorf("safety: undervoltage_act is %g and voltage is ignore, so that nothing would happen; want "+
			"voltage: hold, limp or stop, or no undervoltage_act", volts(b.LowAct))
	}
	return nil
}

func volts(tenths int) float64 { return float64(tenths) / 10 }
