// Package operator is a person's control of a process that drives an arm. The process owns a name and a folder of state
// (identity.go), and listens at a unix socket in this folder, to which edge-rt ctl sends one line. bundles.go remembers
// the policies that have run on an arm.
package operator

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/wire"
)

// Limits of the socket.
const (
	timeout     = 5 * time.Second        // time limit of one command, its answer included
	readTimeout = 500 * time.Millisecond // longest wait for the client's command
	lineBytes   = wire.MaxTextBytes + 64 // largest size of a command
	acceptPause = 50 * time.Millisecond  // pause after a connection that the kernel refuses
)

// atOnce is the number of connections that Serve answers at once, so that a slow command or client delays no release.
const atOnce = 4

// Listen opens the socket. It replaces an old socket: the id is locked, so the old socket's process
// has ended.
func Listen(id *Identity) (net.Listener, error) {
	path := SocketPath(id.Dir, id.ID)
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("operator socket: %w", err)
	}
	return l, nil
}

// Serve answers connections in threads that it begins with start, until the socket is closed.
func Serve(l net.Listener, start func(thread func() error), command func(line string) Reply) {
	for range atOnce {
		start(func() error { answer(l, command); return nil })
	}
}

// answer answers one connection at a time, until the socket is closed.
func answer(l net.Listener, command func(line string) Reply) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return // the run is over
		}
		if err != nil { // such as too many open files
			time.Sleep(acceptPause)
			continue
		}
		c.SetReadDeadline(time.Now().Add(readTimeout))
		c.SetWriteDeadline(time.Now().Add(timeout))
		r := bufio.NewReaderSize(c, lineBytes)
		line, err := r.ReadSlice('\n')
		var reply Reply
		if err != nil {
			reply.Error = "want one command and a newline"
		} else {
			reply = command(string(line[:len(line)-1]))
		}
		json.NewEncoder(c).Encode(reply)
		c.Close()
	}
}

// abandoned reports whether no process listens at a socket. It does not take the lock of the id.
func abandoned(socket string) bool {
	c, err := net.DialTimeout("unix", socket, timeout)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

// Ctl sends one line to the robot with this id, or to the only robot when id is empty.
func Ctl(id, line string) (Reply, error) {
	var reply Reply
	dirs, closed, err := StateDirs()
	if err != nil {
		return reply, exit.With(exit.Config, err)
	}
	if id != "" { // the id gets the form in which the edge reads its --id
		if id, err = RobotID(id); err != nil {
			return reply, err
		}
	}
	hint := ""
	if closed != "" {
		hint = "; services have their sockets in " + closed +
			", which this user may not read: sudo edge-rt ctl, or be in its group"
	}
	path, err := findSocket(dirs, id)
	if err != nil {
		return reply, fmt.Errorf("%w%s", err, hint)
	}
	c, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		if id != "" {
			path = strings.Join(socketPaths(dirs, id), " or ")
		}
		return reply, exit.Errorf(exit.Absent, "no edge answers at %s: %w; give the --id of a running edge, or no "+
			"--id if only one runs; an edge that still looks for its arm or a server does not answer%s", path, err,
			hint)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(timeout))
	if _, err := fmt.Fprintln(c, line); err != nil {
		return reply, err
	}
	switch err := json.NewDecoder(c).Decode(&reply); {
	case errors.Is(err, io.EOF):
		return reply, fmt.Errorf("the edge at %s ended before it answered: edge-rt ctl status shows whether it runs",
			path)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return reply, fmt.Errorf("the edge at %s did not answer within %v: it hangs, or the machine is busy", path,
			timeout)
	case err != nil:
		return reply, fmt.Errorf("answer of the edge at %s: %w", path, err)
	}
	if strings.HasPrefix(reply.Error, "unknown command ") {
		reply.Error += ": this run is of an older edge-rt; end it by Ctrl-C or its service, and start it again"
	}
	if reply.OK {
		return reply, nil
	}
	code := cmp.Or(exit.Code(reply.Code), exit.Failure) // an older edge sends no code
	if code == exit.Failure && strings.HasPrefix(line, Task) {
		code = exit.Config // edge-rt also exits with it when a session is opened with a bad task
	}
	reply.Code = int(code)
	return reply, exit.With(code, errors.New(reply.Error))
}

