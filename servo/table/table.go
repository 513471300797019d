// Package table holds the control tables of the supported servos as data: the registers of a model,
// their addresses and the encoding of their values.
//
// A Register is LeRobot's name of a register, the same for all models. A Row is the address and
// form of a register in one model. A new model needs an entry in models, a new list of rows when no
// existing list fits, and an entry in sim/servosim (feetech.go, dynamixel.go), which simulates it.
//
// Sources: Feetech memory tables (STS3215), ROBOTIS e-manual (X series, AX-12A), LeRobot
// motors/feetech/tables.py and motors/dynamixel/tables.py.
package table

import (
	"fmt"
	"slices"
	"strings"
)

// Protocol is the protocol of a servo. Words are little endian in all of them.
type Protocol uint8

const (
	Feetech    Protocol = iota // STS and SMS
	Dynamixel1                 // the same frame as Feetech, without a sync read
	Dynamixel2                 // another frame: stuffing, CRC, two-byte addresses
)

func (p Protocol) String() string {
	return [...]string{"Feetech STS/SMS", "Dynamixel 1.0", "Dynamixel 2.0"}[p]
}

// SyncRead reports whether one request can read all servos.
func (p Protocol) SyncRead() bool { return p != Dynamixel1 }

// Area is the memory of a register, which decides the cost of a write: EEPROM wears out after some
// 10,000 to 100,000 writes, and a write stalls the servo for milliseconds.
type Area uint8

const (
	RAM Area = iota
	EEPROM
	ReadOnly
)

// Sign is a register's encoding of negative values: unsigned, two's complement, or a magnitude with
// the sign in bit n.
type Sign int8

const (
	Unsigned Sign = 0
	Twos     Sign = -1 // a positive Sign is the number of the bit that holds the sign
)

// Row is one register of one model.
type Row struct {
	Register Register
	Addr     int
	Size     int // bytes: 1, 2 or 4; 0 when the model has no such register
	Area     Area
	Sign     Sign
}

// Model is one kind of servo.
type Model struct {
	Name       string // LeRobot's name, such as xl430-w250
	Number     int    // value of Model_Number
	Protocol   Protocol
	Resolution int     // encoder steps of a turn, or of the potentiometer's range
	Span       float64 // degrees of Resolution-1 steps in LeRobot's arithmetic
	Offset     int     // Present = Actual + Offset*Homing_Offset; 0: no such register
	CurrentMA  float64 // milliamperes of one step of Present_Current; 0: no such register
	rows       map[Register]Row
}

// newModel returns m with rows, except those of the registers in without. It panics on a row that occurs twice.
func newModel(m Model, rows []Row, without ...Register) *Model {
	m.rows = make(map[Register]Row, len(rows))
	for _, r := range rows {
		if slices.Contains(without, r.Register) {
			continue
		}
		if m.rows[r.Register].Size != 0 {
			panic("table: " + m.Name + " has " + string(r.Register) + " twice")
		}
		m.rows[r.Register] = r
	}
	return &m
}

// Row returns the model's row of a register; its Size is 0 when the model lacks the register.
func (m *Model) Row(r Register) Row { return m.rows[r] }

// Has reports whether the model has the register.
func (m *Model) Has(r Register) bool { return m.rows[r].Size != 0 }

// MaxRaw returns the highest position within a turn.
func (m *Model) MaxRaw() int { return m.Resolution - 1 }

// ByName returns the model with that name. The error lists the names of all models.
func ByName(name string) (*Model, error) {
	for _, m := range models {
		if m.Name == strings.ToLower(name) {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no servo model %q, want one of %s", name, strings.Join(Names(), ", "))
}

// ByNumber returns the first model with that number and protocol; nil when there is none.
func ByNumber(number int, p Protocol) *Model {
	for _, m := range models {
		if m.Number == number && m.Protocol == p {
			return m
		}
	}
	return nil
}

// Names returns the names of all models.
func Names() []string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name
	}
	return names
}

// baud is one rate of a protocol, in bits per second, with its code in Baud_Rate.
type baud struct{ Rate, Code int }

// bauds lists the rates of each protocol's servos, the usual ones first.
//
// Feetech's manual and LeRobot disagree on the rates of codes 5 to 7. Here the codes have LeRobot's
// rates, and a scan tries the manual's rates too.
var bauds = [...][]baud{
	Feetech: {{1_000_000, 0}, {500_000, 1}, {250_000, 2}, {128_000, 3}, {115_200, 4}, {57_600, 5}, {38_400, 6},
		{19_200, 7}},
	Dynamixel1: {{1_000_000, 1}, {57_142, 34}, {117_647, 16}, {500_000, 3}, {250_000, 7}, {200_000, 9}, {400_000, 4},
		{19_230, 103}, {9_615, 207}},
	Dynamixel2: {{1_000_000, 3}, {57_600, 1}, {115_200, 2}, {2_000_000, 4}, {3_000_000, 5}, {4_000_000, 6}, {9_600, 0}},
}

// BaudCode returns the code of a rate; ok is false when the protocol has no code for it.
func (p Protocol) BaudCode(rate int) (int, bool) {
	for _, b := range bauds[p] {
		if b.Rate == rate {
			return b.Code, true
		}
	}
	return 0, false
}

// Decode returns the value of the row's bytes.
//
//rt:noalloc
func (r Row) Decode(b []byte) int {
	word := uint32(0)
	for i := range r.Size {
		word |= uint32(b[i]) << (8 * i)
	}
	switch {
	case r.Sign == Unsigned:
		return int(word)
	case r.Sign == Twos:
		unused := 32 - 8*r.Size
		return int(int32(word<<unused) >> unused)
	}
	magnitude := int(word & (1<<r.Sign - 1))
	if word&(1<<r.Sign) != 0 {
		return -magnitude
	}
	return magnitude
}

//rt:noalloc
func (r Row) limits() (low, high int) {
	switch {
	case r.Sign == Unsigned:
		return 0, 1<<(8*r.Size) - 1
	case r.Sign == Twos:
		return -1 << (8*r.Size - 1), 1<<(8*r.Size-1) - 1
	}
	return 1 - 1<<r.Sign, 1<<r.Sign - 1
}

// Check fails when value does not fit the register.
func (r Row) Check(value int) error {
	if low, high := r.limits(); value < low || value > high {
		return fmt.Errorf("%s = %d does not fit, want %d to %d", r.Register, value, low, high)
	}
	return nil
}

// Append appends the row's bytes for a value that fits.
//
//rt:noalloc
func (r Row) Append(dst []byte, value int) []byte {
	word := uint32(value)
	if r.Sign > 0 && value < 0 {
		word = uint32(-value) | 1<<r.Sign
	}
	for i := range r.Size {
		dst = append(dst, byte(word>>(8*i)))
	}
	return dst
}
