package servosim

import (
	_ "embed" // registers.txt, models.txt
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

type setting struct {
	addr  int
	value int64
}

//go:embed registers.txt
var registers string

// fill appends the rows and the rates of a section of registers.txt to t, and sets the addresses that it names.
func (t *table) fill(section string) {
	at, in := map[string]int{}, ""
	for line := range strings.Lines(registers) {
		switch words := strings.Fields(line); {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "=":
			in = words[1]
		case in != section:
		case words[0] == "baud":
			var b baud
			scan(strings.TrimPrefix(line, "baud"), &b.code, &b.rate)
			t.bauds = append(t.bauds, b)
		default:
			var r register
			scan(line, &r.addr, &r.size, &r.factory, &r.lo, &r.hi)
			t.rows = append(t.rows, r)
			if len(words) > 5 {
				at[words[5]] = int(r.addr)
			}
		}
	}
	a := &t.at
	for name, to := range map[string]*int{
		"model": &a.model, "id": &a.id, "baud": &a.baud, "return_delay": &a.returnDelay, "return_level": &a.returnLevel,
		"min_limit": &a.minLimit, "max_limit": &a.maxLimit, "offset": &a.offset, "mode": &a.mode,
		"max_temperature": &a.maxTemperature, "max_voltage": &a.maxVoltage, "min_voltage": &a.minVoltage,
		"torque": &a.torque, "goal": &a.goal, "torque_limit": &a.torqueLimit, "lock": &a.lock, "present": &a.present,
		"velocity": &a.velocity, "load": &a.load, "voltage": &a.voltage, "temperature": &a.temperature,
		"registered": &a.registered, "moving": &a.moving,
	} {
		addr, has := at[name]
		if !has {
			addr = none
		}
		*to = addr
	}
}

// scan reads the words of an embedded line. It panics on a malformed line, at the start of the program.
func scan(line string, to ...any) {
	if _, err := fmt.Sscan(line, to...); err != nil {
		panic("servosim: " + line + err.Error())
	}
}

// indexed returns t with the rows and the rates of a section of registers.txt.
func indexed(section string, t table) *table {
	t.fill(section)
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

//go:embed models.txt
var modelLines string

// models are the lines of models.txt.
var models = func() (all []model) {
	tables := map[string]*table{"sts": stsTable, "x": xTable, "x330": x330Table, "ax": axTable}
	for line := range strings.Lines(modelLines) {
		if line[0] == '#' {
			continue
		}
		var m model
		var memory string
		o := &m.motor
		scan(line, &m.name, &m.number, &memory, &m.amp, &o.Volts, &o.KT, &o.Ohm, &o.Inertia, &o.Coulomb, &o.Viscous,
			&o.Stall)
		m.table = tables[memory]
		for _, other := range strings.Fields(line)[11:] {
			var s setting
			scan(strings.Replace(other, "=", " ", 1), &s.addr, &s.value)
			m.factory = append(m.factory, s)
		}
		all = append(all, m)
	}
	return all
}()

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
