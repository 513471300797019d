package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire"
)

// holdServer is a fake server whose chunks keep the arm where it is, unless a test sets others.
type holdServer struct{ *stage.FakeServer }

const stillHorizon = 30

func newHoldServer(t *testing.T) *holdServer {
	t.Helper()
	s := rttest.Must(stage.OpenFakeServer(t.Context(), stage.FakeConfig{
		Model:   "test/still",
		Service: "still",
		Robot:   "arm",
		Rows:    stillHorizon,
	}))(t)
	t.Cleanup(s.Close)
	return &holdServer{s}
}

// underTorque counts the motors under torque.
func underTorque(b *servosim.Bus) (n int) {
	for _, on := range b.TorqueEnabled() {
		if on {
			n++
		}
	}
	return n
}

// awaitTorque waits until want motors are under torque.
func awaitTorque(t *testing.T, b *servosim.Bus, want int) {
	t.Helper()
	last := -1
	defer func() {
		if t.Failed() {
			t.Logf("%d motors are under torque, want %d", last, want)
		}
	}()
	rttest.Eventually(t, "torque", func() bool { last = underTorque(b); return last == want })
}

// instead returns the flags in own, and those flags in helpers that own does not have, so that no flag is given
// twice. In helpers, each flag has a value.
func instead(helpers, own []string) (all []string) {
	for i := 0; i < len(helpers); i += 2 {
		if !slices.Contains(own, helpers[i]) {
			all = append(all, helpers[i], helpers[i+1])
		}
	}
	return append(all, own...)
}

// process is a run of edge-rt, or another of its commands that holds an arm.
type process struct {
	*stagetest.Program
	t    *testing.T
	file string // file of --json
}

// edgeCommand returns a run, not yet started, with the flags that instead returns.
func edgeCommand(t *testing.T, helpers []string, own ...string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.json")
	return &process{stagetest.Command(t, binary, instead(append(helpers, "--json", file), own)...), t, file}
}

// runOn returns a run, not yet started, on a simulated bus and with a fake server. The run's rate is low enough for
// a busy machine.
func runOn(t *testing.T, s *holdServer, b *servosim.Bus, args ...string) *process {
	t.Helper()
	return edgeCommand(t, []string{"--bus", b.Path(), "--calibration", demoCalibration, "--connect", s.Endpoint, "--id",
		"arm", "--request-timeout", "1s", "--fps", "10"}, args...)
}

// startArmed starts a run and returns it once the arm is under torque.
func startArmed(t *testing.T, s *holdServer, b *servosim.Bus, args ...string) *process {
	t.Helper()
	r := runOn(t, s, b, args...)
	r.Start()
	awaitTorque(t, b, 6)
	return r
}

// ends ends the process as End does, and checks its exit code and the number of motors under torque afterwards.
func (r *process) ends(b *servosim.Bus, code, stiff int, signals ...os.Signal) {
	r.t.Helper()
	r.EndsWith(code, signals...)
	rttest.Want(r.t, underTorque(b), stiff, "motors under torque after the end")
}

// play runs the process to its end.
func (r *process) play() (code int, s edge.Summary) {
	r.t.Helper()
	code = r.Start().End()
	return code, r.summary()
}

// summary reads the summary of the ended run.
func (r *process) summary() (s edge.Summary) {
	r.t.Helper()
	s.Episodes = new(episode.Status)
	rttest.ReadJSON(r.t, r.file, &s)
	return s
}

// beside returns another command of edge-rt, with the same state directory as the run's.
func (r *process) beside(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = r.Env
	return cmd
}

