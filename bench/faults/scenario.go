package faults

import (
	"embed"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/sim/netfault"
)

// Scenario is one script of faults under a short name.
type Scenario struct {
	Name   string
	Script *netfault.Script
	Source []byte // the script, as YAML
}

//go:embed scripts/*.yaml
var scripts embed.FS

// Comparison lists the scenarios of the published comparison, in its order.
var Comparison = []string{
	"none", "delay_3", "delay_8", "delay_16", "loss_5", "loss_20",
	"duplicate", "reorder", "spikes", "blackout", "restart", "loss_20_spikes",
	"jitter", "slow_line", "lan", "wifi", "cellular",
}

// scenarioNames lists all built-in scenarios: those of the comparison first.
func scenarioNames() []string {
	names := slices.Clone(Comparison)
	entries, _ := scripts.ReadDir("scripts") // the folder is embedded, so this cannot fail
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".yaml"); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// LoadScenario returns the built-in scenario of that name, or the scenario in the YAML file: a name
// with a dot or a slash is a file.
func LoadScenario(name string) (Scenario, error) {
	var data []byte
	var err error
	if strings.ContainsAny(name, "./") {
		if data, err = userfile.ReadYAML(name); err != nil {
			return Scenario{}, exit.With(exit.Usage, err)
		}
	} else if data, err = scripts.ReadFile("scripts/" + name + ".yaml"); err != nil {
		return Scenario{}, exit.Errorf(exit.Usage, "no scenario %q, want a YAML file or one of %s", name,
			strings.Join(scenarioNames(), ", "))
	}
	script, err := netfault.Parse(data)
	if err != nil {
		return Scenario{}, exit.Errorf(exit.Config, "%s: %w", name, err)
	}
	base := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	if script.Name == "" {
		script.Name = base
	}
	return Scenario{Name: base, Script: script, Source: data}, nil
}

// WriteList names scenarios, schedules and options, and describes them.
func WriteList(w io.Writer) error {
	list := &strings.Builder{}
	for _, name := range scenarioNames() {
		s, err := LoadScenario(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(list, "%-16s %s\n", name, s.Script.Name)
	}
	fmt.Fprintf(list, "\nschedules: %s\noptions, each after a schedule and a +, as in rtc+compat:\n",
		strings.Join(chunk.Schedules, " "))
	for _, name := range slices.Sorted(maps.Keys(options)) {
		fmt.Fprintf(list, "  %-14s %s\n", name, options[name].says)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(list, "  %-14s %s\n", name+"=N", values[name].says)
	}
	fmt.Fprintf(list, "  %s\n  %-14s %s\n", strings.Join(chunk.Estimators, ", "), "", estimatorSays)
	_, err := io.WriteString(w, list.String())
	return err
}
