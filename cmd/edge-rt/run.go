package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/bringup/watchdog"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/systemd/notify"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// modes are the words of --rt.
var modes = map[string]rt.Mode{"auto": rt.ModeAuto, "require": rt.ModeRequire, "off": rt.ModeOff}

type runFlags struct {
	Config program.ConfigFile `help:"YAML file with any of these flags by name; flags and EDGE_RT_* variables win over it." placeholder:"FILE"`

	FPS         *float64 `range:"1..1000;leave it out for the policy's own" name:"fps" help:"Actions per second; default: what the policy was trained at, and 60 for teleop." placeholder:"HZ"`
	FPSMismatch string   `name:"fps-mismatch" default:"refuse" enum:"refuse,allow" help:"What to do if the policy was not trained at --fps: refuse, or allow (the arm then moves at another speed than in training)."`

	Bus         device.ByPart `sep:"none" help:"Serial port of the arm, such as /dev/ttyACM0, or sim; for a robot of several arms PART=PORT for each, such as left=/dev/ttyACM0." placeholder:"PORT"`
	Robot       string        `default:"so101" help:"The arm: so101, so100, koch, omx, widowx, ..., or a YAML file (docs/arms.md)."`
	Calibration device.ByPart `sep:"none" help:"LeRobot calibration file; default: the file of --id in LeRobot's folder. For a robot of several arms PART=FILE." placeholder:"FILE"`

	Camera      []string `sep:"none" help:"A camera as NAME=SOURCE[:WxH][@FPS][,option=value]..., such as top=sim or front=/dev/video0:640x480@30,rotate=180; repeat for more. SOURCE is sim, sim:PATH (the world of an edge-rt sim-bus --scene PATH), pattern, a device (/dev/video0, /dev/v4l/by-id/...), pipe:'COMMAND' (a program that writes motion JPEG, or with format= and a size raw pictures, to its standard output), or a picture or folder of pictures to replay. Options: format=mjpeg|yuyv|nv12|grey|rgb, crop=WxH+X+Y, rotate=90|180|270, send=WxH, quality=1..100, max-age=500ms, live=yes|no (whether a picture that comes again is an old one), and a device's controls: exposure, white-balance, focus and gain (auto or a number), and all that edge-rt cameras lists." placeholder:"NAME=SOURCE"`
	Connect     []string `default:"tcp/localhost:7447" help:"Where the server or a Zenoh router listens: tcp/HOST:PORT, tls/HOST:PORT or unixsock-stream/PATH; repeat for others to use when it is gone."`
	TLSCA       string   `name:"tls-ca" help:"PEM file of the authorities that vouch for the server; default: the system's." placeholder:"FILE"`
	TLSCert     string   `name:"tls-cert" help:"PEM file of the robot's certificate, for a server that asks for one." placeholder:"FILE"`
	TLSKey      string   `name:"tls-key" help:"PEM file of its private key." placeholder:"FILE"`
	Service     string   `help:"Name of the service to use, when several are in reach." placeholder:"NAME"`
	Task        string   `help:"What the arm should do, for policies that read it." placeholder:"TEXT"`
	ExpectModel string   `name:"expect-model" help:"Run only the policy whose bundle has this sha256, as lean-server check prints it; 12 digits are enough." placeholder:"SHA"`
	ModelChange string   `name:"model-change" default:"refuse" enum:"refuse,episode" help:"What happens if the service gets another model: refuse ends the run with exit code 3, episode changes to it between two episodes, after the checks of a start."`
	StrictObs   bool     `name:"strict-observations" help:"If the first observation is unlike the policy's training, or cannot be compared with it, leave the torque off and end with exit code 3. Without this flag edge-rt only warns."`
	ID          string   `name:"id" help:"The robot's name, and that of its calibration file; default: a name made at this host's first run, and the only calibration that matches the motors." placeholder:"NAME"`

	Duration time.Duration `range:"0..87600h;0 is no end" help:"Stop this long after the session with the server has opened (teleop and monitor: after their start). 0: never."`
	Seed     uint64        `help:"Seed of the simulated world."`
	RT       string        `name:"rt" default:"auto" enum:"auto,require,off" help:"Real-time priority: auto goes on without it, require fails without it, off does not ask for it."`
	CPU      int           `name:"cpu" default:"-1" help:"Pin the tick to this CPU, isolated ones (isolcpus=) included; -1: the last isolated one, else the last of at least four."`

	JPEGQuality             *int              `range:"0..100;0 sends raw pictures" name:"jpeg-quality" help:"1 to 100; 0 sends raw pictures. Default: 90, but a camera's own JPEG is sent unchanged." placeholder:"N"`
	Profile                 string            `help:"Time limits for a kind of network: wired, wifi or wan (docs/edge-rt.md has the table, edge-rt doctor proposes one). A flag for one of them wins." placeholder:"NAME"`
	MaxActionAge            *time.Duration    `range:"1ms..87600h" help:"Never run an action whose observation is older. Default: 3s, more for a slower policy." placeholder:"TIME"`
	DegradedAfter           *time.Duration    `range:">0..87600h" help:"Without a chunk for this long the state is DEGRADED. Default: 1s, more for a slower policy." placeholder:"TIME"`
	RequestTimeout          *time.Duration    `range:">0..87600h" help:"Open the session again if the server sends neither a chunk nor its status for this long; a slow server that answers keeps the session. Default: 5s." placeholder:"TIME"`
	ReconnectInitialBackoff *time.Duration    `range:">0..87600h" help:"First wait between attempts to reach the server. Default: 500ms." placeholder:"TIME"`
	ReconnectMaxBackoff     *time.Duration    `range:">0..87600h" help:"Longest wait between attempts. Default: 10s." placeholder:"TIME"`
	MaxOffline              *time.Duration    `range:">0..87600h" help:"Give up after this long without device or server; a slow server that answers counts as present. Default: 60s." placeholder:"TIME"`
	Fallback                string            `default:"hold" help:"What to do when no action may run: hold (send nothing to an arm, and velocity 0 to a base), repeat_last (repeat the last action until --max-action-age), or zero (the same as hold, only for a robot with a base)."`
	Rescue                  bool              `help:"Move an arm outside its calibrated range slowly into it, instead of refusing to arm it."`
	OnExit                  string            `default:"park" help:"What the arm does at the end: park (go back to where it started, then torque off), hold, off."`
	Tag                     map[string]string `help:"A label k=v that the server logs; repeat for more." placeholder:"K=V"`
	Traces                  string            `help:"Send each request as a trace to this OpenTelemetry collector, by OTLP over HTTP." placeholder:"http://HOST:4318"`
	Telemetry               time.Duration     `range:"0s..1h;0 is off, and 1s usual" help:"Publish the metrics of --metrics over Zenoh at this interval, for edge-rt fleet top; 0: off." placeholder:"TIME"`
	leaderFlags             `embed:"" group:"A leader arm:"`
	scheduleFlags           `embed:"" group:"How actions are scheduled and shaped:"`
	recordFlags             `embed:"" group:"Records of a run:"`
	Strategy                string `default:"base" enum:"base,sentry,highlight,dagger,episodic" group:"Episodes:" help:"LeRobot's rollout strategies: base (runs; episodes with --episodes or on request), sentry (records everything in consecutive episodes), highlight (saves the memory of --record ring when a person presses s), episodic (--episodes; the arm goes back to its start after each), dagger (a person corrects with a leader arm)."`
	episodeFlags            `embed:"" group:"Episodes:"`
	WireFaults              string `hidden:"" help:"YAML script of faults for the messages, as bench faults writes it." placeholder:"FILE"`
	FaultSeed               uint64 `hidden:"" help:"Seed of its random faults."`
	JSON                    string `name:"json" help:"Write the summary, or what a command has found, as JSON to this file, - for standard output." placeholder:"FILE"`
	page.Flags              `embed:""`
	Quiet                   bool `help:"No status line and no log, only the summary."`

	wrote bool // JSON was written to --json
}