// socketPaths returns the possible socket paths of the robot with this id, nil without an id.
func socketPaths(dirs []string, id string) (paths []string) {
	for _, dir := range dirs {
		if id == "" {
			break
		}
		paths = append(paths, SocketPath(dir, id))
	}
	return paths
}

// findSocket returns the socket of the robot with this id, or of the only robot when id is empty.
func findSocket(dirs []string, id string) (path string, err error) {
	found := socketPaths(dirs, id)
	if id == "" {
		for _, dir := range dirs {
			sockets, err := filepath.Glob(filepath.Join(dir, "*.sock"))
			if err != nil {
				return "", err
			}
			found = append(found, sockets...)
		}
	}
	if live := slices.DeleteFunc(slices.Clone(found), abandoned); id == "" || len(live) > 0 {
		found = live
	} else {
		found = found[:1] // the error of the dial gives the reason
	}
	switch len(found) {
	case 0:
		return "", exit.Errorf(exit.Absent, "no edge answers here (no socket in %s): an edge that still looks for "+
			"its arm or a server has no socket; SIGTERM ends it", strings.Join(dirs, " or "))
	case 1:
		return found[0], nil
	}
	return "", exit.Errorf(exit.Usage,
		"%d edges run here (%v): choose one with --id, or the folder with STATE_DIRECTORY", len(found), found)
}

// CheckTask returns an error for a text that would not stay unchanged in a log, in a line of edge-rt ctl or in a
// message. what names the text in the error.
func CheckTask(what, text string) error {
	if text == "" {
		return exit.Errorf(exit.Usage, "%s is empty, want the arm's task, such as: pick up the cube", what)
	}
	if fault := wire.TaskFault(text); fault != "" {
		return exit.Errorf(exit.Usage, "%s %s", what, fault)
	}
	return nil
}

// Reply is the answer to a command. Its JSON keys are a contract (docs/json.md); values that a run
// without a policy does not have are 0.
type Reply struct {
	OK       bool                `json:"ok"`                    // the command was accepted
	Error    string              `json:"error,omitempty"`       // reason for the refusal
	Code     int                 `json:"code,omitempty"`        // exit code of edge-rt ctl for the refusal
	ID       string              `json:"id"`                    // name of the robot
	State    string              `json:"state"`                 // state of the run
	Paused   bool                `json:"paused"`                // an operator has paused the arm
	Phase    string              `json:"phase,omitempty"`       // phase of the take-over, in a run with a leader
	Taken    string              `json:"taken,omitempty"`       // of several parts: the parts that a person drives
	Waits    string              `json:"waits,omitempty"`       // the operator's next step without which nothing moves
	Episode  uint32              `json:"episode_id"`            // number of the episode
	Task     string              `json:"task,omitempty"`        // the arm's current task
	Acked    bool                `json:"reset_acked,omitempty"` // the server confirmed the reset
	Ticks    uint64              `json:"ticks"`                 // ticks that ran
	Queue    int64               `json:"queue"`                 // actions that wait
	Starved  uint64              `json:"starved_ticks"`         // ticks without an action though one was due
	Requests uint64              `json:"requests"`              // requests for a chunk
	Chunks   uint64              `json:"chunks"`                // chunks merged into the schedule
	RTTms    float64             `json:"rtt_ms_p50"`            // ms, median from a request's state to the merge of its chunk
	Leader   *leader.RemoteStats `json:"remote_leader,omitempty"`
	Overruns uint64              `json:"overruns_own"`    // ticks that by their own work ended after the next was due
	Targets  int                 `json:"targets_reached"` // reached targets of the simulated world

	Episodes *episode.Status `json:"episodes,omitempty"` // absent without past or planned episodes
}
