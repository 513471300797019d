package edge

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/otlp"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// The values of --fps-mismatch.
const (
	fpsRefuse = "refuse"
	fpsAllow  = "allow"
)

// The values of --model-change.
const (
	modelRefuse  = "refuse"
	modelEpisode = "episode"
)

// The values of --takeover: the ways in which a person takes the arm over.
const (
	takeoverKey  = "key"  // only edge-rt ctl correct, the page and the keys of a terminal
	takeoverPush = "push" // as with key, and also a hand that moves the leader
)

// Limits of the values in a configuration.
const (
	maxTags = 64

	minModelDigits = 12 // fewest digits of --expect-model; lean-server logs 12
	maxModelDigits = 64
)

// Bounds of the transport's dial interval while the server is unreachable; the arm holds meanwhile.
const (
	dialMin = 100 * time.Millisecond
	dialMax = time.Second
)

// TLS names PEM files.
type TLS struct {
	CA   string // certificate authorities of the server; empty: those of the system
	Cert string // the robot's own, leaf first; empty: no client certificate
	Key  string
}

// The values of --fallback beside hold.
const (
	fallbackRepeat = "repeat_last"
	fallbackZero   = "zero" // only for a robot with a base; the same as hold, under which a base gets velocity 0
)

// Config is the configuration of one robot's run.
type Config struct {
	FPS         float64 // actions per second; 0: the policy's rate, known from the first session on
	FPSMismatch string  // reaction to an FPS unlike the policy's rate: refuse (also empty) or allow
	Bus         string  // sim, or a serial port
	Robot       string  // so101
	Calibration string  // file; empty: LeRobot's path, and for sim the simulator's own calibration
	Cameras     []capture.Config
	Connect     []string // Zenoh endpoints of the server or router; one of them is used
	TLS         TLS      // certificates for tls/ endpoints
	Service     string   // name of the service; empty: the only reachable service
	Task        string
	ExpectModel string           // hex prefix of the bundle's sha256; empty: any bundle
	ModelChange string           // reaction to another bundle of the service: modelRefuse (also empty) or modelEpisode
	ID          string           // empty: the name of this host
	Schedule    chunk.Config     // the discipline; Open fills in sizes and rate
	Stages      smoothing.Config // stages between schedule and bus
	Leader      device.Place     // leader arm for take-overs; Open fills in its Robot. Empty Bus: no leader
	LeaderRobot string           // name or file; empty: the follower's name with _leader
	Takeover    string           // takeoverKey (also empty) or takeoverPush
	Record      record.Mode      // recorded part of the run; empty: off
	RecordDir   string           // folder of the record's files; empty: "records" in the robot's state folder
	RecordSize  int64            // bytes that the record's files may take together
	Episodes    episode.Plan     // accepted by Plan.Check, whose result is in the field Record
	Duration    time.Duration
	Seed        uint64 // seed of the simulated world
	RT          rt.Mode
	CPU         int  // CPU of the tick thread; rt.UnpinnedCPU: any
	JPEGQuality int  // 0: raw pictures
	Reencode    bool // a camera's own JPEG is encoded anew at JPEGQuality
	OnExit      string
	Rescue      bool // an arm outside its range is moved into it slowly instead of refused
	// effect of a tick without a usable action: hold and zero send no goal to an arm, and velocity
	// 0 to a base; repeat_last sends the last action again until it is older than MaxActionAge
	Fallback string

	StrictObservations bool // a first observation unlike the policy's training ends the run before torque

	ActionsPerChunk int // number of a chunk's first actions that may run; 0: all
	MaxEmptyCycles  int // ticks in a row without an action until a warning; 0: no warning

	Traces    string        // address of an OpenTelemetry collector; empty: no traces
	Telemetry time.Duration // interval of the run's metrics on the network; 0: they are not published

	Profile                 string // name of the limits' profile, for the summary
	MaxActionAge            time.Duration
	DegradedAfter           time.Duration
	RequestTimeout          time.Duration
	ReconnectInitialBackoff time.Duration
	ReconnectMaxBackoff     time.Duration
	MaxOffline              time.Duration
	Given                   uplink.Given // limits that flags fixed; the other limits follow the server's time per chunk

	Tags map[string]string

	// wraps the session to inject faults in measurements; nil: the session is used unchanged
	Wrap func(wire.Session) wire.Session

	page.Flags // flags of the page

	Status *terminal.Terminal // live status line; nil: no line
	Log    *slog.Logger
}

