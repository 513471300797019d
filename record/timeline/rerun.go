package timeline

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/wire/foxglove"
)

//go:embed rerun.py
var rerunProgram string

const (
	rerunStart   = time.Minute     // time limit for the imports and the start of a viewer
	rerunEnd     = 5 * time.Second // time limit for sending the messages that the viewer does not have yet
	rerunWaiting = 64              // messages in the queue
	noRerun      = 9               // exit code of rerun.py without Rerun's SDK
	noViewer     = 8               // exit code of rerun.py without a viewer
)

// rerun streams messages to a Rerun viewer by Rerun's own SDK, in a process of the user's Python.
type rerun struct {
	cmd           *exec.Cmd
	in            io.WriteCloser
	frames        chan []byte // messages in the form that rerun.py reads
	sent, dropped atomic.Uint64
}

// startRerun starts the process, and returns as soon as the viewer can be reached. The process ends when ctx ends.
func startRerun(ctx context.Context, cfg RelayConfig, name string, channels []foxglove.Channel) (*rerun, error) {
	if err := checkViewer(ctx, cfg.Viewer); err != nil {
		return nil, err
	}
	args := []string{"-c", rerunProgram, plain.Text(name), cfg.Viewer}
	for _, c := range channels {
		args = append(args, plain.Text(c.Topic))
	}
	r := &rerun{cmd: exec.CommandContext(ctx, cfg.Python, args...), frames: make(chan []byte, rerunWaiting)}
	in, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.in = in
	r.cmd.Stderr = os.Stderr // the viewer writes to it, too, and may run longer than this program
	r.cmd.Cancel, r.cmd.WaitDelay = in.Close, rerunEnd
	if err := r.cmd.Start(); err != nil {
		return nil, exit.Errorf(exit.Usage, "--python: %w; want an interpreter with Rerun's SDK", err)
	}
	late := time.AfterFunc(rerunStart, func() { _ = r.cmd.Process.Kill() })
	if _, err = bufio.NewReader(out).ReadString('\n'); late.Stop() && err == nil {
		return r, nil
	}
	_ = r.cmd.Wait() // the process state has everything that the error needs
	return nil, r.failed("no Rerun viewer was reached, and a new one needs a screen: --viewer names one that " +
		"runs, also on another machine")
}

// checkViewer returns an error when the address is malformed or no viewer answers there. An empty address means the
// viewer of this machine and is not checked.
func checkViewer(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "rerun+http" || u.Port() == "" || u.Path != "/proxy" {
		return exit.Errorf(exit.Usage, "--viewer is %q, want rerun+http://HOST:PORT/proxy, such as "+
			"rerun+http://127.0.0.1:9876/proxy", address)
	}
	conn, err := (&net.Dialer{Timeout: relayTimeout}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return exit.Errorf(exit.Absent, "--viewer %s: %w; start rerun there", address, err)
	}
	return conn.Close()
}

// failed returns the error for a process that ended before ctx. The process has printed the reason. The parameter
// absent is the text of the error for a viewer that does not answer.
func (r *rerun) failed(absent string) error {
	switch r.cmd.ProcessState.ExitCode() {
	case noRerun:
		return exit.Errorf(exit.Usage,
			"%[1]s has no Rerun SDK that fits: %[1]s -m pip install --upgrade rerun-sdk, or "+
				"name another interpreter with --python", r.cmd.Path)
	case noViewer:
		return exit.With(exit.Absent, errors.New(absent))
	}
	return fmt.Errorf("the Rerun SDK in %s has ended: %v; its reason is above", r.cmd.Path, r.cmd.ProcessState)
}

// Publish sends a message of a channel with the time at which its values were measured. A message that finds the queue
// full is dropped.
func (r *rerun) Publish(channel uint32, at time.Time, message []byte) {
	frame := make([]byte, 0, 16+len(message))
	frame = binary.LittleEndian.AppendUint32(frame, channel)
	frame = binary.LittleEndian.AppendUint64(frame, uint64(at.UnixNano()))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(message)))
	select {
	case r.frames <- append(frame, message...):
	default:
		r.dropped.Add(1)
	}
}

// serve writes the messages to the process until ctx is done or the process ends.
func (r *rerun) serve(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case frame := <-r.frames:
				if _, err := r.in.Write(frame); err != nil {
					return // the process or ctx has ended
				}
				r.sent.Add(1)
			}
		}
	}()
	_ = r.cmd.Wait()
	close(ended)
	if ctx.Err() != nil {
		return nil
	}
	return r.failed("the Rerun viewer has ended, or does not answer any more")
}
