package bringup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	maxRobots       = 4096     // further robots are not shown; their messages are counted
	maxTelemetry    = 64 << 10 // bytes of a telemetry message; longer messages are counted and dropped
	maxFleetText    = 128      // bytes of a text in a message; a message with a longer text is dropped, too
	maxFigure       = 1e12     // largest accepted figure: counts and seconds of real runs are smaller
	fleetGone       = 10 * time.Second
	fleetDial       = 3 * time.Second
	streaming       = "STREAMING"
	fleetStateOrder = "DEAD STALLED RECONNECTING DEGRADED CONNECTING " + streaming
)

// FleetConfig holds the settings of edge-rt fleet top.
type FleetConfig struct {
	Connect zenoh.Config
	Every   time.Duration // time between two views
	Once    bool          // print one view after Every, and end
	Out     io.Writer
	JSON    io.Writer // nil: no JSON; with Once
	// Size returns the size of the terminal at Out, 0: unknown; nil: Out is no terminal
	Size func() (rows, columns int)
}

// FleetReport is the --json of edge-rt fleet top.
type FleetReport struct {
	Robots []FleetRobot `json:"robots"` // robots, those in trouble first
}

// FleetRobot is one robot of a fleet.
type FleetRobot struct {
	ID       string  `json:"id"`                 // name of the robot
	Robot    string  `json:"robot"`              // kind of the robot
	Service  string  `json:"service"`            // prefix of its server's keys
	State    string  `json:"state"`              // state of its run
	Paused   bool    `json:"paused"`             // an operator has paused it
	Waiting  bool    `json:"waiting"`            // the robot waits for an operator's next step
	Runway   float64 `json:"runway_s"`           // s, time that its actions last
	Starved  float64 `json:"starved_per_minute"` // ticks, without an action
	RTT      float64 `json:"round_trip_ms_mean"` // ms
	Overruns float64 `json:"overruns_own"`       // ticks, that ended too late by the robot's own fault
	SHA256   string  `json:"model_sha256"`       // digest of the bundle
	Age      float64 `json:"age_s"`              // s, age of its newest telemetry
}

// fleet holds the newest telemetry of each robot.
type fleet struct {
	clock rt.Clock

	mu      sync.Mutex
	robots  map[string]*reading // newest telemetry by key; mu guards this field and those below
	dropped int                 // messages that are malformed or too long
	full    int                 // messages of robots beyond maxRobots
}

// reading is the newest telemetry of a robot.
type reading struct {
	FleetRobot            // without Starved and Age, which list computes
	at, before rt.Instant // instants of the newest telemetry and of the previous one
	now, past  float64    // starved ticks at these two instants
}

// telemetry is the part of a robot's metrics that the view shows.
type telemetry struct {
	Info     map[string]string  `json:"edge_rt_info"`
	State    map[string]float64 `json:"edge_rt_state"`
	Paused   float64            `json:"edge_rt_paused"`
	Waiting  float64            `json:"edge_rt_waiting"`
	Runway   float64            `json:"edge_rt_runway_seconds"`
	Starved  float64            `json:"edge_rt_starved_ticks_total"`
	Overruns map[string]float64 `json:"edge_rt_overruns_total"`
	Model    map[string]float64 `json:"edge_rt_model_info"`
	RTT      struct {
		Count float64 `json:"count"`
		Sum   float64 `json:"sum"`
	} `json:"edge_rt_round_trip_seconds"`
}

// plausible reports whether a run can have these metrics. This is needed because any program may publish at a robot's
// key.
func (t *telemetry) plausible() bool {
	figures := []float64{t.Runway, t.Starved, t.Overruns["own"], t.RTT.Count, t.RTT.Sum}
	texts := []string{t.Info["robot"], first(t.State), first(t.Model)}
	return len(t.State) == 1 &&
		!slices.ContainsFunc(figures, func(v float64) bool { return !(v >= 0 && v <= maxFigure) }) &&
		!slices.ContainsFunc(texts, func(text string) bool { return len(text) > maxFleetText })
}

// FleetTop shows the robots that publish telemetry (--telemetry), until ctx ends.
func FleetTop(ctx context.Context, cfg FleetConfig) error {
	cfg.Connect.Log = func(string) {}
	dial, cancel := context.WithTimeout(ctx, fleetDial)
	defer cancel()
	net, err := network.Open(dial, cfg.Connect)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil && dial.Err() == nil:
		return exit.With(exit.Absent, err)
	case err != nil:
		return exit.Errorf(exit.Absent, "no link within %v: %w; start the server or router there, or check --connect",
			fleetDial, err)
	}
	defer net.Close()
	f := &fleet{clock: rt.KernelClock(), robots: map[string]*reading{}}
	if _, err := net.Subscribe(wire.TelemetryAny, f.take); err != nil {
		return err
	}
	out := plain.Writer(cfg.Out)
	for {
		if rt.Rest(ctx, f.clock, cfg.Every) != nil {
			return nil
		}
		robots := f.list(f.clock.Now())
		var view strings.Builder
		f.write(&view, robots)
		text := view.String()
		if cfg.Size != nil && !cfg.Once {
			fmt.Fprint(cfg.Out, "\x1b[H\x1b[2J")
			text = fit(text, cfg.Size)
		}
		fmt.Fprint(out, text)
		if !cfg.Once {
			continue
		}
		if cfg.JSON != nil {
			err = json.NewEncoder(cfg.JSON).Encode(FleetReport{robots})
		}
		if len(robots) == 0 {
			return exit.Errorf(exit.Absent,
				"no robot published telemetry for %v: start edge-rt with --telemetry 1s, name its server or router as "+
					"--connect, and with certificates use one whose name is among the manifest's routers", cfg.Every)
		}
		return err
	}
}

