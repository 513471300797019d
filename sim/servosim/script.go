package servosim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// errScript marks an invalid fault script.
var errScript = errors.New("servosim: fault script does not fit")

// Script is a list of faults with their times. The same script and requests give the same faults.
//
//	seed: 7
//	faults:
//	  - {kind: drop, ids: [3], probability: 0.01}
//	  - {kind: late, by: 8ms, from: 2s, until: 10s, count: 5}
//	  - {kind: brownout, volts: 3.5, from: 5s, until: 5.3s}
//	  - {kind: unplug, from: 8s, until: 10s}
type Script struct {
	Seed   uint64  `yaml:"seed"`
	Faults []Fault `yaml:"faults"`
}

// Fault is one line of a script. Times count from Open, or from Inject.
type Fault struct {
	Kind        string        `yaml:"kind"`        // one of kindNames
	IDs         []uint8       `yaml:"ids"`         // default: all servos
	Probability *float64      `yaml:"probability"` // share of the replies that get the fault; default 1
	Count       int           `yaml:"count"`       // largest number of replies with the fault; default: no limit
	From        time.Duration `yaml:"from"`
	Until       time.Duration `yaml:"until"`   // default: for ever
	By          time.Duration `yaml:"by"`      // late, stall: duration; default 5 ms
	Bits        int           `yaml:"bits"`    // corrupt: number of flipped bits; default 1
	Bytes       int           `yaml:"bytes"`   // noise: number; default 8, at most 64; flood: number each millisecond, default 64
	Volts       float64       `yaml:"volts"`   // brownout, voltage: of the supply
	Degrees     float64       `yaml:"degrees"` // heat: in addition to the motor's own heat
	Torque      float64       `yaml:"torque"`  // push: N m, on a fitted bus
	Offset      int           `yaml:"offset"`  // encoder, misread: counts, added to the true position
	Drift       float64       `yaml:"drift"`   // encoder: counts per second, added
	Stuck       bool          `yaml:"stuck"`   // encoder: its reading stays as it was at the beginning of the fault
	Silent      bool          `yaml:"silent"`  // encoder: no error bit reports the fault
	At          *int          `yaml:"at"`      // block: position that the shaft cannot pass; default: its present one
	Holds       bool          `yaml:"holds"`   // block: an object, which falls when the shaft does not press on it any more
}

// OfSupply reports whether the fault concerns the supply.
func (f Fault) OfSupply() bool {
	return slices.Contains([]string{kindNames[kindPower], kindNames[kindVoltage], kindNames[kindBrownout]}, f.Kind)
}

// kind is the effect of a fault.
type kind uint8

const (
	kindNone kind = iota
	// The kinds that affect a reply.
	kindDrop
	kindCorrupt
	kindTruncate
	kindDuplicate
	kindLate
	kindStall
	kindWrongID
	kindNoise
	kindReorder
	kindGarble
	// The kinds that last for a span of time.
	kindMute
	kindEcho
	kindBrownout
	kindHeat
	kindPush
	kindUnplug
	kindPower
	kindVoltage
	kindEncoder
	kindBlock
	kindFlood
	kindMisread
	// The kinds that happen at an instant.
	kindOverload
	kindReboot
	kinds
)

var kindNames = [kinds]string{
	kindDrop: "drop", kindCorrupt: "corrupt", kindTruncate: "truncate", kindDuplicate: "duplicate", kindLate: "late",
	kindStall: "stall", kindWrongID: "wrong_id", kindNoise: "noise", kindReorder: "reorder", kindGarble: "garble",
	kindMute: "mute",
	kindEcho: "echo", kindBrownout: "brownout", kindHeat: "heat", kindPush: "push", kindUnplug: "unplug",
	kindOverload: "overload", kindReboot: "reboot",
	kindPower: "power", kindVoltage: "voltage", kindEncoder: "encoder", kindBlock: "block", kindFlood: "flood",
	kindMisread: "misread",
}

const (
	faultLinesMax = 64
	defaultBy     = 5 * time.Millisecond
	defaultNoise  = 8
	bitsMax       = 64
	encoderMax    = 1 << 20 // counts
)

