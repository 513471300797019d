package main

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// When edge-rt why cannot answer, it names the input that it needs, and ends with the right exit code of
// internal/exit.
func TestWhyRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stranger := rttest.WriteFile(t, dir, "x.mcap", "hello")
	for _, tt := range []refusal{
		{"--record-dir " + dir, 4, "there are no records in " + dir},
		{"--record-dir " + dir + " --id black", 4, "robot black"},
		{"--record-dir " + dir + " --at noon", 4, "there are no records"},
		{stranger, 3, "want a record that edge-rt has written (an older --record FILE wrote JSON lines"},
		{stranger + " --at noon", 2, "want a time of day such as 14:03:20"},
		{stranger + " --at 14:03 --last", 2, "want one of them"},
		{dir + "/away.mcap", 2, "no such file"},
		{dir, 3, "holds no records of edge-rt"},
		{"--bus sim", 2, "--bus"},
	} {
		tt.check(t, "why")
	}
}