type runCmd struct{}

// Run runs the edge and prints its summary.
func (runCmd) Run(flags *cli, screen *terminal.Terminal, parsed *kong.Context) error {
	ctx, stop := program.Interruptible()
	defer stop()
	r := &flags.runFlags
	cfg, err := r.config(screen)
	if err == nil {
		cfg.Episodes, err = r.plan(r.Strategy, cfg.Leader.Bus != "", &cfg.Record, parsed)
	}
	if err != nil {
		return err
	}
	if err := cfg.Check(); err != nil {
		return err
	}
	out, err := r.openJSON()
	if err != nil {
		return err
	}
	e, err := edge.Open(ctx, cfg)
	if err != nil {
		err = edge.NotOpenedError(cfg.OnExit, unlessEnded(ctx, err), nil)
		if out != nil {
			err = edge.NotOpenedError(cfg.OnExit, err, errors.Join(edge.NotOpened(err).WriteJSON(plain.Writer(out)),
				out.Close()))
		}
		return err
	}
	calm := again(ctx, e.Hurry)
	var dogs []*watchdog.Watchdog
	if !notify.Managed() { // a service has ExecStopPost=
		dogs = guard(screen, "edge-rt ctl pause holds it, Ctrl-C ends it", r.arms()...)
	}
	keys := listen(screen, operator.Keys+operator.PolicyKeys, cfg.Record == record.All ||
		cfg.Episodes.Strategy == episode.Highlight || cfg.Leader.Bus != "", func(key string) {
		e.Key(ctx, key)
	})
	summary, err := e.Run(ctx)
	keys.Close()
	for _, dog := range dogs {
		dog.Stop()
	}
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGINT, syscall.SIGTERM)
	calm()
	go quit(leave, exit.Of(err))
	if out != nil {
		if werr := errors.Join(summary.WriteJSON(plain.Writer(out)), out.Close()); werr != nil {
			err = e.EndError(err, fmt.Errorf("--json: %w", werr))
		}
	}
	var table bytes.Buffer
	summary.WriteTable(&table)
	if r.JSON == "-" {
		screen.Write(table.Bytes())
		return err
	}
	screen.Flush() // screen and stdout may be the same terminal
	stdout.Write(table.Bytes())
	return e.EndError(err, printed.Failed())
}