// LoadScript reads a script from a file. It fails with errScript.
func LoadScript(path string) (s Script, err error) {
	text, err := userfile.ReadYAML(path)
	if err != nil {
		return s, fmt.Errorf("%w: %w", errScript, err)
	}
	s, err = ParseScript(text)
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ParseScript parses a script. It fails with errScript.
func ParseScript(text []byte) (s Script, err error) {
	if err := userfile.DecodeYAML(text, &s); err != nil {
		return s, fmt.Errorf("%w: %w", errScript, err)
	}
	return s, s.check()
}

func (s *Script) check() error {
	if len(s.Faults) > faultLinesMax {
		return fmt.Errorf("%w: %d faults, want at most %d", errScript, len(s.Faults), faultLinesMax)
	}
	for i := range s.Faults {
		if err := s.Faults[i].check(); err != nil {
			return fmt.Errorf("%w: fault %d: %w", errScript, i+1, err)
		}
	}
	return nil
}

func (f *Fault) check() error {
	k := kind(slices.Index(kindNames[:], f.Kind))
	bad := func(name string, v any, want string) error { return fmt.Errorf("%s: got %v, want %s", name, v, want) }
	switch {
	case f.Kind == "" || k >= kinds:
		return bad("kind", fmt.Sprintf("%q", f.Kind), "one of "+strings.Join(kindNames[1:], ", "))
	case f.Probability != nil && !(*f.Probability > 0 && *f.Probability <= 1):
		return bad("probability", *f.Probability, "above 0 and at most 1, or no such line for every reply")
	case f.Count < 0 || f.From < 0 || f.By < 0 || f.Bits < 0:
		return errors.New("a count or a time is negative")
	case f.Bits > bitsMax:
		return bad("bits", f.Bits, fmt.Sprintf("1 to %d", bitsMax))
	case f.Until != 0 && f.Until <= f.From:
		return bad("until", f.Until, "a time after from")
	case f.Bytes < 0 || f.Bytes > noiseMax:
		return bad("bytes", f.Bytes, fmt.Sprintf("1 to %d", noiseMax))
	case k == kindBrownout && !(f.Volts >= 0 && f.Volts < 60):
		return bad("volts", f.Volts, "0 to 60")
	case k == kindVoltage && !(f.Volts > 0 && f.Volts < 60):
		return bad("volts", f.Volts, "above 0, below 60")
	case k == kindEncoder && (f.Offset == 0 && f.Drift == 0 && !f.Stuck || !(math.Abs(f.Drift) <= encoderMax) ||
		f.Offset < -encoderMax || f.Offset > encoderMax):
		return fmt.Errorf("encoder: got offset %d, drift %v, stuck %v, want one of them, at most %d", f.Offset, f.Drift,
			f.Stuck, encoderMax)
	case k == kindMisread && (f.Offset == 0 || f.Offset < -encoderMax || f.Offset > encoderMax):
		return bad("offset", f.Offset, fmt.Sprintf("another number than 0, at most %d", encoderMax))
	case f.At != nil && (*f.At < -encoderMax || *f.At > encoderMax):
		return bad("at", *f.At, fmt.Sprintf("%d to %d", -encoderMax, encoderMax))
	case math.IsNaN(f.Degrees+f.Torque) || math.IsInf(f.Degrees+f.Torque, 0):
		return errors.New("degrees or torque is not a number")
	}
	return nil
}

// timeline is a running script. Guarded by Bus.mu.
type timeline struct {
	lines []line
}

type line struct {
	seed         uint64
	kind         kind
	ids          [256]bool
	threshold    uint64 // a random number below it means that the reply gets the fault
	left         int    // replies that may still get the fault; -1: no limit
	from, until  rt.Instant
	n            int
	fault        Fault
	tries        []uint64 // number of draws so far, per servo: an input of the next draw's random number
	begun, ended bool
}

const forever = rt.Instant(math.MaxInt64)

func newTimeline(s Script, servos int, now rt.Instant) timeline {
	var t timeline
	for _, f := range s.Faults {
		l := line{
			seed:      s.Seed,
			kind:      kind(slices.Index(kindNames[:], f.Kind)),
			threshold: math.MaxUint64,
			left:      -1,
			n:         max(f.Bits, 1),
			from:      now.Add(f.From),
			until:     forever,
			fault:     f,
			tries:     make([]uint64, servos),
		}
		for i := range l.ids {
			l.ids[i] = f.IDs == nil || slices.Contains(f.IDs, uint8(i))
		}
		if f.Probability != nil && *f.Probability < 1 {
			l.threshold = uint64(*f.Probability * math.MaxUint64)
		}
		if f.Count > 0 {
			l.left = f.Count
		}
		if f.Until > 0 {
			l.until = now.Add(f.Until)
		}
		l.fault.By = cmp.Or(f.By, defaultBy)
		if l.kind == kindNoise {
			l.n = cmp.Or(f.Bytes, defaultNoise)
		}
		t.lines = append(t.lines, l)
	}
	return t
}

// draw decides by chance which fault a reply gets. It lowers the number of replies that may still
// get this fault.
//
//rt:noalloc
func (t *timeline) draw(servo int, s *servo, now rt.Instant) fault {
	for i := range t.lines {
		l := &t.lines[i]
		if l.kind > kindGarble || !l.ids[s.mem[s.at.id]] || now < l.from || now >= l.until || l.left == 0 {
			continue
		}
		seed := mix(l.seed ^ mix(uint64(i)<<32|uint64(servo)) + l.tries[servo]<<8)
		l.tries[servo]++
		if mix(seed) > l.threshold {
			continue
		}
		if l.left > 0 {
			l.left--
		}
		return fault{l.kind, l.fault.By, l.n, seed}
	}
	return fault{}
}

// next returns the instant at which the next line of the script begins or ends.
//
//rt:noalloc
func (t *timeline) next() rt.Instant {
	at := forever
	for i := range t.lines {
		switch l := &t.lines[i]; {
		case l.kind <= kindGarble || l.ended:
		case !l.begun:
			at = min(at, l.from)
		default:
			at = min(at, l.until)
		}
	}
	return at
}

// echoes reports whether the adapter returns the bytes that it receives.
//
//rt:noalloc
func (b *Bus) echoes(now rt.Instant) bool {
	if b.cfg.Echo {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.timeline.lines {
		if l := &b.timeline.lines[i]; l.kind == kindEcho && now >= l.from && now < l.until {
			return true
		}
	}
	return false
}

// tick does the work that is due: it begins and ends lines of the script, and fires watchdogs.
//
//rt:noalloc
func (b *Bus) tick(now rt.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.timeline.lines {
		l := &b.timeline.lines[i]
		if l.kind <= kindGarble || l.ended {
			continue
		}
		if !l.begun && now >= l.from {
			l.begun = true
			l.ended = l.kind >= kindOverload
			b.switchFault(l, true, now)
		}
		if l.begun && !l.ended && now >= l.until {
			l.ended = true
			b.switchFault(l, false, now)
		}
	}
	for _, s := range b.servos {
		s.expire(now)
	}
}

//rt:noalloc
func (b *Bus) switchFault(l *line, on bool, now rt.Instant) {
	if on {
		b.counters.faults.Add(1)
	}
	switch l.kind {
	case kindUnplug:
		b.plugged = !on
		return
	case kindFlood:
		b.flood = 0
		if on {
			b.flood = cmp.Or(l.fault.Bytes, noiseMax)
		}
		return
	}
	for _, s := range b.servos {
		if !l.ids[s.mem[s.at.id]] {
			continue
		}
		b.applyFault(s, l, on, now)
		s.emitChange(now)
	}
}

//rt:noalloc
func (b *Bus) applyFault(s *servo, l *line, on bool, now rt.Instant) {
	value := l.fault.Volts + l.fault.Degrees + l.fault.Torque // at most one of the three is set
	if !on {
		value = 0
	}
	switch l.kind {
	case kindMute:
		s.mute = on
	case kindPower, kindVoltage, kindBrownout:
		if l.kind != kindBrownout {
			s.health.low = on
		}
		if on {
			s.supply(value, now)
		} else {
			s.supply(s.model.motor.Volts, now)
		}
	case kindEncoder:
		f := motor.EncoderFault{
			Offset: l.fault.Offset,
			Drift:  l.fault.Drift,
			Stuck:  l.fault.Stuck,
			Silent: l.fault.Silent,
		}
		if !on {
			f = motor.EncoderFault{}
		}
		s.setEncoderFault(f, now)
	case kindMisread:
		s.misread = misread{}
		if on {
			s.misread = misread{left: cmp.Or(l.fault.Count, -1), offset: l.fault.Offset}
		}
	case kindBlock:
		switch {
		case !on:
			s.setObstacle(motor.Obstacle{}, now)
		case l.fault.At == nil:
			s.block(0, true, l.fault.Holds, now)
		default:
			s.block(*l.fault.At, false, l.fault.Holds, now)
		}
	case kindHeat:
		s.health.heat.Add(value)
	case kindPush:
		if s.motors != nil {
			s.motors.Push(now, s.joint, value)
		}
	case kindOverload:
		s.overload(now)
	case kindReboot:
		s.reboot(now)
	}
}
