// Package flagfile reads the YAML file behind a program's --config flag: a map
// from flag names to values, each of which a flag or an environment variable
// overrides.
package flagfile

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/alecthomas/kong"

	"edgert/internal/exit"
	"edgert/internal/strictyaml"
)

// maxBytes bounds the file.
const maxBytes = 1 << 20

type resolver struct{ values map[string]any }

// Load reads the file; it is a kong.ConfigurationLoader.
func Load(r io.Reader) (kong.Resolver, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, exit.Errorf(exit.Config, "config file: %w", err)
	}
	if len(b) > maxBytes {
		return nil, exit.Errorf(exit.Config, "config file is larger than %d bytes", maxBytes)
	}
	raw := map[string]any{}
	if err := strictyaml.Decode(b, &raw); err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n") // the rest is a drawing
		return nil, exit.Errorf(exit.Config, "config file: want a YAML map from flag names to values: %s", line)
	}
	values := map[string]any{}
	for key, v := range raw {
		values[strings.ReplaceAll(key, "_", "-")] = v
	}
	return &resolver{values}, nil
}

// Validate refuses keys that are no flags.
func (r *resolver) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, group := range app.Leaves(false) {
		for _, f := range group.Flags {
			known[f.Name] = true
		}
	}
	for _, f := range app.Flags {
		known[f.Name] = true
	}
	var unknown []string
	for key := range r.values {
		if !known[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		sort.Strings(unknown)
		return exit.Errorf(exit.Config, "config file: unknown key %s: keys are flag names without the dashes", strings.Join(unknown, ", "))
	}
	return nil
}

// Resolve returns the file's value for a flag that the environment does not
// set.
func (r *resolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	v, ok := r.values[flag.Name]
	if !ok {
		return nil, nil
	}
	switch v := v.(type) {
	case []any, map[string]any, nil: // kong decodes lists and maps itself
		return v, nil
	default:
		return fmt.Sprint(v), nil
	}
}
