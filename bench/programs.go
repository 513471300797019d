package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// ServerLimit is the longest time until a server listens: it loads the model, replays the
	// golden set and warms up.
	ServerLimit = 30 * time.Second

	startPoll = 20 * time.Millisecond
	busLimit  = 20 * time.Second // for a simulator to serve its bus
)

// Program returns the path of one of our programs in the folder bin, or, with an empty bin, beside
// this program. It is absolute: a bare name would be looked up in $PATH.
func Program(bin, name string) string {
	if bin == "" {
		self, _ := os.Executable()
		bin = filepath.Dir(self)
	}
	path := filepath.Join(bin, name)
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// Command returns a command with a scrubbed environment.
func Command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = scrubbed(os.Environ())
	return cmd
}

// Edge returns a command of bin's edge-rt that keeps its state in the folder dir.
func Edge(bin, dir string, args ...string) *exec.Cmd {
	cmd := Command(Program(bin, "edge-rt"), args...)
	cmd.Env = append(cmd.Env, "STATE_DIRECTORY="+dir)
	return cmd
}

// Part returns the command that runs a part of this program, such as a load, as a process of its
// own.
func Part(args ...string) *exec.Cmd {
	self, _ := os.Executable()
	return Command(self, append([]string{"part"}, args...)...)
}

// scrubbed removes the variables that change the programs' behaviour, so that a measurement does
// not depend on the shell that started it.
func scrubbed(environ []string) []string {
	var kept []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		ours := strings.HasPrefix(name, "EDGE_RT_") || strings.HasPrefix(name, "LEAN_SERVER_") ||
			strings.HasPrefix(name, "BENCH_") || name == "NOTIFY_SOCKET"
		tuning := name == "GOGC" || name == "GOMAXPROCS" || name == "GOMEMLIMIT" || name == "GODEBUG"
		if (!ours || name == "LEAN_SERVER_ORT") && !tuning {
			kept = append(kept, v)
		}
	}
	return kept
}

// StartSimBus starts bin's edge-rt sim-bus and returns once its port is at link.
func StartSimBus(bin, link string, args ...string) (*Child, error) {
	sim, err := Start(Command(Program(bin, "edge-rt"), append([]string{"sim-bus", "--link", link}, args...)...))
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(busLimit); time.Now().Before(end) && sim.Running(); time.Sleep(startPoll) {
		if _, err := os.Readlink(link); err == nil {
			return sim, nil
		}
	}
	return nil, errors.Join(errors.New("edge-rt sim-bus serves no bus"), sim.Stop())
}

// Server is a lean-server that can be killed and started again at the same endpoint.
type Server struct {
	*Child   // of the last Start; nil before
	Endpoint string
	Argv     []string  // the program and its arguments
	Stderr   io.Writer // nil: kept for errors
}

// NewServer returns bin's lean-server on the manifest, at a free port.
func NewServer(bin, manifest string, flags ...string) (*Server, error) {
	endpoint, err := FreeEndpoint()
	if err != nil {
		return nil, err
	}
	argv := []string{Program(bin, "lean-server"), "--manifest", manifest, "--listen", endpoint, "--quiet"}
	if !slices.Contains(flags, "--health-port") {
		argv = append(argv, "--health-port", "0")
	}
	return &Server{Endpoint: endpoint, Argv: append(argv, flags...)}, nil
}

// WriteManifest writes a manifest for lean-server into the folder dir, for a bundle of the demo's
// policy.
func WriteManifest(dir, bundle string) (name string, err error) {
	if bundle, err = filepath.Abs(bundle); err != nil {
		return "", err
	}
	name = filepath.Join(dir, "server.yaml")
	text := fmt.Sprintf("model: {repo_or_path: %q, id: %s}\nservice: %s\ndefault_task: around the post\n", bundle,
		DemoModel, DemoService)
	return name, os.WriteFile(name, []byte(text), 0o600)
}

// The model and the service of the demo's policy.
const DemoModel, DemoService = "demo/around-the-post", "demo"

// Start starts the server, in a process group of its own, and returns once it listens.
func (s *Server) Start(ctx context.Context) (err error) {
	cmd := Command(s.Argv[0], s.Argv[1:]...)
	if s.Stderr != nil {
		cmd.Stderr = s.Stderr
	}
	if s.Child, err = StartGroup(cmd); err != nil {
		return err
	}
	for end := time.Now().Add(ServerLimit); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(startPoll) {
		if err := s.Alive(); err != nil {
			return err
		}
		if listens(s.Endpoint) {
			return nil
		}
	}
	s.Kill()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("lean-server did not listen within %v", ServerLimit)
}

// Alive returns why the server has ended, or nil while it runs.
func (s *Server) Alive() error {
	if s.Running() {
		return nil
	}
	if err := s.Wait(0); err != nil {
		return err
	}
	return errors.New("lean-server ended by itself")
}

// FreeEndpoint asks the kernel for an unused port of this machine.
func FreeEndpoint() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("a free port: %w", err)
	}
	defer l.Close()
	return "tcp/" + l.Addr().String(), nil
}

// listens reports whether a process accepts connections at the endpoint.
func listens(endpoint string) bool {
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(endpoint, "tcp/"), time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}
