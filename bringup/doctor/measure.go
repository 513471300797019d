package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

const (
	busShare    = 0.6 // share of a period that edge-rt permits a bus
	dialLimit   = 5 * time.Second
	queryEvery  = 100 * time.Millisecond // shortest interval between two queries
	queryLimit  = time.Second            // a later reply counts as lost
	cameraFor   = 2 * time.Second
	rateShare   = 0.9 // share of its nominal rate that a camera must reach
	farMS       = 150 // ms; a link whose round trip has a larger p99 counts as slow
	defaultRate = 60.0

	maxInferenceMS = 600_000 // ms, longest inference that a server may report
)

// Link is the measurement of the connection to the server.
type Link struct {
	Service     string  `json:"service"`              // beginning of the server's keys
	Queries     int     `json:"queries"`              // status queries
	Lost        int     `json:"lost"`                 // queries without a reply within 1 s
	P50         float64 `json:"round_trip_ms_p50"`    // ms
	P99         float64 `json:"round_trip_ms_p99"`    // ms
	InferenceMS float64 `json:"inference_ms_p99"`     // ms, duration of the server's inferences; 0: not reported
	ChunkSize   int     `json:"chunk_size,omitempty"` // actions of a chunk
	FPS         float64 `json:"fps,omitempty"`        // Hz, rate of the policy
	WarmedUp    bool    `json:"warmed_up"`            // the server has run its policy
}

// measure examines the buses, the cameras, the certificates and the server that a run would use.
func (d *doctor) measure(ctx context.Context) (all []Finding) {
	swapped := device.CheckSwapped(d.Places, rt.KernelClock())
	if swapped != nil {
		all = append(all, Finding{Check: "bus", Level: Problem, Found: swapped.Error()})
	}
	for i := range d.Places {
		if swapped != nil || ctx.Err() != nil {
			break
		}
		// the check of the ports reports an absent bus
		if _, err := os.Stat(d.Places[i].Bus); err == nil || d.Places[i].Bus == device.Sim {
			all = append(all, d.measureBus(i))
		}
	}
	for i := range d.Cameras {
		if ctx.Err() != nil {
			return all
		}
		all = append(all, d.measureCamera(&d.Cameras[i]))
	}
	all = append(all, d.certificates()...)
	if len(d.Connect.Connect) == 0 {
		return all
	}
	return append(all, d.measureLink(ctx)...)
}

// certificates examines the files of --tls-ca and --tls-cert.
func (d *doctor) certificates() (all []Finding) {
	tls := &d.Connect.TLS
	for _, file := range []string{tls.RootCA, tls.ConnectCertificate} {
		if file == "" {
			continue
		}
		f := Finding{Check: "certificate", Level: Problem, Better: "a PEM file that this user may read"}
		c, err := endpoint.ReadCertificate(file)
		if err != nil {
			f.Found = err.Error()
		} else if time.Now().After(c.Until) {
			continue // the findings below name the expired certificate
		} else {
			f.set(OK, fmt.Sprintf("%s is valid until %s", file, c.Until.Format(time.DateOnly)), "")
		}
		all = append(all, f)
	}
	for _, ending := range tls.DialFindings(time.Now()) {
		f := Finding{
			Check:  "certificate",
			Level:  Advice,
			Found:  ending.Text,
			Better: "a renewed one, with a key that others cannot read",
		}
		if ending.Refused {
			f.Level = Problem
		}
		all = append(all, f)
	}
	return all
}

// show reports the progress of a long measurement.
func (d *doctor) show(format string, args ...any) {
	if d.Progress != nil {
		d.Progress(fmt.Sprintf(format, args...))
	}
}

func (d *doctor) rate() float64 {
	if d.FPS > 0 {
		return d.FPS
	}
	return defaultRate
}

