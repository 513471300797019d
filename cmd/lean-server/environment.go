package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/systemd/notify"
)

// environmentFile is the name of a file beside an installed manifest; the unit reads it by EnvironmentFile=. A person's
// `lean-server check` must have the same variables; otherwise the command would check other settings than the
// service's.
const environmentFile = "environment"

// maxEnvironment is the largest size of this file in bytes, far more than a few variables need.
const maxEnvironment = 64 << 10

// loadEnvironment sets those variables of the file beside the manifest that the environment does not have. It runs
// before the command line is parsed, because LEAN_SERVER_ variables are flags. In the service itself systemd has set
// the variables already.
func loadEnvironment(args []string, stderr io.Writer) error {
	manifest := manifestOf(args)
	if manifest == "" || notify.Managed() {
		return nil
	}
	path := filepath.Join(filepath.Dir(manifest), environmentFile)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil // a folder or a pipe of that name is not a file for this program
	}
	data, err := userfile.Read(path, maxEnvironment)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	// Only root may read the file: the service has variables that this user cannot read.
	case errors.Is(err, os.ErrPermission):
		fmt.Fprintf(stderr, "lean-server: %s has the service's variables, and this user may not read it: this "+
			"command runs without them\n", path)
		return nil
	case err != nil:
		return exit.Errorf(exit.Config, "%s: %w", path, err)
	}
	for n, line := range strings.Split(string(data), "\n") {
		name, value, err := variable(line)
		if err != nil {
			return exit.Errorf(exit.Config, "%s:%d: %w", path, n+1, err)
		}
		if _, set := os.LookupEnv(name); name == "" || set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return exit.Errorf(exit.Config, "%s:%d: %w", path, n+1, err)
		}
	}
	return nil
}

// manifestOf returns the path of the manifest from the command line, else from the environment variable. The path is
// empty if neither has one.
func manifestOf(args []string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--manifest="); ok {
			return value
		}
		if arg == "--manifest" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return os.Getenv("LEAN_SERVER_MANIFEST")
}

// errNotAssigned does not show its line, which may have a secret, such as HF_TOKEN.
var errNotAssigned = errors.New("want NAME=VALUE, without export")

// variable parses one line like systemd's EnvironmentFile=, except values over several lines:
// NAME=VALUE, the value perhaps in quotes; comments and empty lines have no name.
func variable(line string) (name, value string, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' || line[0] == ';' {
		return "", "", nil
	}
	name, value, assigns := strings.Cut(line, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !assigns || name == "" || strings.ContainsAny(name, " \t\"'") {
		return "", "", errNotAssigned
	}
	for _, quote := range []string{`"`, `'`} {
		if len(value) < 2 || !strings.HasPrefix(value, quote) {
			continue
		}
		if !strings.HasSuffix(value, quote) {
			return "", "", fmt.Errorf("%s: the quote %s does not end", name, quote)
		}
		return name, value[1 : len(value)-1], nil
	}
	return name, value, nil
}