// ctl sends a command to the run.
func (r *process) ctl(args ...string) (code int, reply operator.Reply, says string) {
	r.t.Helper()
	cmd := r.beside(append([]string{"ctl"}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	reply.Episodes = new(episode.Status)
	if out, err := cmd.Output(); err == nil {
		if err := json.Unmarshal(out, &reply); err != nil {
			r.t.Fatalf("%s: %v", out, err)
		}
	}
	return cmd.ProcessState.ExitCode(), reply, errs.String()
}

// awaitCtl sends a command to the run until the run accepts it.
func (r *process) awaitCtl(args ...string) {
	r.t.Helper()
	rttest.Eventually(r.t, "ctl "+strings.Join(args, " "), func() bool {
		code, _, _ := r.ctl(args...)
		return code == 0
	})
}

// comeBackAsAnother makes the server disappear and refuse the session when it is back.
func (s *holdServer) comeBackAsAnother() {
	s.SetAck(func(a *wire.SessionAck) { a.Accepted, a.Error = false, "state dim mismatch: server=7, client=6" })
	s.Token.Undeclare()
	s.Token, _ = s.Net.Token(wire.ServerAliveKey(s.Prefix))
}

// encoderFault is a bit of a Feetech servo's status; a run of a built-in robot ends on it.
const encoderFault = 1 << 1

// Whatever ends a run whose arm is under torque, the run releases the arm, or holds it with --on-exit hold. The
// summary has the reason for the end.
func TestEveryWayOutLetsTheArmGo(t *testing.T) {
	t.Parallel()
	type stand struct {
		*process
		server *holdServer
		bus    *servosim.Bus
	}
	term := func(s stand) { s.Process.Signal(syscall.SIGTERM) }
	away := func(s stand) { s.server.Net.Close() }
	ctl := func(word string) func(stand) { return func(s stand) { s.wants(0, "", word) } }
	for _, tt := range []struct {
		name   string
		args   string
		end    func(stand)
		code   int
		stiff  int
		reason string
	}{
		{"SIGINT", "", func(s stand) { s.Process.Signal(syscall.SIGINT) }, 0, 0, "stopped by signal"},
		{"SIGTERM", "--duration 10m", term, 0, 0, "stopped by signal"},
		{"SIGTERM twice", "", func(s stand) {
			term(s)
			time.Sleep(50 * time.Millisecond) // the kernel would merge two signals sent at once
			term(s)
		}, 0, 0, "stopped by signal"},
		{"off", "--on-exit off", term, 0, 0, ""},
		{"hold", "--on-exit hold", term, 0, 6, ""},
		{"ctl stop", "", ctl("stop"), 0, 0, "stopped by an operator"},
		{"ctl stop, hold", "--on-exit hold", ctl("stop"), 0, 6, ""},
		{"ctl release, hold", "--on-exit hold", ctl("release"), 0, 0, ""},
		{"the end of its duration", "--duration 1500ms", func(stand) {}, 0, 0, ""},
		{"a server that comes back as another", "", func(s stand) { s.server.comeBackAsAnother() }, 3, 0,
			"state dim mismatch"},
		{"a server that stays away", "--max-offline 1500ms", away, 4, 0, ""},
		{"a server that stays away, hold", "--on-exit hold --max-offline 1500ms", away, 4, 6, ""},
		{"a motor's fault, hold", "--on-exit hold", func(s stand) { s.bus.SetFault(3, encoderFault) }, 6, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, b := newHoldServer(t), simBus(t)
			r := startArmed(t, s, b, append([]string{"--quiet"}, strings.Fields(tt.args)...)...)
			tt.end(stand{r, s, b})
			r.ends(b, tt.code, tt.stiff)
			if e := r.summary().Exit; e.Code != tt.code || !strings.Contains(e.Reason, tt.reason) {
				t.Errorf("the summary says %+v, want %d and %q", e, tt.code, tt.reason)
			}
		})
	}
}

// With two reachable services the operator has to choose; torque is not touched.
func TestTwoServicesWantAChoice(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	other := rttest.Must(wire.ServicePrefix("test/other", "main", "other"))(t)
	rttest.Must(s.Net.Token(wire.ServerAliveKey(other)))(t)
	r := runOn(t, s, b, "--quiet")
	r.Start().EndsWith(3)
	r.CheckSays("--service|still|other")
	r = runOn(t, s, b, "--quiet", "--service", "still", "--duration", "500ms")
	r.Start()
	r.ends(b, 0, 0)
}
