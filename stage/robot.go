package stage

import (
	"bytes"
	"cmp"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// ctlLimit is the longest time until an edge accepts commands of edge-rt ctl.
const ctlLimit = 10 * time.Second

// Robot is a running edge-rt.
type Robot struct {
	*Child
	ID       string
	EndedAt  rt.Instant // valid once Ended
	bin, dir string
	gone     chan struct{} // closed when the process has ended
}

// StartRobot starts bin's edge-rt under the id, with its state in the folder dir, as a process group.
func StartRobot(bin, dir, id string, args ...string) (*Robot, error) {
	c, err := StartGroup(Edge(bin, dir, append(args, "--id", id)...))
	if err != nil {
		return nil, err
	}
	r := &Robot{
		Child: c,
		ID:    id,
		bin:   bin,
		dir:   dir,
		gone:  make(chan struct{}),
	}
	go func() {
		waitDeath(r.PID(), r.Exited())
		r.EndedAt = rt.KernelClock().Now()
		close(r.gone)
	}()
	return r, nil
}

// Ended reports whether the edge has ended. Its watchdog process may still run and keep the edge's
// outputs open; Exited waits for that process, too.
func (r *Robot) Ended() bool {
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}

// Close kills the edge if it still runs, even if a signal has stopped it.
func (r *Robot) Close() {
	if r.Running() {
		_ = r.Signal(syscall.SIGCONT)
		r.Kill()
	}
}

// Signal sends a signal to the edge only; its watchdog process does not get it.
func (r *Robot) Signal(s syscall.Signal) error { return syscall.Kill(r.PID(), s) }

// signalNames has the names of the signals that may end an edge in a trial.
var signalNames = map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGTERM: "SIGTERM",
	syscall.SIGABRT: "SIGABRT"}

// Exit waits for the edge's end, and returns its exit code or the signal that ended it.
func (r *Robot) Exit() string {
	<-r.Exited()
	if status, ok := r.State().Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return cmp.Or(signalNames[status.Signal()], fmt.Sprintf("SIG%d", int(status.Signal())))
	}
	return fmt.Sprint(r.State().ExitCode())
}

// Reason returns the ended edge's last message in one line. It is empty if the edge's last output is a line of its log.
func (r *Robot) Reason() string {
	const most = 300
	words := r.LastWords()
	if strings.HasPrefix(words, "t=") {
		return ""
	}
	if len(words) > most {
		words = words[:most] + "..."
	}
	return words
}

// Ctl runs edge-rt ctl with this command, and repeats it for up to ctlLimit until the edge accepts it.
func (r *Robot) Ctl(word string) (err error) {
	var out []byte
	Until(ctlLimit, func() bool {
		out, err = r.ctl(word).CombinedOutput()
		return err == nil || !r.Running()
	})
	if err != nil {
		return fmt.Errorf("edge-rt ctl %s: %w: %s", word, err, bytes.TrimSpace(out))
	}
	return nil
}

func (r *Robot) ctl(word string) *exec.Cmd { return Edge(r.bin, r.dir, "ctl", word, "--id", r.ID) }
