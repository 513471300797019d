package zenohtest

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

//go:embed node.py
var script string

const (
	answerLimit = 30 * time.Second
	maxBlob     = 64 << 20
	maxHeader   = 1 << 20
	maxEvents   = 256 // events not yet delivered; more events would block the node
	none        = 0xffffffff
)

// Python is an interpreter with one version of the official wheel.
type Python struct {
	Path     string
	Packages string // a folder in which Python searches for packages first; may be empty
}

// Check returns the version of the installed wheel, or an error when no wheel is installed.
func (p Python) Check() (version string, err error) {
	cmd := p.command("-c", "import zenoh, importlib.metadata; zenoh.open; "+
		"print(importlib.metadata.version('eclipse-zenoh'))")
	out, err := cmd.Output()
	if err != nil {
		var status *exec.ExitError
		if errors.As(err, &status) {
			text := strings.TrimSpace(string(status.Stderr))
			err = fmt.Errorf("%w: %s", err, text[strings.LastIndexByte(text, '\n')+1:])
		}
		return "", fmt.Errorf("no official Zenoh at %s: %w", p.Path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (p Python) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.Path, args...)
	if p.Packages != "" {
		cmd.Env = append(os.Environ(), "PYTHONPATH="+p.Packages)
	}
	return cmd
}

// Node is an official node in a separate process. It has one session at a time.
type Node struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr rttest.Output
	gone   chan struct{} // closed when the process has ended

	writing sync.Mutex // held while a frame is written

	mu      sync.Mutex
	last    uint64               // id of the last command, guarded by mu
	waiting map[uint64]chan head // answers that are awaited, guarded by mu
	session *Session             // guarded by mu
}

// head is the header of a frame that a node sends, of any kind.
type head struct {
	Answer uint64
	Failed string
	Event  string
	Name   string
	Yes    bool

	Key   string
	Query int
	Error bool
	Alive bool

	payload, attachment []byte
}

// Start starts a node that has no session yet.
func Start(python Python) (*Node, error) {
	n := &Node{cmd: python.command("-c", script), gone: make(chan struct{}), waiting: map[uint64]chan head{}}
	n.cmd.Stderr = &n.stderr
	var err error
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	go n.read(stdout)
	return n, nil
}

// read reads the node's output until it ends.
func (n *Node) read(stdout io.Reader) {
	for {
		h, err := readFrame(stdout)
		if err != nil {
			break
		}
		n.mu.Lock()
		s, answer := n.session, n.waiting[h.Answer]
		if h.Answer != 0 {
			delete(n.waiting, h.Answer)
		}
		n.mu.Unlock()
		switch {
		case h.Answer != 0 && answer != nil:
			answer <- h
		case h.Event == "reply" || h.Event == "final":
			if s != nil {
				s.replied(h)
			}
		case h.Event != "" && s != nil:
			select {
			case s.events <- h:
			case <-s.closed:
			}
		}
	}
	n.cmd.Wait()
	close(n.gone)
}

func readFrame(r io.Reader) (h head, err error) {
	var sizes [12]byte
	if _, err := io.ReadFull(r, sizes[:]); err != nil {
		return h, err
	}
	size := binary.LittleEndian.Uint32(sizes[:])
	if size > maxHeader {
		return h, fmt.Errorf("a header of %d bytes", size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, err
	}
	for i, into := range []*[]byte{&h.payload, &h.attachment} {
		size := binary.LittleEndian.Uint32(sizes[4+4*i:])
		if size == none {
			continue
		}
		if size > maxBlob {
			return h, fmt.Errorf("%d bytes", size)
		}
		*into = make([]byte, size)
		if _, err := io.ReadFull(r, *into); err != nil {
			return h, err
		}
	}
	return h, nil
}

type args map[string]any

// do runs one command in the node and returns its answer.
func (n *Node) do(command string, a args, payload, attachment []byte) (head, error) {
	answer := make(chan head, 1)
	n.mu.Lock()
	n.last++
	id := n.last
	n.waiting[id] = answer
	n.mu.Unlock()
	if err := n.write(id, command, a, payload, attachment); err != nil {
		return head{}, n.ended(command)
	}
	select {
	case h := <-answer:
		if h.Failed != "" {
			return h, fmt.Errorf("official node: %s: %s", command, h.Failed)
		}
		return h, nil
	case <-n.gone:
		return head{}, n.ended(command)
	case <-time.After(answerLimit):
		return head{}, fmt.Errorf("official node: %s: no answer within %v", command, answerLimit)
	}
}

func (n *Node) write(id uint64, command string, a args, payload, attachment []byte) error {
	header := map[string]any{"id": id, "do": command}
	maps.Copy(header, a)
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	for _, b := range [][]byte{payload, attachment} {
		size := uint32(len(b))
		if b == nil {
			size = none
		}
		frame = binary.LittleEndian.AppendUint32(frame, size)
	}
	frame = append(append(append(frame, text...), payload...), attachment...)
	n.writing.Lock()
	defer n.writing.Unlock()
	_, err = n.stdin.Write(frame)
	return err
}

func (n *Node) ended(command string) error {
	select {
	case <-n.gone:
		return fmt.Errorf("official node: %s: it has ended: %s", command, n.Output())
	case <-time.After(time.Second):
		return fmt.Errorf("official node: %s: it does not listen", command)
	}
}

// Kill ends the process with SIGKILL.
func (n *Node) Kill() {
	n.cmd.Process.Kill()
	<-n.gone
}

// Output returns the process's standard error, with the library's log of errors (RUST_LOG selects more). It is complete
// only when the process has ended.
func (n *Node) Output() string { return strings.TrimSpace(n.stderr.String()) }

// Stop ends the process by a command, and by a signal if the process does not end.
func (n *Node) Stop() {
	n.stdin.Close()
	select {
	case <-n.gone:
	case <-time.After(5 * time.Second):
		n.Kill()
	}
}

// PID returns the process id.
func (n *Node) PID() int { return n.cmd.Process.Pid }
