package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"edgert/internal/exit"
)

// ServerLimit is how long a server may take to listen: it loads the model,
// replays the golden set and warms up.
const ServerLimit = 30 * time.Second

// Server is a lean-server on a free port of this machine.
type Server struct {
	*Child
	Endpoint string // as edge-rt's --connect takes it
	summary  string // file
}

// StartServer starts bin's lean-server on the manifest and returns when it
// listens. Its summary goes to the folder dir.
func StartServer(bin, manifest, dir string) (s *Server, err error) {
	if _, err := os.Stat(filepath.Join(bin, "edge-rt")); err != nil {
		return nil, exit.Errorf(exit.Usage, "%w; run `make build`, or name the folder of the programs with --bin", err)
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s = &Server{Endpoint: "tcp/" + address, summary: filepath.Join(dir, "server.json")}
	cmd := exec.Command(filepath.Join(bin, "lean-server"), "--manifest", manifest, "--listen", s.Endpoint,
		"--health-port", "0", "--quiet", "--json", s.summary)
	cmd.Env = Scrubbed(cmd.Environ())
	if s.Child, err = Start(cmd); err != nil {
		return nil, err
	}
	if err := s.await(address); err != nil {
		s.Child.Stop() // err says why, also when it ended by itself
		return nil, err
	}
	return s, nil
}

// freeAddress asks the kernel for a port that nobody uses.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// await returns when the server listens.
func (s *Server) await(address string) error {
	for end := time.Now().Add(ServerLimit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := s.Alive(); err != nil {
			return err
		}
		if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("lean-server did not listen within %v", ServerLimit)
}

// Alive returns why the server is no longer there, nil while it is.
func (s *Server) Alive() error {
	if s.Running() {
		return nil
	}
	if err := s.Wait(0); err != nil {
		return err
	}
	return errors.New("lean-server ended by itself")
}

// Stop ends the server and returns its summary.
func (s *Server) Stop() (json.RawMessage, error) {
	if err := s.Child.Stop(); err != nil {
		return nil, err
	}
	return os.ReadFile(s.summary)
}
