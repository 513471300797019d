package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// routerLimit is the longest time until the router listens.
const routerLimit = 40 * time.Second

// Router is the official Zenoh router, which can be killed and started again at the same endpoint.
type Router struct {
	*Child   // process of the last Start; nil before
	Endpoint string
	argv     []string
	packages string
}

// NewRouter returns the router of folder, which is examples/router, at a free port. python is an
// interpreter with the official wheel; packages is a folder with another version of that wheel, or
// empty. The router's configuration is in dir.
func NewRouter(python, packages, folder, dir string) (*Router, error) {
	if python == "" {
		return nil, exit.Errorf(exit.Usage, "the official router: got no Python; set EDGERT_PYTHON to an interpreter "+
			"with the wheel eclipse-zenoh (tools/setup.sh interop installs it into .venv)")
	}
	endpoint, err := FreeEndpoint()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "single.json5"))
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "router.json5")
	text = []byte(strings.Replace(string(text), "tcp/0.0.0.0:7447", endpoint, 1))
	return &Router{
		Endpoint: endpoint,
		argv:     []string{python, filepath.Join(folder, "router.py"), config},
		packages: packages,
	}, os.WriteFile(config, text, 0o600)
}

// Start starts the router and returns once it listens.
func (r *Router) Start() (err error) {
	cmd := Command(r.argv[0], r.argv[1:]...)
	if r.packages != "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+r.packages)
	}
	if r.Child, err = StartLogged(cmd); err != nil {
		return err
	}
	if _, err := r.Await("router listens", routerLimit); err != nil {
		return fmt.Errorf("the official router: %w", err)
	}
	return nil
}
