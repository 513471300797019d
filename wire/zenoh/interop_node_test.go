package zenoh

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const interopRoot = "../.."

// interopPython finds an interpreter that has the official module, or skips.
func interopPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("EDGERT_PYTHON")
	if python == "" {
		python = filepath.Join(interopRoot, ".venv/bin/python")
		if _, err := os.Stat(python); err != nil {
			python = "python3"
		}
	}
	if out, err := exec.Command(python, "-c", "import zenoh; zenoh.open").CombinedOutput(); err != nil {
		t.Skipf("no official Zenoh: %s -c 'import zenoh': %v %s; pip install eclipse-zenoh==1.9.0, or name an interpreter in EDGERT_PYTHON",
			python, err, lastLine(out))
	}
	return python
}

func lastLine(b []byte) []byte {
	for i := len(b) - 2; i >= 0; i-- {
		if b[i] == '\n' {
			return b[i+1:]
		}
	}
	return b
}

// report is one line of tools/interop/zenoh_node.py.
type report struct {
	Done, Failed, Event, Name, Key string

	Size       int
	Hex        string
	Sum        int
	Attachment *string
	Priority   int
	Express    bool
	Alive      bool
	Keys       []string
	Replies    []struct{ Key, Hex, Error string }
	Matching   bool
}

// node is an official Zenoh session in a process of its own.
type node struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan report

	mu     sync.Mutex
	events []report
}

func startNode(t *testing.T, python string) *node {
	t.Helper()
	n := &node{t: t, done: make(chan report, 16)}
	n.cmd = exec.Command(python, filepath.Join(interopRoot, "tools/interop/zenoh_node.py"))
	n.cmd.Stderr = os.Stderr
	var err error
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go n.listen(stdout)
	t.Cleanup(n.stop)
	return n
}

func (n *node) listen(stdout io.Reader) {
	defer close(n.done)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		if r.Done != "" {
			n.done <- r
			continue
		}
		n.mu.Lock()
		n.events = append(n.events, r)
		n.mu.Unlock()
	}
}

// stop ends the process: politely, then by its id.
func (n *node) stop() {
	if n.cmd.ProcessState != nil {
		return
	}
	n.stdin.Close()
	timer := time.AfterFunc(5*time.Second, func() { n.cmd.Process.Kill() })
	defer timer.Stop()
	n.cmd.Wait()
}

// kill ends the process without a goodbye.
func (n *node) kill() {
	n.cmd.Process.Kill()
	n.cmd.Wait()
}

type args map[string]any

// do runs one command in the node and returns its answer.
func (n *node) do(command string, a args) report {
	n.t.Helper()
	line := map[string]any{"do": command}
	for k, v := range a {
		line[k] = v
	}
	raw, err := json.Marshal(line)
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.stdin.Write(append(raw, '\n')); err != nil {
		n.t.Fatalf("%s: %v", raw, err)
	}
	select {
	case r, ok := <-n.done:
		if !ok || r.Failed != "" || r.Done != command {
			n.t.Fatalf("%s: got %+v", raw, r)
		}
		return r
	case <-time.After(20 * time.Second):
		n.t.Fatalf("%s: no answer in 20 s", raw)
	}
	panic("unreachable")
}

// seen returns the events of a name so far.
func (n *node) seen(name string) []report {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []report
	for _, e := range n.events {
		if e.Name == name {
			all = append(all, e)
		}
	}
	return all
}

func (n *node) tokensSeen(name string) []string {
	var all []string
	for _, e := range n.seen(name) {
		sign := "-"
		if e.Alive {
			sign = "+"
		}
		all = append(all, sign+e.Key)
	}
	return all
}
