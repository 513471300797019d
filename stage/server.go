package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ServerLimit is the longest time until a server listens: it loads the model, replays the golden set
// and warms up.
const ServerLimit = 30 * time.Second

// Server is a lean-server that can be killed and started again at the same endpoint.
type Server struct {
	*Child   // process of the last Start; nil before
	Endpoint string
	Argv     []string  // program and its arguments
	Stderr   io.Writer // nil: kept for errors
}

// NewServer returns bin's lean-server with the manifest, at a free port. The caller starts the server.
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

// Serve starts bin's lean-server with the manifest, at a free port, and returns once it listens.
func Serve(ctx context.Context, bin, manifest string, flags ...string) (*Server, error) {
	s, err := NewServer(bin, manifest, flags...)
	if err != nil {
		return nil, err
	}
	return s, s.Start(ctx)
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

// The names of the model and of the service in the manifests of WriteManifest.
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
		if Listens(s.Endpoint) {
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
