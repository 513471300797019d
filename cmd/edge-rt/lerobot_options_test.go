package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Every flag that docs/lerobot.md gives for an option of LeRobot exists.
func TestTheOptionsOfLeRobotBecomeFlags(t *testing.T) {
	text := rttest.ReadFile(t, "../../docs/lerobot.md")
	parser := rttest.Must(kong.New(new(cli), kong.Vars(ctlHelp())))(t)
	known := map[string]bool{"listen": true} // a flag of lean-server
	for _, node := range append(parser.Model.Leaves(false), parser.Model.Node) {
		for _, f := range node.Flags {
			known[f.Name] = true
		}
	}
	named := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if len(cells) != 2 {
			continue
		}
		for _, m := range regexp.MustCompile(`--([a-z][a-z0-9-]*)`).FindAllStringSubmatch(cells[1], -1) {
			if named++; !known[m[1]] {
				t.Errorf("--%s is no flag: %s", m[1], line)
			}
		}
	}
	if named < 40 {
		t.Errorf("%d flags are named, want 40 and more", named)
	}
}
