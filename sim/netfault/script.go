// Package netfault disturbs the messages between a robot and a server as a script demands: it loses, duplicates,
// reorders, delays and throttles them, so that all schedules can be measured under the same faults.
//
// A Script is YAML. A Plan is a script with a seed: a pure function from an instant to the effect
// on a message at that instant. Random numbers are drawn per tick and not per message, so that two
// clients that send at different times still meet the same faults (common random numbers). Line
// applies a plan to one direction's messages in simulated or real time; Session wraps a
// wire.Session in real time.
//
// The six message faults and the spike are those of Distributed Real-Time Chunking, section 5.
package netfault

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// Kind is the effect of a fault.
type Kind string

// The kinds of faults. A fault of chunks acts when a chunk reaches the robot, and a fault of
// observations when an observation leaves the robot.
const (
	DropObservation      Kind = "drop_observation"
	DropChunk            Kind = "drop_chunk"
	DuplicateObservation Kind = "duplicate_observation"
	DuplicateChunk       Kind = "duplicate_chunk"
	ReorderObservation   Kind = "reorder_observation" // the message is held until the next message has passed
	ReorderChunk         Kind = "reorder_chunk"
	Spike                Kind = "spike"     // the server stops for the time Delay each time the fault begins
	Latency              Kind = "latency"   // every answer is delayed by Delay
	Jitter               Kind = "jitter"    // every message is delayed by 0 to Delay
	Blackout             Kind = "blackout"  // no message passes in either direction
	Restart              Kind = "restart"   // the server is killed and comes back after the time For
	Bandwidth            Kind = "bandwidth" // BytesPerSecond in each direction
	Trace                Kind = "trace"     // Points determine each message's delay or loss by its time
)

// Kinds lists all kinds of faults, in the order of the documentation.
var Kinds = []Kind{
	DropObservation, DropChunk, DuplicateObservation, DuplicateChunk, ReorderObservation, ReorderChunk,
	Spike, Latency, Jitter, Blackout, Restart, Bandwidth, Trace,
}

// Bounds of the values in a script. Parse refuses a value beyond them as a mistake.
const (
	maxFaults = 64
	maxTime   = 24 * time.Hour
	maxDelay  = time.Minute
	minRate   = 1000 // bytes per second; at a lower rate an observation takes minutes
	maxRate   = 1 << 40
	minNth    = 2 // a script that loses every message has a share of 1 instead
	maxNth    = 1 << 20
	maxPoints = 4096
)

// Fault is one entry of a script. The fault is active from At for the time For, and again each time
// Every has passed. Without For it never ends, and without Every it is active once.
type Fault struct {
	Kind           Kind
	At, For, Every time.Duration
	Share          float64 // share of the messages in the active time; 1 when the YAML has no share
	Nth            int     // instead of a share: every nth message in the active time is lost; 0: use Share
	Delay          time.Duration
	BytesPerSecond int
	Points         []Point // trace: in order of time; repeated each time Every has passed
	Anywhere       bool    // trace: each seed begins at another instant of the trace
}

// Point is the state of the line from the instant At until the next point of a trace.
type Point struct {
	At    time.Duration
	Delay time.Duration // delay of a message, each way
	Lost  bool
}

// Script is a list of faults with a name for reports.
type Script struct {
	Name   string
	Faults []Fault

	// Compute has the additional time of each inference, by the instant at which the inference begins.
	// A script from a file has no Compute.
	Compute []Point
}

// errScript is the error of Parse for an invalid script.
var errScript = errors.New("netfault: bad script")

// yamlScript is the YAML of a Script.
type yamlScript struct {
	Name   string       `yaml:"name"`
	Faults *[]yamlFault `yaml:"faults"`
}

type yamlFault struct {
	Kind           Kind     `yaml:"kind"`
	At             string   `yaml:"at"`
	For            string   `yaml:"for"`
	Every          string   `yaml:"every"`
	Share          *float64 `yaml:"share"`
	Nth            *int     `yaml:"nth"`
	Delay          string   `yaml:"delay"`
	BytesPerSecond int      `yaml:"bytes_per_second"`
	// pairs of seconds and milliseconds; null instead of milliseconds: messages are lost
	Points   [][]*float64 `yaml:"points"`
	Anywhere bool         `yaml:"anywhere"`
}

// Parse parses a script, which is one YAML document with a list of faults. The list may be empty. An error names
// the wrong entry.
func Parse(data []byte) (*Script, error) {
	var src yamlScript
	if err := decode(data, &src); err != nil {
		return nil, fmt.Errorf("%w: %w", errScript, err)
	}
	if src.Faults == nil {
		return nil, fmt.Errorf("%w: it has no faults, want a list of them, or `faults: []` for none", errScript)
	}
	if n := len(*src.Faults); n > maxFaults {
		return nil, fmt.Errorf("%w: %d faults, want at most %d", errScript, n, maxFaults)
	}
	s := &Script{Name: src.Name}
	for i, f := range *src.Faults {
		fault, err := f.fault()
		if err = cmp.Or(err, fault.check()); err != nil {
			return nil, fmt.Errorf("%w: fault %d (%s): %w", errScript, i+1, f.Kind, err)
		}
		s.Faults = append(s.Faults, fault)
	}
	return s, nil
}

// decode fails when the data have more than one document, because the decoder would ignore the further documents.
func decode(data []byte, src *yamlScript) error {
	file, err := userfile.ParseYAML(data)
	if err != nil {
		return err
	}
	if n := len(file.Docs); n > 1 {
		return fmt.Errorf("%d YAML documents, want one: put all faults into one list", n)
	}
	return userfile.DecodeYAML(data, src)
}

