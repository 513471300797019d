package safety

import (
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// part is a part of the robot that a fault can hit: an arm on a bus of its own, or LeKiwi's arm or
// base, which share a bus.
type part struct {
	name   string // empty: the robot's only part
	bus    int    // index of its bus in the run's buses
	motors []robot.Motor
	wheels bool
	*history
}

// Names of the parts that share LeKiwi's bus.
const armPart, basePart = "arm", "base"

func partsOf(r robot.Robot) (parts []part) {
	for bus, p := range r.Parts() {
		arm := part{name: p.Name, bus: bus, history: new(history)}
		base := part{
			name:    basePart,
			bus:     bus,
			wheels:  true,
			history: new(history),
		}
		for j, m := range p.Robot.Motors {
			if p.Robot.Wheels().Has(j) {
				base.motors = append(base.motors, m)
			} else {
				arm.motors = append(arm.motors, m)
			}
		}
		if base.motors == nil {
			parts = append(parts, arm)
			continue
		}
		arm.name = armPart
		parts = append(parts, arm, base)
	}
	return parts
}

// has reports whether the servo with this id belongs to the part.
func (p *part) has(id uint8) bool {
	return slices.ContainsFunc(p.motors, func(m robot.Motor) bool { return m.ID == id })
}

// joints returns the part's motors that correspond to the motors ids of an arm. For a base these
// are its wheels. nil means all motors.
func (p *part) joints(ids []uint8) (own []uint8) {
	if ids == nil {
		for _, m := range p.motors {
			own = append(own, m.ID)
		}
	}
	for _, id := range ids {
		if !p.has(id) {
			id = p.motors[int(id)%len(p.motors)].ID
		}
		own = append(own, id)
	}
	return own
}

// both is the name of all parts together. In a title, partSeparator precedes the name of the parts.
const both, partSeparator = "both", ", on "

// on returns the fault on each part alone, and on all of them. It returns the fault once if the
// fault does not hit single parts, or if the robot has one part. It returns nothing for a fault of
// a base if the robot has no base.
func (f fault) on(parts []part) (all []fault) {
	shared := parts[len(parts)-1].wheels
	if f.Base && !shared {
		return nil
	}
	if len(parts) == 1 || f.Script == nil && f.Bus == nil || f.Whole && shared && !f.Arm {
		return []fault{f}
	}
	for set := 1; set < 1<<len(parts); set++ {
		one := f
		name := both
		arms := true
		for i := range parts {
			if set == 1<<i {
				name = parts[i].name
			}
			arms = arms && (set&(1<<i) == 0 || !parts[i].wheels)
		}
		if f.Arm && !arms {
			continue
		}
		one.set = set
		one.Name += "@" + name
		one.Title += partSeparator + name
		all = append(all, one)
	}
	return all
}

// kind returns the fault's name without the names of the parts.
func (f *fault) kind() string { name, _, _ := strings.Cut(f.Name, "@"); return name }

// hits reports whether the fault hits part i.
func (f *fault) hits(i int) bool { return f.set == 0 || f.set&(1<<i) != 0 }

// hit returns the servos on a bus that the fault hits, where ids are the corresponding motors of an
// arm. nil means all servos of the bus. struck reports whether the fault hits any part on the bus.
func (r *run) hit(bus int, ids []uint8) (own []uint8, struck bool) {
	whole := ids == nil
	for i := range r.parts {
		switch p := &r.parts[i]; {
		case p.bus != bus:
		case r.fault.hits(i):
			own, struck = append(own, p.joints(ids)...), true
		default:
			whole = false
		}
	}
	if whole {
		own = nil
	}
	return own, struck
}

// inject begins the fault's script on the buses that it hits.
func (r *run) inject(seed uint64) error {
	for bus, arm := range r.buses {
		script := servosim.Script{Seed: seed + uint64(bus)}
		for _, l := range r.fault.Script {
			var struck bool
			if l.IDs, struck = r.hit(bus, l.IDs); struck {
				script.Faults = append(script.Faults, l)
			}
		}
		if err := arm.Inject(script); err != nil {
			return err
		}
	}
	return nil
}

// silences reports whether the fault makes motors silent.
func (f *fault) silences() bool {
	return slices.ContainsFunc(f.Script, func(l servosim.Fault) bool {
		return slices.Contains([]string{"power", "reboot", "mute", "unplug"}, l.Kind)
	})
}

// A part stops after two of its motors were silent for staleAfter. starveAfter is the longest time
// for which an edge has actions after the last answered observation.
const (
	staleAfter  = 100 * time.Millisecond
	starveAfter = (sineRows + 1) * period
)

// idleFrom returns the latest instant at which the base loses its permission to drive because of
// the fault; 0 if the base keeps it.
func (r *run) idleFrom() rt.Instant {
	base := slices.IndexFunc(r.parts, func(p part) bool { return p.wheels })
	switch f := r.fault; {
	case base < 0:
	case f.Idle > 0:
		return r.at.Add(f.Idle)
	case f.Starves && r.at.Add(starveAfter+2*period) < r.at.Add(f.For):
		return r.at.Add(starveAfter)
	case f.set != 0 && f.hits(base) && f.silences():
		return r.at.Add(period)
	case f.Away > 0 && f.silences():
		return r.at.Add(staleAfter + period)
	case f.Pause > 0:
		return r.at.Add(f.Pause)
	}
	return 0
}

// restTime is the shortest span of time in which an arm's rest or motion is judged.
const restTime = 300 * time.Millisecond

// judgeOthers checks that the parts that the fault does not hit hold and move as docs/control.md
// demands.
func (r *run) judgeOthers() {
	f := r.fault
	together := r.robot.Safety.Parts != robot.Apart
	shared := len(r.buses) == 1
	for i := range r.parts {
		if f.hits(i) {
			continue
		}
		check := func(from, to rt.Instant, moves bool, why string) {
			if to.Sub(from) >= restTime && r.parts[i].moves(from, to) != moves {
				r.result.part(r.parts[i].name + " " + why)
			}
		}
		over := min(r.over, r.until)
		if f.Pause > 0 {
			check(r.at.Add(f.Pause), r.until, false, "went on without an operator")
			over = min(over, r.at.Add(f.Pause))
		}
		switch {
		case f.Safe == safeOff || f.Unarmed || r.result.ByItself:
		case f.Away > 0 && shared && !f.silences():
		case f.Away > 0 && together:
			check(r.at.Add(f.Away), over, false, "went on beside a part that cannot")
		default:
			check(r.at, over, true, "did not go on")
		}
	}
}

// part counts a violation of partsRule. The parameter what names the part and its wrong behaviour.
func (r *Result) part(what string) {
	r.Violations[partsRule]++
	r.Kept = append(r.Kept, partsRule+": "+what)
}

// partsRule is the rule of judgeOthers.
const partsRule = "parts"