func (d *doctor) measureBus(i int) Finding {
	place := &d.Places[i]
	f := Finding{Check: "bus", Level: Problem}
	if place.Bus == device.Sim {
		return Finding{Check: "bus", Level: OK, Found: "simulated"}
	}
	d.show("measuring the bus at %s", place.Bus)
	cfg := servo.ArmConfig{Path: place.Bus, Robot: place.Robot, Clock: rt.KernelClock()}
	var arm *servo.Arm
	calibration, unknown := place.Load()
	err := unknown
	if err == nil {
		cfg.Calibration = calibration
		arm, err = place.Open(&cfg)
	}
	if err != nil {
		f.Found = fmt.Sprintf("%s: %v", place.Bus, err)
		bare := device.Place{Bus: place.Bus, Robot: place.Robot}
		switch {
		case errors.Is(err, servo.ErrMotorMissing), errors.Is(err, servo.ErrWrongModel):
			f.Better, f.Command = "an arm that answers", "edge-rt scan "+bare.Command()
		case unknown != nil, errors.Is(err, servo.ErrCalibration):
			f.Better, f.Command = "this arm's own calibration", "edge-rt calibrate "+place.Command()
		}
		return f
	}
	defer arm.Close()
	limit := time.Duration(busShare * float64(time.Second) / d.rate())
	m, err := drive.MeasureUntil(arm, func(m servo.Measurement) bool { return m.Clean > 0 && m.P99 <= limit })
	if err != nil {
		f.Found = fmt.Sprintf("%s: %v", place.Bus, err)
		return f
	}
	d.busP99 = max(d.busP99, m.P99)
	f.Found = fmt.Sprintf("%s: %v for all joints (p99), %.0f %% of a period at %g Hz", place.Bus,
		m.P99.Round(10*time.Microsecond), 100*m.P99.Seconds()*d.rate(), d.rate())
	motors, cure := arm.LossReport(m)
	switch {
	case arm.CheckLosses(m) != nil:
		f.Found += "; replies are lost: " + motors
		f.Better = cure
	case m.P99 > limit:
		f.Better = fmt.Sprintf("at most %v: latency timer 1 ms, a faster baud rate, or a lower --fps",
			limit.Round(10*time.Microsecond))
	case motors != "":
		f.Level = Advice
		f.Better = cure
		f.Found += "; some replies are lost: " + motors
	default:
		f.Level = OK
	}
	return f
}

func (d *doctor) measureCamera(c *capture.Config) Finding {
	d.show("measuring camera %s for %v", c.Name, cameraFor)
	f := Finding{Check: "camera " + c.Name, Level: OK}
	fps, picked, err := capture.MeasureRate(c, cameraFor)
	if err != nil {
		f.Level = Problem
		f.Found = err.Error()
		f.Command = "edge-rt cameras"
		return f
	}
	f.Found = fmt.Sprintf("%.1f pictures per second, %s", fps, picked)
	if want := float64(c.FPS); want > 0 && fps < rateShare*want {
		f.Level = Advice
		f.Better = fmt.Sprintf("%g: a fixed exposure (exposure=N), more light, MJPEG, or a socket of its own", want)
		f.Command = "edge-rt cameras --all"
	}
	return f
}

func (d *doctor) measureLink(ctx context.Context) []Finding {
	f := Finding{Check: "server", Level: Problem, Better: "a lean-server at --connect"}
	wait, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	cfg := d.Connect
	cfg.Log = func(string) {}
	net, err := network.Open(wait, cfg)
	if err != nil {
		f.Found = err.Error()
		if !zenoh.Reached(err) {
			f.Command = "lean-server --manifest server.yaml --listen tcp/0.0.0.0:7447"
		}
		return []Finding{f}
	}
	defer net.Close()
	prefix, err := d.findService(wait, net)
	if err != nil {
		f.Found = err.Error()
		return []Finding{f}
	}
	d.link = &Link{Service: prefix}
	d.queryFor(ctx, net)
	return d.judgeLink()
}