// unlessEnded returns err, or nil if ctx has ended, because then the end of ctx is the reason why opening failed.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, servo.ErrCanceled)) {
		return nil
	}
	return err
}

// quit waits for a signal, and ends the process with the code one second later. By then the arm is released.
func quit(leave <-chan os.Signal, code exit.Code) {
	<-leave
	time.Sleep(time.Second) // time to write the summary
	os.Exit(int(code))
}

// output is the file of --json. The first object that a command writes replaces a file of an earlier command. A
// command that ends before it writes an object does not change that file.
type output struct {
	name  string   // empty: file is standard output, a device or a pipe
	file  *os.File // nil: nothing was written yet
	wrote *bool
}

// Write writes one object.
func (o *output) Write(p []byte) (n int, err error) {
	*o.wrote = true
	if o.file != nil {
		return o.file.Write(p)
	}
	if err = userfile.Write(o.name, p); err != nil {
		return 0, err
	}
	o.file, err = os.OpenFile(o.name, os.O_WRONLY|os.O_APPEND, 0)
	return len(p), err
}

// Close leaves standard output open.
func (o *output) Close() error {
	if o.file == nil || o.file == os.Stdout {
		return nil
	}
	return o.file.Close()
}

// fail writes err as JSON to standard output, if --json is - and the command has not written JSON there.
func (r *runFlags) fail(err error) {
	if err == nil || r.JSON != "-" || r.wrote {
		return
	}
	end := drive.Ending{Code: int(exit.Of(err)), Reason: program.Line(err)}
	_ = drive.WriteJSON(stdout, map[string]drive.Ending{"exit": end})
}

// openJSON prepares the file of --json before the arm moves; without the flag it returns nil.
func (r *runFlags) openJSON() (*output, error) {
	switch r.JSON {
	case "":
		return nil, nil
	case "-":
		return &output{file: os.Stdout, wrote: &r.wrote}, nil
	}
	if strings.HasSuffix(r.JSON, record.Extension) {
		return nil, exit.Errorf(exit.Usage,
			"--json %s would replace a record: name another file, or - for standard output",
			r.JSON)
	}
	if info, err := os.Stat(r.JSON); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(r.JSON, os.O_WRONLY, 0)
		if err != nil {
			return nil, exit.Errorf(exit.Usage, "--json: %w", err)
		}
		return &output{file: f, wrote: &r.wrote}, nil
	}
	return &output{name: r.JSON, wrote: &r.wrote}, program.Writable("--json", r.JSON)
}

