package servosim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/sim/motor"
)

// series is a family of servos with the same memory table and the same rules.
type series uint8

const (
	seriesSTS series = iota // Feetech STS and SMS
	seriesX                 // Dynamixel X: protocol 2.0
	seriesAX                // Dynamixel AX: protocol 1.0
)

func (s series) protocol2() bool { return s == seriesX }

func (s series) feetech() bool { return s == seriesSTS }

// register is one row of a memory table: the first address, the width in bytes, the factory value,
// and the range of accepted values. lo == hi means that every value is accepted.
type register struct {
	addr    uint16
	size    uint8
	factory int64
	lo, hi  int64
}

// fixed reports whether no client can write the register, because its range is empty.
//
//rt:noalloc
func (r *register) fixed() bool { return r.lo > r.hi }

// constant is a register that no client can write.
type constant struct {
	addr  uint16
	size  uint8
	value int64 // factory value; most of these registers hold measurements later
}

// addresses holds the addresses of the registers that the simulator itself uses. The constant none
// marks a register that the series lacks.
type addresses struct {
	model, id, baud, returnDelay, returnLevel int
	minLimit, maxLimit, offset, mode          int
	maxTemperature, maxVoltage, minVoltage    int
	torque, goal, torqueLimit, lock           int
	present, velocity, load                   int
	voltage, temperature, registered, moving  int
}

const none = -1

// table is the memory of a series.
type table struct {
	series
	size     int     // bytes of memory
	eeprom   int     // first address whose value is lost in a power cycle
	counts   int     // encoder counts in arc
	arc      float64 // radians of the range
	gainDuty float64 // STS, X: error in counts times P gain at which the duty is 1
	bauds    []baud
	at       addresses
	windows  []window // indirect addresses
	rows     []register
	readOnly []constant     // the registers that no client can write; indexed adds them to rows
	index    [memSize]uint8 // for each byte of memory: 1 + the index of its row; 0: no row
}

// baud is a rate, in bits per second, with its code in the register of the baud rate.
type baud struct {
	code uint8
	rate int
}

const memSize = 1024 // bytes of the largest memory

// model is one kind of servo: its differences from its series' table, and its motor.
type model struct {
	name    string // LeRobot's name
	number  uint16
	table   *table
	factory []setting
	amp     float64 // X: amperes of one unit of current; 0: the register contains a load
	motor   motor.Motor
}

// dc returns a motor; the units are motor.Motor's.
func dc(volts, kt, ohm, inertia, coulomb, viscous, stall float64) motor.Motor {
	return motor.Motor{
		Volts:   volts,
		KT:      kt,
		Ohm:     ohm,
		Inertia: inertia,
		Coulomb: coulomb,
		Viscous: viscous,
		Stall:   stall,
	}
}

type setting struct {
	addr  int
	value int64
}

func indexed(t table) *table {
	for _, c := range t.readOnly {
		t.rows = append(t.rows, register{
			addr:    c.addr,
			size:    c.size,
			factory: c.value,
			lo:      1,
		})
	}
	slices.SortFunc(t.rows, func(a, b register) int { return int(a.addr) - int(b.addr) })
	for i, r := range t.rows {
		for a := int(r.addr); a < int(r.addr)+int(r.size); a++ {
			t.index[a] = uint8(i + 1)
		}
	}
	return &t
}

// row returns the register to which the byte at addr belongs; nil when there is no such register.
//
//rt:noalloc
func (t *table) row(addr int) *register {
	if addr < 0 || addr >= memSize || t.index[addr] == 0 {
		return nil
	}
	return &t.rows[t.index[addr]-1]
}

// rate returns the rate of a baud code; 0 when the code has no rate.
//
//rt:noalloc
func (t *table) rate(code uint8) int {
	for i := range t.bauds {
		if t.bauds[i].code == code {
			return t.bauds[i].rate
		}
	}
	return 0
}

func (t *table) code(rate int) (uint8, bool) {
	for _, b := range t.bauds {
		if b.rate == rate {
			return b.code, true
		}
	}
	return 0, false
}

func (t *table) rates() (all []int) {
	for _, b := range t.bauds {
		all = append(all, b.rate)
	}
	return all
}

var models = slices.Concat(feetechModels, dynamixelModels)

// Models returns the names of all models, in LeRobot's spelling where LeRobot has the model.
func Models() (names []string) {
	for i := range models {
		names = append(names, models[i].name)
	}
	return names
}

func modelByName(name string) (*model, error) {
	for i := range models {
		if models[i].name == name {
			return &models[i], nil
		}
	}
	return nil, fmt.Errorf("servosim: got model %q, want one of %s", name, strings.Join(Models(), ", "))
}

func joints(models []*model, loads []motor.Load) []motor.Joint {
	all := make([]motor.Joint, len(models))
	for i, m := range models {
		all[i] = motor.Joint{Motor: m.motor, Counts: m.table.counts, Arc: m.table.arc}
		if i < len(loads) {
			all[i].Load = loads[i]
		}
	}
	return all
}
