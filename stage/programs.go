package stage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/internal/exit"
)

const (
	startPoll = 20 * time.Millisecond
	busLimit  = 20 * time.Second // longest wait until a simulator serves its bus
)

// Program returns the path of one of our programs in the folder bin, or, with an empty bin, beside this
// program. The path is absolute, since the system would search $PATH for a name without a folder.
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

// scrubbed returns environ without the variables that change the programs' behaviour, so that a
// measurement does not depend on the shell that started it.
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

// StartSimBus starts bin's edge-rt sim-bus, and returns once the symbolic link points to its port.
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

// FreeEndpoint returns an endpoint on this machine at which no program listens. Its port lies below
// the ephemeral ports (ip_local_port_range), so that no outgoing connection takes it before a
// program listens there.
func FreeEndpoint() (string, error) {
	const lowest, highest = 20000, 32000
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest)))
		if err == nil {
			l.Close()
			return "tcp/" + l.Addr().String(), nil
		}
	}
	return "", errors.New("no free port below those of outgoing connections")
}

// Listens reports whether a process accepts connections at the endpoint.
func Listens(endpoint string) bool {
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(endpoint, "tcp/"), time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// Tool is the main function of a tool: it reads the command line into O, a struct with kong's tags, and runs it. An
// error ends the process with its exit code.
func Tool[O any](run func(O) error) {
	var o O
	parser := kong.Must(&o)
	_, err := parser.Parse(os.Args[1:])
	if err = exit.With(exit.Usage, err); err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", parser.Model.Name, err)
		os.Exit(int(exit.Of(err)))
	}
}

// LongTool does the same as Tool, and gives run a context that ends at SIGINT, SIGTERM or SIGHUP. Under nohup it
// ignores SIGHUP.
func LongTool[O any](run func(context.Context, O) error) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	if signal.Ignored(syscall.SIGHUP) {
		ends = ends[:2]
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	Tool(func(o O) error { return run(ctx, o) })
}
