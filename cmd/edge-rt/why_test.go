package main

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// When edge-rt why cannot answer, it names the input that it needs, and ends with the right exit code of
// internal/exit.
func TestWhyRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rttest.WriteFile(t, dir, "x.mcap", "hello")
	refuses(t, strings.ReplaceAll(`
		--record-dir DIR => 4 there are no records in DIR
		--record-dir DIR --id black => 4 robot black
		--record-dir DIR --at noon => 4 there are no records
		DIR/x.mcap => 3 want a record that edge-rt has written (an older --record FILE wrote JSON lines
		DIR/x.mcap --at noon => 2 want a time of day such as 14:03:20
		DIR/x.mcap --at 14:03 --last => 2 want one of them
		DIR/away.mcap => 2 no such file
		DIR => 3 holds no records of edge-rt
		--bus sim => 2 --bus
	`, "DIR", dir), "why")
}