// Check refuses a configuration that cannot run. The error names the flag, its value and the
// permitted values.
func (c *Config) Check() error {
	switch {
	case c.FPSMismatch != "" && c.FPSMismatch != fpsRefuse && c.FPSMismatch != fpsAllow:
		return exit.Errorf(exit.Usage, "--fps-mismatch is %q, want %s or %s", c.FPSMismatch, fpsRefuse, fpsAllow)
	case c.ModelChange != "" && c.ModelChange != modelRefuse && c.ModelChange != modelEpisode:
		return exit.Errorf(exit.Usage, "--model-change is %q, want %s or %s", c.ModelChange, modelRefuse, modelEpisode)
	case c.ReconnectInitialBackoff > c.ReconnectMaxBackoff && c.ReconnectMaxBackoff > 0:
		return exit.Errorf(exit.Usage, "--reconnect-initial-backoff is %v, want at most --reconnect-max-backoff, %v",
			c.ReconnectInitialBackoff, c.ReconnectMaxBackoff)
	case c.Bus == "":
		return exit.Errorf(exit.Usage,
			"--bus is missing: give the arm's serial port (edge-rt --bus /dev/ttyACM0), or sim")
	case len(c.Connect) == 0:
		return exit.Errorf(exit.Usage, "--connect is missing: give the server's endpoint, such as tcp/localhost:7447")
	case !slices.Contains([]string{"hold", fallbackRepeat, fallbackZero}, c.Fallback):
		return exit.Errorf(exit.Usage, "--fallback is %q, want hold or %s, or %s for a robot with a base", c.Fallback,
			fallbackRepeat, fallbackZero)
	}
	if err := errors.Join(c.checkNames(), c.checkConnect(), c.CheckSchedule()); err != nil {
		return err
	}
	if err := otlp.Check(c.Traces); err != nil {
		return exit.Errorf(exit.Usage, "--traces: %w", err)
	}
	_, err := capture.Named(c.Cameras, func(name string) string { return name }) // Open checks the robot's names, too
	return cmp.Or(drive.CheckCPU(c.CPU), follow.CheckExit(c.OnExit), c.checkLeader(), err, c.Flags.Check(c.Log))
}

// checkLeader refuses a leader's settings without a leader, and a leader on the follower's bus.
func (c *Config) checkLeader() error {
	if !device.LeaderPort(c.Leader.Bus) && c.Leader.Bus != device.JogLeader {
		_, _, err := leader.Split(c.Leader, robot.Robot{}) // openLeader splits it for the follower
		return err
	}
	if c.Leader.Bus != "" && c.Leader.Bus != device.JogLeader {
		return device.CheckPorts(c.Leader.Bus, c.Bus) // for single arms; openLeader checks the ports of parts
	}
	if err := c.Leader.CheckUnused(c.LeaderRobot); err != nil {
		return err
	}
	if c.Takeover == takeoverPush {
		return exit.Errorf(exit.Usage, "--takeover push needs a leader to push: give its serial port as --leader")
	}
	return nil
}

// checkNames refuses names that a message to a server cannot hold.
func (c *Config) checkNames() error {
	if _, err := operator.RobotID(c.ID); err != nil && c.ID != "" {
		return err
	}
	if _, err := wire.Slug(c.Service); err != nil && c.Service != "" {
		return exit.Errorf(exit.Usage, "--service: %w", err)
	}
	if n := len(c.Tags); n > maxTags {
		return exit.Errorf(exit.Usage, "%d times --tag, want at most %d", n, maxTags)
	}
	if err := operator.CheckTask("--task", c.Task); err != nil && c.Task != "" {
		return err
	}
	c.ExpectModel = strings.ToLower(c.ExpectModel)
	if sha := c.ExpectModel; sha != "" && (len(sha) < minModelDigits || len(sha) > maxModelDigits ||
		strings.Trim(sha, "0123456789abcdef") != "") {
		return exit.Errorf(exit.Usage, "--expect-model is %q, want the sha256 that lean-server check prints, or at "+
			"least its first %d digits", sha, minModelDigits)
	}
	for key, value := range c.Tags {
		if err := errors.Join(checkText("--tag, its key", key, wire.MaxNameBytes),
			checkText("--tag, its value", value, wire.MaxNameBytes)); err != nil {
			return err
		}
	}
	return nil
}

