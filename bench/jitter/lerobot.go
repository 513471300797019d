package jitter

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/stage"
)

// The values of --lerobot that name no Python.
const (
	lerobotAuto = "auto"
	lerobotOff  = "off"
)

const (
	lerobotLimit  = 30 * time.Second // longest time for Python to begin on a busy machine
	maxShebang    = 4 << 10          // largest size in bytes of a script's first line
	lerobotAbsent = "no LeRobot on PATH: --lerobot PYTHON, of an environment that has it, runs its loop in turn with " +
		"ours"
)

//go:embed lerobot.py
var lerobotScript []byte

// LeRobot describes the LeRobot of this machine.
type LeRobot struct {
	Python  string `json:"python,omitempty"`  // program that runs it
	Version string `json:"version,omitempty"` // its version
	Missing string `json:"missing,omitempty"` // why LeRobot's loop is not measured
}

// findLeRobot tries the Python that --lerobot names. If the flag is "auto", findLeRobot tries the Python of LeRobot's
// own commands and then python3, and returns no error if neither has LeRobot.
func findLeRobot(wish string) (LeRobot, error) {
	switch wish {
	case lerobotOff:
		return LeRobot{Missing: "--lerobot off"}, nil
	case lerobotAuto:
		for _, python := range []string{interpreterOf("lerobot-record"), "python3"} {
			if l, err := tryLeRobot(python); err == nil {
				return l, nil
			}
		}
		return LeRobot{Missing: lerobotAbsent}, nil
	}
	l, err := tryLeRobot(wish)
	if err != nil {
		return l, exit.Errorf(exit.Usage, "--lerobot %s: %w; want the Python of an environment with LeRobot, such as "+
			"venv/bin/python, or off", wish, err)
	}
	return l, nil
}

// interpreterOf returns the first word of a script's first line; "" if the line names no
// interpreter.
func interpreterOf(command string) string {
	path, err := exec.LookPath(command)
	if err != nil {
		return ""
	}
	text, _ := userfile.Read(path, maxShebang)
	first, _, _ := strings.Cut(string(text), "\n")
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	if len(words) == 0 || !strings.HasPrefix(first, "#!/") {
		return ""
	}
	return words[0]
}

// tryLeRobot runs the loop for a few turns.
func tryLeRobot(python string) (LeRobot, error) {
	path, err := exec.LookPath(python)
	if err != nil {
		return LeRobot{}, err
	}
	c, err := stage.Start(lerobotCommand(path, 100, 50*time.Millisecond))
	if err == nil {
		err = c.Wait(lerobotLimit)
	}
	if err != nil {
		return LeRobot{}, err
	}
	_, loop, err := parseLeRobot(c.Stdout())
	return LeRobot{Python: path, Version: loop.Version}, err
}

func lerobotCommand(python string, fps float64, d time.Duration) *exec.Cmd {
	cmd := stage.Command(python, "-", strconv.FormatFloat(fps, 'g', -1, 64),
		strconv.FormatFloat(d.Seconds(), 'g', -1, 64))
	cmd.Stdin = bytes.NewReader(lerobotScript)
	return cmd
}

// lerobotSubject runs LeRobot's loop.
type lerobotSubject struct {
	python string
	fps    float64
}

func (l *lerobotSubject) start(d time.Duration, _ bool) (*process, error) {
	return start(lerobotCommand(l.python, l.fps, d))
}

func (l *lerobotSubject) result(c *process) (*Run, error) {
	run, _, err := parseLeRobot(c.Stdout())
	return run, err
}

// lerobotResult is the script's output.
type lerobotResult struct {
	Version   string       `json:"version"`
	Seconds   float64      `json:"seconds"`
	Histogram *bench.Tally `json:"histogram"`
}

// parseLeRobot reads the script's output.
func parseLeRobot(b []byte) (*Run, lerobotResult, error) {
	var r lerobotResult
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, r, fmt.Errorf("the output of LeRobot's loop is unreadable: %w", err)
	}
	if r.Histogram == nil || r.Histogram.Count() == 0 || !(r.Seconds > 0) {
		return nil, r, errors.New("the output of LeRobot's loop has no turns")
	}
	return &Run{Count: Count{
		Ticks:    r.Histogram.Count(),
		Seconds:  r.Seconds,
		Lateness: r.Histogram.Quantiles(),
		Tally:    r.Histogram,
	}}, r, nil
}