func (f yamlFault) fault() (Fault, error) {
	out := Fault{
		Kind:           f.Kind,
		Share:          1,
		BytesPerSecond: f.BytesPerSecond,
		Anywhere:       f.Anywhere,
	}
	var err error
	if out.Points, err = points(f.Points); err != nil {
		return out, err
	}
	if f.Share != nil {
		out.Share = *f.Share
	}
	if f.Nth != nil {
		if out.Nth = *f.Nth; f.Share != nil || out.Nth < minNth || out.Nth > maxNth {
			return out, fmt.Errorf("nth is %d, want %d to %d and no share beside it", out.Nth, minNth, maxNth)
		}
	}
	for _, d := range []struct {
		key, text string
		to        *time.Duration
	}{{"at", f.At, &out.At}, {"for", f.For, &out.For}, {"every", f.Every, &out.Every}, {"delay", f.Delay, &out.Delay}} {
		if d.text == "" {
			continue
		}
		v, err := time.ParseDuration(d.text)
		if err != nil || v < 0 || v > maxTime {
			return out, fmt.Errorf("%s is %q, want a duration such as 1.5s, 0s to %v", d.key, d.text, maxTime)
		}
		*d.to = v
	}
	return out, nil
}

// points checks the points of a trace.
func points(pairs [][]*float64) (all []Point, err error) {
	if len(pairs) > maxPoints {
		return nil, fmt.Errorf("%d points, want at most %d", len(pairs), maxPoints)
	}
	for i, pair := range pairs {
		if len(pair) != 2 || pair[0] == nil || !(*pair[0] >= 0 && *pair[0] <= maxTime.Seconds()) ||
			pair[1] != nil && !(*pair[1] >= 0 && *pair[1] <= maxDelay.Seconds()*1000) {
			return nil, fmt.Errorf("point %d: want [seconds, milliseconds], as in [1.5, 20], the seconds 0 to %g, the "+
				"milliseconds 0 to %g, or null where messages are lost", i+1, maxTime.Seconds(),
				maxDelay.Seconds()*1000)
		}
		p := Point{At: time.Duration(*pair[0] * float64(time.Second)), Lost: pair[1] == nil}
		if !p.Lost {
			p.Delay = time.Duration(*pair[1] * float64(time.Millisecond))
		}
		if i > 0 && p.At <= all[i-1].At {
			return nil, fmt.Errorf("point %d is at %v, want it after the %v of the one before", i+1, p.At, all[i-1].At)
		}
		all = append(all, p)
	}
	return all, nil
}

// shareKinds are the kinds of faults that may act on only a share of the messages.
var shareKinds = []Kind{DropObservation, DropChunk, DuplicateObservation, DuplicateChunk, ReorderObservation,
	ReorderChunk}

// delayKinds are the kinds that need a delay.
var delayKinds = []Kind{Spike, Latency, Jitter}

// check refuses values that make no sense.
func (f *Fault) check() error {
	switch {
	case !slices.Contains(Kinds, f.Kind):
		return fmt.Errorf("kind is %q, want one of %v", f.Kind, Kinds)
	case !(f.Share > 0 && f.Share <= 1):
		return fmt.Errorf("share is %v, want above 0 and at most 1", f.Share)
	case f.Share != 1 && !slices.Contains(shareKinds, f.Kind):
		return fmt.Errorf("share is %v, but a %s has no share", f.Share, f.Kind)
	case f.Nth != 0 && f.Kind != DropObservation && f.Kind != DropChunk:
		return fmt.Errorf("nth is %d, but a %s has no nth: it counts dropped messages only", f.Nth, f.Kind)
	case slices.Contains(delayKinds, f.Kind) != (f.Delay > 0) || f.Delay > maxDelay:
		return fmt.Errorf("delay is %v, want above 0s and at most %v for %v and 0s otherwise", f.Delay, maxDelay,
			delayKinds)
	case (f.Kind == Bandwidth) != (f.BytesPerSecond != 0) || f.Kind == Bandwidth &&
		(f.BytesPerSecond < minRate || f.BytesPerSecond > maxRate):
		return fmt.Errorf("bytes_per_second is %d, want %d to %d for bandwidth and 0 otherwise", f.BytesPerSecond,
			minRate, maxRate)
	case (f.Kind == Trace) != (len(f.Points) > 0) || f.Kind != Trace && f.Anywhere:
		return fmt.Errorf("%d points, want at least one for a trace, and neither points nor anywhere otherwise",
			len(f.Points))
	case f.Kind == Trace:
		return f.checkTrace()
	case f.Kind == Spike && f.For != 0:
		return errors.New("a spike has no for: its delay is how long the server stops")
	case f.Kind == Restart && f.For == 0:
		return errors.New("a restart needs for: how long the server is away")
	case f.Every != 0 && f.Kind != Spike && f.For == 0:
		return errors.New("every without for: give the length of each time")
	case f.Every != 0 && f.Every <= max(f.For, f.Delay):
		return fmt.Errorf("every is %v, want more than the %v that it lasts", f.Every, max(f.For, f.Delay))
	}
	return nil
}

// checkTrace fails when the times of a trace make no sense. A trace repeats as a whole.
func (f *Fault) checkTrace() error {
	last := f.Points[len(f.Points)-1].At
	switch {
	case f.For != 0:
		return errors.New("a trace has no for: after its last point it stays as it is, or begins again after every")
	case f.Every != 0 && f.Every <= last:
		return fmt.Errorf("every is %v, want more than the %v of the last point", f.Every, last)
	case f.Anywhere && f.Every == 0:
		return errors.New("anywhere without every: give the length of the trace")
	}
	return nil
}