func checkText(what, text string, most int) error {
	if len(text) > most {
		return exit.Errorf(exit.Usage, "%s has %d bytes, want at most %d", what, len(text), most)
	}
	return nil
}

// checkConnect refuses malformed endpoints, and certificates that cannot be used.
func (c *Config) checkConnect() error {
	encrypted := false
	for _, text := range c.Connect {
		e, err := endpoint.Parse(text, endpoint.Security{})
		if err == nil {
			e.Security = endpoint.Security{} // the files are checked below
			err = e.CheckDial()
		}
		if err != nil {
			return exit.Errorf(exit.Usage, "--connect: %w", err)
		}
		encrypted = encrypted || e.Protocol == endpoint.TLS
	}
	switch {
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		return exit.Errorf(exit.Usage, "--tls-cert and --tls-key go together, got only one of them")
	case c.TLS != TLS{} && !encrypted:
		return exit.Errorf(exit.Usage, "--tls-ca, --tls-cert and --tls-key are for tls/ endpoints, and --connect has "+
			"no such endpoint: write tls/HOST:PORT there, or leave them out")
	}
	if err := network.Check(c.transport()); err != nil {
		return exit.Errorf(exit.Config, "--connect, --tls-ca, --tls-cert, --tls-key: %w", err)
	}
	return nil
}

func (c *Config) transport() zenoh.Config { return c.TLS.Transport(c.Connect) }

// Transport returns the settings of connections to these endpoints.
func (t TLS) Transport(connect []string) zenoh.Config {
	return zenoh.Config{
		Connect:    connect,
		BackoffMin: dialMin,
		BackoffMax: dialMax,
		TLS:        endpoint.Security{RootCA: t.CA, ConnectCertificate: t.Cert, ConnectKey: t.Key},
	}
}

// CheckSchedule refuses an impossible schedule, and settings that the schedule would ignore. It reads only Schedule,
// Stages, FPS and ActionsPerChunk. While FPS is 0, settings that depend on the rate pass.
func (c *Config) CheckSchedule() error {
	s := c.Schedule
	if !s.Compat && slices.Index(chunk.Cooldowns, s.Cooldown) >= 2 {
		return exit.Errorf(exit.Usage, "--cooldown %s never recovers from a lost chunk, or floods the server: add "+
			"--compat to measure it all the same", s.Cooldown)
	}
	// If FPS is 0, this is a rate at which the cutoff is neither too high nor too low.
	fps := min(cmp.Or(c.FPS, 4*c.Stages.Cutoff, uplink.MaxFPS), uplink.MaxFPS)
	s.Horizon = cmp.Or(c.ActionsPerChunk, uplink.MaxHorizon)
	s.DOF = 1
	s.FPS = fps // placeholders: the server's and the robot's sizes are not known yet
	if _, err := chunk.New(s); err != nil {
		return exit.With(exit.Usage, err)
	}
	if _, err := smoothing.NewChain(c.Stages, fps, 1); err != nil {
		return exit.With(exit.Usage, err)
	}
	if rate := c.rate(); rate > uplink.MaxFPS {
		return exit.Errorf(exit.Usage,
			"--fps %v with --interpolation-multiplier %d are %v ticks per second, at most %d", c.FPS,
			c.Stages.Multiplier, rate, uplink.MaxFPS)
	}
	s = c.Schedule
	for _, f := range []struct {
		flag  string
		given bool
		with  []string // schedules for which the flag has an effect
	}{
		{"--s-min", s.SMin != 0, []string{"drtc"}},
		{"--prefix", s.Prefix != "", []string{"drtc"}},
		{"--cooldown", s.Cooldown != "", []string{"drtc"}},
		{"--buffer-time", s.Buffer != 0, []string{"rtc", "append", "v1"}},
		{"--chunk-size-threshold", s.Threshold != 0, []string{"async"}},
		{"--similarity", s.Similarity != 0, []string{"async"}},
		{"--execution-horizon", s.PrefixEnd != 0, []string{"drtc", "rtc"}},
		{"--aggregate-fn-name", s.Aggregate != "", []string{"async", "v1"}},
	} {
		if f.given && !slices.Contains(f.with, s.Schedule) {
			return exit.Errorf(exit.Usage, "%s has no effect with --schedule %s: it is for %s", f.flag, s.Schedule,
				strings.Join(f.with, ", "))
		}
	}
	switch {
	case s.Cooldown == chunk.Cooldowns[0] && s.Compat:
		return exit.Errorf(exit.Usage, "--cooldown %s is not part of the original that --compat runs: leave one of "+
			"the flags out, or give --cooldown one of %s", s.Cooldown, strings.Join(chunk.Cooldowns[1:], ", "))
	case s.EstimatorK != 0 && s.Estimator != "jk":
		return exit.Errorf(exit.Usage, "--estimator-k is for --estimator jk, which has to be given with it")
	case s.EstimatorFixed != 0 && s.Estimator != "fixed":
		return exit.Errorf(exit.Usage, "--estimator-fixed is for --estimator fixed, which has to be given with it")
	case s.Estimator != "" && s.Compat && !slices.Contains([]string{"drtc", "rtc"}, s.Schedule):
		return exit.Errorf(exit.Usage,
			"--estimator has no effect with --schedule %s --compat, which makes no estimates", s.Schedule)
	}
	return nil
}