// take handles one telemetry message. Owner: the transport's goroutine.
func (f *fleet) take(s wire.Sample) {
	var t telemetry
	bad := len(s.Payload) > maxTelemetry || json.Unmarshal(s.Payload, &t) != nil || !t.plausible()
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.robots[s.Key]
	switch {
	case bad:
		f.dropped++
		return
	case h == nil && len(f.robots) >= maxRobots:
		f.full++
		return
	case h == nil:
		h = &reading{}
		f.robots[strings.Clone(s.Key)] = h
	}
	h.past, h.before = h.now, h.at
	h.now, h.at = t.Starved, f.clock.Now()
	id, _ := wire.ClientUUID(s.Key)
	h.FleetRobot = FleetRobot{
		ID:       strings.Clone(id),
		Robot:    t.Info["robot"],
		Service:  strings.Clone(strings.TrimSuffix(s.Key, "/"+id+"/telemetry")),
		State:    first(t.State),
		Paused:   t.Paused != 0,
		Waiting:  t.Waiting != 0,
		Runway:   t.Runway,
		RTT:      1e3 * t.RTT.Sum / max(1, t.RTT.Count),
		Overruns: t.Overruns["own"],
		SHA256:   first(t.Model),
	}
}

// list returns the robots, the robots in trouble first, and forgets each robot that has been gone for fleetGone.
func (f *fleet) list(now rt.Instant) []FleetRobot {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.robots, func(_ string, h *reading) bool { return now.Sub(h.at) > fleetGone })
	robots := []FleetRobot{}
	for _, h := range f.robots {
		r := h.FleetRobot
		r.Age = now.Sub(h.at).Seconds()
		if span := h.at.Sub(h.before).Minutes(); h.before != 0 && span > 0 {
			r.Starved = max(0, h.now-h.past) / span
		}
		robots = append(robots, r)
	}
	slices.SortFunc(robots, func(a, b FleetRobot) int {
		return cmp.Or(cmp.Compare(rankOf(a.State), rankOf(b.State)), cmp.Compare(b.Starved, a.Starved),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.Service, b.Service))
	})
	return robots
}

// shown returns the state that the view shows: PAUSED or WAITING for a robot that streams while its arm does not move,
// otherwise State.
func (r *FleetRobot) shown() string {
	switch {
	case r.State == streaming && r.Paused:
		return "PAUSED"
	case r.State == streaming && r.Waiting:
		return "WAITING"
	}
	return r.State
}

func rankOf(state string) int { return strings.Index(fleetStateOrder, state) }

// first returns the smallest key.
func first(m map[string]float64) string {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		return key
	}
	return ""
}

// fit cuts a view to the size of the terminal. A longer view would push its first lines, the robots in trouble, out of
// the screen.
func fit(view string, size func() (rows, columns int)) string {
	rows, columns := size()
	lines := strings.SplitAfter(view, "\n") // the last is empty
	if most := max(rows-2, 2); rows > 0 && len(lines)-2 > most {
		rest := fmt.Sprintf("%d further robots: a taller terminal, or --once, shows them\n", len(lines)-1-most)
		lines = append(lines[:most], rest)
	}
	for i, line := range lines {
		if letters := []rune(line); columns > 0 && len(letters) > columns+1 {
			lines[i] = string(letters[:columns]) + "\n"
		}
	}
	return strings.Join(lines, "")
}

// write writes the view for people.
func (f *fleet) write(w io.Writer, robots []FleetRobot) {
	well := 0
	for i := range robots {
		if robots[i].shown() == streaming {
			well++
		}
	}
	f.mu.Lock()
	rest := ""
	if f.dropped+f.full > 0 {
		rest = fmt.Sprintf("; %d messages malformed, %d of robots beyond %d", f.dropped, f.full, maxRobots)
	}
	f.mu.Unlock()
	fmt.Fprintf(w, "%d robots, %d streaming%s\n", len(robots), well, rest)
	if len(robots) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "ROBOT\tKIND\tSTATE\tRUNWAY\tSTARVED/MIN\tROUND TRIP\tOVERRUNS\tSERVICE\tMODEL\tAGE")
	for i := range robots {
		r := &robots[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%.2f s\t%.0f\t%.0f ms\t%.0f\t%s\t%.12s\t%.0f s\n", plain.Text(r.ID),
			plain.Text(r.Robot), plain.Text(r.shown()), r.Runway, r.Starved, r.RTT, r.Overruns,
			plain.Text(strings.TrimPrefix(r.Service, wire.KeyRoot+"/")), plain.Text(r.SHA256), r.Age)
	}
	table.Flush()
}
