package program

import (
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

type rangedGrammar struct {
	Config  ConfigFile
	Rate    *float64      `range:"1..1000;leave it out for the policy's own"`
	Wait    time.Duration `range:"20ms.." default:"1s"`
	Gain    float64       `range:">0..<2" default:"1"`
	Share   float64       `range:">0..1" default:"1"`
	Soak    time.Duration `range:"0s,1s..24h"`
	Last    uint8         `range:"..252"`
	Sizes   []int         `range:"8..100"`
	Speed   float64       `range:">0.." default:"1"`
	Century time.Duration `range:"..876000h"`

	Run  struct{} `cmd:"" default:"1"`
	Scan struct{} `cmd:"" uses:"last"`
	Move struct {
		To int `range:"0..9"`
	} `cmd:"" uses:"last"`
}

// The error for a value outside gives the value, the range and the remedy, also for text that is
// not a number.
func TestRanges(t *testing.T) {
	for _, tt := range []struct {
		args, says string
	}{
		{"--rate 1 --wait 20ms --gain 1.99 --share 1 --soak 0s --last 252 --sizes 8,100 --speed 1e9 --century 876000h",
			""},
		{"--soak 1s --rate 1000", ""},
		{"--soak 24h --rate 1000", ""},
		{"move --to 9", ""},
		{"--rate 0", "robot: --rate is 0, want 1 to 1000; leave it out for the policy's own; see "},
		{"--rate NaN", "--rate is NaN, want 1 to 1000"},
		{"--wait 19999us", "--wait is 19.999ms, want 20ms or more"},
		{"--gain 0", "--gain is 0, want more than 0 and less than 2"},
		{"--gain 2", "--gain is 2"},
		{"--share 0", "--share is 0, want more than 0 and at most 1"},
		{"--speed Inf", "--speed is +Inf, want more than 0"},
		{"--speed 0", "--speed is 0, want more than 0"},
		{"--soak 999ms", "--soak is 999ms, want 0s, or 1s to 24h"},
		{"--soak=-1s", "--soak is -1s"},
		{"--last 253", "--last is 253, want at most 252"},
		{"--sizes 8,7", "--sizes is 7, want 8 to 100"},
		{"--century 876000h0m0.000000001s", "--century is 876000h0m0.000000001s"},
		{"scan --last 253", "--last is 253"},
		{"move --to 10", "--to is 10, want 0 to 9"},
	} {
		_, code, _, _, said := parse(new(rangedGrammar), strings.Fields(tt.args)...)
		if (code == exit.Usage) != (tt.says != "") || !strings.Contains(said, tt.says) {
			t.Errorf("%s: code %d, %q, want %q", tt.args, code, said, tt.says)
		}
	}
}

// A value in a variable or in the file is checked, too, and the error names the source. For a
// command that does not use the flag, the value is not checked.
func TestRangesOfVariablesAndTheFile(t *testing.T) {
	file := rttest.WriteFile(t, t.TempDir(), "run.yaml", "rate: 2000\n")
	for _, tt := range []struct {
		wait, args, says string
	}{
		{"1ms", "", "--wait is 1ms, want 20ms or more (in a variable or the file of --config)"},
		{"1ms", "--wait 1s", ""},
		{"1ms", "scan", ""},
		{"1s", "--config " + file, "--rate is 2000, want 1 to 1000; leave it out for the policy's own (in a variable " +
			"or the file of --config)"},
		{"1s", "scan --config " + file, ""},
	} {
		t.Setenv("PROGRAM_TEST_WAIT", tt.wait)
		_, code, _, _, said := parse(new(rangedGrammar), strings.Fields(tt.args)...)
		if (code == exit.Usage) != (tt.says != "") || !strings.Contains(said, tt.says) {
			t.Errorf("%s, wait %s: code %d, %q, want %q", tt.args, tt.wait, code, said, tt.says)
		}
	}
}
