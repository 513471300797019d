// Package stagetest runs the real programs in tests.
package stagetest

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

// limit is how long a program may take to end. Only a test that fails waits for that time.
const limit = time.Minute

// Program is a program under test. Both outputs go to its log, unless the test sets others before
// Start.
type Program struct {
	*exec.Cmd
	Log *rttest.Output
	t   *testing.T
}

// Command returns a program with a state directory of its own.
func Command(t *testing.T, path string, args ...string) *Program {
	t.Helper()
	p := &Program{Cmd: exec.Command(path, args...), Log: new(rttest.Output), t: t}
	p.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir())
	p.Stdout, p.Stderr = p.Log, p.Log
	return p
}

// Start starts the program, in a process group of its own unless the test wants otherwise. The end of
// the test kills the program.
func (p *Program) Start() *Program {
	p.t.Helper()
	p.SysProcAttr = cmp.Or(p.SysProcAttr, &syscall.SysProcAttr{Setpgid: true})
	rttest.PanicOn(p.Cmd.Start())
	p.t.Cleanup(func() { p.Process.Kill() }) // Kill's only error is that the program has ended
	return p
}

// SignalGroup sends a signal to the program's process group, as a terminal does.
func (p *Program) SignalGroup(sig syscall.Signal) { syscall.Kill(-p.Process.Pid, sig) }

// Await returns when the log has the text.
func (p *Program) Await(text string) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%s wrote:\n%s", filepath.Base(p.Path), p.Log)
		}
	}()
	rttest.Eventually(p.t, strconv.Quote(text), func() bool { return strings.Contains(p.Log.String(), text) })
}

// End sends the signals and returns the exit code of the program, -1 when a signal has killed it.
func (p *Program) End(signals ...os.Signal) (code int) {
	p.t.Helper()
	for _, sig := range signals {
		p.Process.Signal(sig)
	}
	overdue := time.AfterFunc(limit, func() { p.Process.Kill() })
	defer overdue.Stop()
	if err, exit := p.Wait(), (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// EndsWith ends the program as End does, and fails the test if the program exits with another code.
func (p *Program) EndsWith(code int, signals ...os.Signal) {
	p.t.Helper()
	if got := p.End(signals...); got != code {
		p.t.Errorf("%s ended with code %d, want %d:\n%s", filepath.Base(p.Path), got, code, p.Log)
	}
}

// Run runs the program to its end.
func (p *Program) Run() (code int, stdout, stderr string) {
	p.t.Helper()
	var out, log strings.Builder
	p.Stdout, p.Stderr = &out, &log
	code = p.Start().End()
	return code, out.String(), log.String()
}

// CheckSays does the same as the function CheckSays for the log.
func (p *Program) CheckSays(parts string) {
	p.t.Helper()
	CheckSays(p.t, p.Log.String(), parts)
}

// CheckSays fails the test for each of the parts, separated by |, that the text lacks.
func CheckSays(t *testing.T, text, parts string) {
	t.Helper()
	rttest.Contains(t, text, strings.Split(parts, "|")...)
}

// Refusal is a command line that a program refuses with one line on standard error.
type Refusal struct {
	Args string // separated by blanks
	Code int
	Says string // parts of the line, separated by |
}

// Check calls run with the arguments in before, followed by those of r, and checks the refusal.
func (r Refusal) Check(t *testing.T, run func(*testing.T, ...string) (int, string, string), before ...string) {
	t.Helper()
	code, stdout, stderr := run(t, append(before, strings.Fields(r.Args)...)...)
	if code != r.Code || stdout != "" || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%s: exit code %d, %q on standard output, want %d and one line on standard error:\n%s", r.Args, code,
			stdout, r.Code, stderr)
	}
	CheckSays(t, stderr, r.Says)
}

// Refusals returns the refusals of a text whose lines are ARGS => CODE SAYS, or a comment. It panics on other lines.
func Refusals(text string) (list []Refusal) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		args, want, _ := strings.Cut(line, "=> ")
		code, says, _ := strings.Cut(want, " ")
		list = append(list, Refusal{args, rttest.OrPanic(strconv.Atoi(code)), says})
	}
	return list
}

// NeedsRuntime skips the test where ONNX Runtime is missing.
func NeedsRuntime(t testing.TB) {
	t.Helper()
	err := policy.OpenRuntime("", "cpu")
	if errors.Is(err, policy.ErrNoRuntime) {
		t.Skipf("no ONNX Runtime here: %.80s", err)
	}
	rttest.Do(t, err)
}

// FreeEndpoint returns an endpoint on this machine at which no program listens, and its port.
func FreeEndpoint(t *testing.T) (endpoint, port string) {
	t.Helper()
	endpoint = rttest.Must(stage.FreeEndpoint())(t)
	return endpoint, endpoint[strings.LastIndexByte(endpoint, ':')+1:]
}