// config turns the flags into the edge's configuration.
func (r *runFlags) config(screen *terminal.Terminal) (edge.Config, error) {
	place, err := r.whole()
	if err != nil {
		return edge.Config{}, err
	}
	p, err := uplink.ProfileNamed(r.Profile)
	if err != nil {
		return edge.Config{}, exit.Errorf(exit.Usage, "--profile: %w", err)
	}
	cfg := edge.Config{
		FPS:         program.ValueOr(r.FPS, 0),
		FPSMismatch: r.FPSMismatch,
		Bus:         place.Bus,
		Robot:       r.Robot,
		Calibration: place.Calibration,
		Connect:     r.Connect,
		Service:     r.Service,
		TLS:         r.tls(),
		Task:        r.Task,
		ExpectModel: r.ExpectModel,
		ModelChange: r.ModelChange,

		StrictObservations: r.StrictObs,
		ID:                 r.ID,
		Duration:           r.Duration,
		Seed:               r.Seed,
		RT:                 modes[r.RT],
		CPU:                r.CPU,
		OnExit:             r.OnExit,
		Rescue:             r.Rescue,
		Fallback:           r.Fallback,
		Leader:             r.leaderPlace(),
		LeaderRobot:        r.LeaderRobot,
		Takeover:           r.Takeover,
		Profile:            p.Name,
		MaxActionAge:       program.ValueOr(r.MaxActionAge, p.MaxActionAge),
		DegradedAfter:      program.ValueOr(r.DegradedAfter, p.DegradedAfter),
		RequestTimeout:     program.ValueOr(r.RequestTimeout, p.RequestTimeout),
		Given: uplink.Given{
			MaxActionAge:   r.MaxActionAge != nil,
			DegradedAfter:  r.DegradedAfter != nil,
			RequestTimeout: r.RequestTimeout != nil,
		},
		MaxOffline: program.ValueOr(r.MaxOffline, p.MaxOffline),
		Tags:       r.Tag,
		Telemetry:  r.Telemetry,
		Traces:     r.Traces,
		Flags:      r.Flags,
		Log:        r.log(screen),
	}
	r.backoffs(&cfg, p)
	if err := r.scheduleFlags.apply(&cfg); err != nil {
		return cfg, err
	}
	if cfg.Schedule.Buffer == 0 && cfg.Schedule.Buffered() && !cfg.Schedule.Compat {
		cfg.Schedule.Buffer = p.Buffer
	}
	r.recordFlags.apply(&cfg)
	encoding := r.encoding()
	cfg.JPEGQuality, cfg.Reencode = encoding.Quality, encoding.Reencode
	if err := r.injectFaults(&cfg); err != nil {
		return cfg, err
	}
	if !r.Quiet && terminal.Is(os.Stderr) {
		cfg.Status = screen
	}
	cfg.Cameras, err = r.cameras()
	return cfg, err
}

// backoffs sets the waits between attempts to reach the server. A flag of the operator takes precedence over the
// profile's values.
func (r *runFlags) backoffs(cfg *edge.Config, p uplink.Profile) {
	first, longest := p.ReconnectInitialBackoff, p.ReconnectMaxBackoff
	cfg.ReconnectInitialBackoff = program.ValueOr(r.ReconnectInitialBackoff,
		min(first, program.ValueOr(r.ReconnectMaxBackoff, first)))
	cfg.ReconnectMaxBackoff = program.ValueOr(r.ReconnectMaxBackoff,
		max(longest, program.ValueOr(r.ReconnectInitialBackoff, longest)))
}

// injectFaults wraps the network session in the faults of --wire-faults.
func (r *runFlags) injectFaults(cfg *edge.Config) error {
	if r.WireFaults == "" {
		return nil
	}
	script, err := readFaults(r.WireFaults)
	if err != nil {
		return err
	}
	if r.FPS == nil {
		return exit.Errorf(exit.Usage, "--wire-faults wants --fps: its script counts in ticks")
	}
	cfg.Wrap = func(s wire.Session) wire.Session {
		plan := script.Plan(r.FaultSeed, time.Duration(float64(time.Second)/cfg.FPS))
		return netfault.Wrap(s, rt.KernelClock(), plan)
	}
	return nil
}

// cameras reads --camera.
func (r *runFlags) cameras() (cameras []capture.Config, err error) {
	for _, c := range r.Camera {
		cam, err := capture.Parse(c)
		if err != nil {
			return nil, err
		}
		cameras = append(cameras, cam)
	}
	return cameras, nil
}

// log returns the logger of a run.
func (r *runFlags) log(screen *terminal.Terminal) *slog.Logger {
	if r.Quiet {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(terminal.NewLines(screen, slog.LevelInfo))
}

func readFaults(name string) (*netfault.Script, error) {
	data, err := userfile.ReadYAML(name)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--wire-faults: %w", err)
	}
	script, err := netfault.Parse(data)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--wire-faults %s: %w", name, err)
	}
	return script, nil
}

func (r *runFlags) tls() edge.TLS { return edge.TLS{CA: r.TLSCA, Cert: r.TLSCert, Key: r.TLSKey} }

// transport returns the settings of connections to --connect.
func (r *runFlags) transport() zenoh.Config { return r.tls().Transport(r.Connect) }