// rate returns ticks per second; FPS is actions per second.
func (c *Config) rate() float64 { return c.FPS * float64(max(c.Stages.Multiplier, 1)) }

func (c *Config) period() time.Duration { return time.Duration(float64(time.Second) / c.rate()) }

// certificateWarnings returns warnings about the robot's certificate: it is close to its expiry, or
// it names another robot than id.
func (c *Config) certificateWarnings(id string) []string {
	security := c.transport().TLS
	warnings := security.Ending()
	if text := c.otherRobot(id); text != "" {
		warnings = append(warnings, text)
	}
	return warnings
}

// otherRobot returns a sentence when the certificate does not name this robot. Servers and routers
// may grant access to the named robot only. It returns "" when the certificate names the robot,
// cannot be read or does not exist.
func (c *Config) otherRobot(id string) string {
	if c.TLS.Cert == "" {
		return ""
	}
	shown, err := endpoint.ReadCertificate(c.TLS.Cert)
	switch {
	case err != nil:
	case !slices.Contains(shown.Names, id):
		return fmt.Sprintf("the certificate %s names %s, and this robot is %s: servers and routers that identify "+
			"robots by their certificates refuse it (--id)",
			c.TLS.Cert, cmp.Or(strings.Join(shown.Names, ", "), "no robot"), id)
	case shown.CommonName != id:
		return fmt.Sprintf("the common name of the certificate %s is %q, and this robot is %s: an official router "+
			"reads no other name, and refuses the robot",
			c.TLS.Cert, shown.CommonName, id)
	}
	return ""
}

// realArm returns the reason why the run drives a real arm, "" for a simulated one. A
// pseudo-terminal leads to a bus simulator or to a remote arm, and counts as simulated if all
// cameras are simulated. One real arm among several makes the run real.
func (c *Config) realArm() string {
	if c.Bus == device.Sim {
		return ""
	}
	const cure = "run it with --bus sim, or serve a policy that was trained on this arm"
	buses := device.ByPart{c.Bus}.Values()
	serial := func(bus string) bool { return bus != device.Sim && !device.PseudoTerminal(bus) }
	if len(buses) == 0 || slices.ContainsFunc(buses, serial) {
		return fmt.Sprintf("--bus %s is a serial port, and on a real arm its actions mean nothing; %s", c.Bus, cure)
	}
	for i := range c.Cameras {
		if cam := &c.Cameras[i]; !cam.Simulated() {
			return fmt.Sprintf("--bus %s is a pseudo-terminal, which is simulated only if all cameras are, and "+
				"--camera %s=%s is not; give --camera %[2]s=sim, or %[2]s=sim:SOCKET of an edge-rt sim-bus --scene "+
				"SOCKET; else %[4]s", c.Bus, cam.Name, cam.Source, cure)
		}
	}
	return ""
}