func (d *doctor) findService(ctx context.Context, net wire.Session) (string, error) {
	keys, err := net.Tokens(ctx, wire.ServerAliveAny, queryLimit)
	if err != nil {
		return "", err
	}
	var prefixes, names []string
	for _, key := range keys {
		svc, err := wire.ServiceOf(key)
		if err == nil && (d.Service == "" || svc.Name == d.Service) && !slices.Contains(prefixes, svc.Prefix()) {
			prefixes, names = append(prefixes, svc.Prefix()), append(names, svc.Name)
		}
	}
	switch {
	case len(prefixes) == 1:
		return prefixes[0], nil
	case len(prefixes) > 1:
		return "", fmt.Errorf("%d services are in reach (%s): choose one with --service NAME", len(names),
			strings.Join(names, ", "))
	case d.Service != "":
		return "", fmt.Errorf("connected, and no service %s is in reach", d.Service)
	}
	return "", errors.New("connected, and no lean-server is in reach")
}

// queryFor sends status queries until the time is over.
func (d *doctor) queryFor(ctx context.Context, net wire.Session) {
	l := d.link
	times := rt.NewHist()
	clock := rt.KernelClock()
	for end := clock.Now().Add(d.For); clock.Now() < end && ctx.Err() == nil; {
		d.show("asking the server: %d queries, %d lost, %.0f s left", l.Queries, l.Lost, end.Sub(clock.Now()).Seconds())
		began := clock.Now()
		replies, err := net.Get(ctx, wire.StatusKey(l.Service), nil, queryLimit)
		l.Queries++
		var s wire.Status
		if err != nil || len(replies) == 0 || replies[0].Err || wire.Parse(&s, replies[0].Payload) != nil {
			l.Lost++
		} else {
			times.Record(clock.Now().Sub(began))
			l.InferenceMS = s.InferenceMsP99
			l.ChunkSize = s.ChunkSize
			l.FPS = s.TrainedFPS
			l.WarmedUp = s.WarmedUp
		}
		clock.SleepUntil(began.Add(queryEvery))
	}
	l.P50, l.P99 = drive.Millis(times.Quantile(0.5)), drive.Millis(times.Quantile(0.99))
}

func (d *doctor) judgeLink() []Finding {
	l := d.link
	server := Finding{Check: "server", Level: OK, Found: l.Service}
	trip := Finding{
		Check: "round trip",
		Level: OK,
		Found: fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, %d of %d queries lost", l.P50, l.P99, l.Lost, l.Queries),
	}
	switch {
	case l.Queries == l.Lost:
		trip.Level, trip.Better = Problem, "a server that answers"
	case l.Lost > 0:
		trip.Level, trip.Better = Advice, "a cable, or 5 GHz Wi-Fi with power saving off"
		trip.Command = "sudo iw dev wlan0 set power_save off"
	case l.P99 > farMS:
		trip.Level, trip.Better = Advice, fmt.Sprintf("below %d ms, else the flags below", farMS)
	}
	switch {
	case l.Queries == l.Lost:
	case !l.plausible():
		server.Level = Problem
		server.Found = fmt.Sprintf("%s: its status has %d actions in a chunk, %g Hz and inferences of %g ms", l.Service,
			l.ChunkSize, l.FPS, l.InferenceMS)
		server.Better = fmt.Sprintf("a chunk of at least 1, a rate up to %d Hz and inferences up to %d ms; no flags "+
			"are proposed", uplink.MaxFPS, maxInferenceMS)
	case !l.WarmedUp:
		server.Level, server.Found = Advice, l.Service+" has not run its policy yet"
		server.Better = "wait until its log says ready"
	}
	return []Finding{server, trip}
}

// plausible reports whether the figures that the server reports are plausible enough for a proposal.
func (l *Link) plausible() bool {
	return l.ChunkSize >= 1 && l.FPS >= 0 && l.FPS <= uplink.MaxFPS && l.InferenceMS >= 0 &&
		l.InferenceMS <= maxInferenceMS
}
