package edge

import (
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: the page offers exactly the commands that have a label or an argument, and asks before those that end the run.
func TestThePageOffersTheCommands(t *testing.T) {
	e := &Edge{control: newRig(t).control}
	buttons := e.panel().Buttons()
	for _, c := range operator.Commands {
		i := slices.IndexFunc(buttons, func(b operator.Command) bool { return b.Word == c.Word })
		if (i >= 0) != (c.Label != "" || c.Text != "") {
			t.Errorf("%s is button %d", c.Word, i)
		}
		if (c.Word == operator.Stop || c.Word == operator.Release) && buttons[i].Ask == "" {
			t.Errorf("%s is not asked before", c.Word)
		}
	}
}

// Goal: the page gets the words of the commands that have an effect now: either pause or resume,
// and the words of episodes if everything is recorded.
func TestTheWordsThatWorkNow(t *testing.T) {
	e := &Edge{clock: rttest.NewClock(0), control: &control{controlConfig: controlConfig{stats: new(tickStats)}},
		cfg: Config{Record: record.Ring}}
	e.commands = e.panel()
	e.resume = "look at the arm"
	has := func(words ...string) {
		t.Helper()
		got := e.working(false)
		for _, word := range words {
			bare, absent := strings.CutPrefix(word, "-")
			if slices.Contains(got, bare) == absent {
				t.Errorf("%v: %s is wrong", got, word)
			}
		}
	}
	has("pause", "-resume", "-correct", "-start", "-success", "save", "stop", "release", "reset", "status")
	e.control.operator.pause.Store(true)
	has("-pause", "resume", "stop", "release")
	e.control.operator.pause.Store(false)
	e.control.stats.needResume.Store(true)
	has("pause", "resume")
	e.control.stats.needResume.Store(false)
	e.cfg.Record = record.Off
	has("-save", "-resume", "-unload")
	if got := e.working(true); !slices.Contains(got, "unload") {
		t.Errorf("%v of an overloaded joint: no unload", got)
	}
}
