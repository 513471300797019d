package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: each command is one word, with its own number on record, its own keys and a help text.
func TestEveryCommandIsWhole(t *testing.T) {
	words := map[string]bool{}
	numbers := map[event.Word]bool{}
	keys := map[string]bool{}
	for _, c := range Commands {
		if c.Word == "" || c.Help == "" || strings.ContainsAny(c.Word, " \n,") || words[c.Word] || numbers[c.Number] ||
			c.Number == event.WordOther && c.Word != query {
			t.Errorf("%+v", c)
		}
		words[c.Word], numbers[c.Number] = true, true
		for _, key := range c.Keys {
			if keys[key] || OfKey(key) != c.Word {
				t.Errorf("key %s: %q, want %s alone", key, OfKey(key), c.Word)
			}
			keys[key] = true
		}
	}
	for _, word := range episode.Words {
		if !words[word] {
			t.Errorf("no command %s", word)
		}
	}
	rttest.Want(t, OfKey("x"), "", "the key x means")
}

// Goal: a panel carries out the commands of its source, refuses all other commands with the reason, and notes all
// commands except status.
func TestPanel(t *testing.T) {
	var did, noted []string
	works := false
	p := &Panel{
		Source: "a ghost drives this arm",
		State:  func() Reply { return Reply{ID: "arm"} },
		Note:   func(line string, err error) { noted = append(noted, line) },
		Actions: map[string]Action{
			Pause: {Do: Simple(func() { did = append(did, Pause) }), Works: func() bool { return works }},
			Task: {Do: func(_ context.Context, text string) (bool, error) {
				if text == "dance" {
					return false, errors.New("it cannot dance")
				}
				did = append(did, text)
				return true, nil
			}},
		},
	}
	for _, tt := range []struct {
		line, says string
		acked      bool
	}{
		{"pause", "", false}, {"task  wave ", "", true}, {"status", "", false},
		{"pause now", "takes no argument", false}, {"status now", "takes no argument", false},
		{"task dance", "it cannot dance", false}, {"reset", "a ghost drives this arm", false},
		{"fly", "unknown command", false},
	} {
		r := p.Command(t.Context(), tt.line)
		if r.OK != (tt.says == "") || !strings.Contains(r.Error, tt.says) || r.ID != "arm" || r.Acked != tt.acked {
			t.Errorf("%s: %+v, want %q", tt.line, r, tt.says)
		}
	}
	rttest.Equal(t, did, []string{Pause, "wave"}, "it did")
	if len(noted) != 6 || slices.Contains(noted, "status") {
		t.Errorf("noted %q", noted)
	}
	rttest.Equal(t, p.Working(), []string{Task, query}, "working")
	works = true
	if got := p.Working(Task); !slices.Equal(got, []string{Pause, query}) || len(p.Buttons()) != 2 {
		t.Errorf("working: %q of %v", got, p.Buttons())
	}
}

// panel is a Panel during a reset, which waits for a server.
type panel struct {
	*Panel
	server   chan bool
	commands sync.WaitGroup
}

// resetting makes a panel with these actions and a reset, and begins the reset.
func resetting(t *testing.T, actions map[string]Action) *panel {
	began := make(chan bool)
	p := &panel{server: make(chan bool)}
	actions[Reset] = Action{Do: Simple(func() { close(began); <-p.server })}
	p.Panel = &Panel{State: func() Reply { return Reply{} }, Note: func(string, error) {}, Actions: actions}
	p.start(t, Reset)
	<-began
	return p
}

// start begins a command.
func (p *panel) start(t *testing.T, word string) {
	p.commands.Go(func() { p.Command(t.Context(), word) })
}

// end ends the reset, and waits for the end of all commands.
func (p *panel) end() {
	close(p.server)
	p.commands.Wait()
}

// Goal: a release takes effect while another command waits for a server, and again at the end of that command, which
// may undo it.
func TestAReleaseWaitsForNoCommand(t *testing.T) {
	released := make(chan bool, 2)
	p := resetting(t, map[string]Action{Release: {Do: Simple(func() { released <- true })}})
	p.start(t, Release)
	<-released
	rttest.Want(t, len(released), 0, "releases before the end of the command in progress")
	p.end()
	rttest.Want(t, len(released), 1, "releases after it")
}

// Goal: commands that wait get their turns in the order in which they came.
func TestCommandsWaitInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var did []string
		p := resetting(t, map[string]Action{
			Save:   {Do: Simple(func() { did = append(did, Save) })},
			Unload: {Do: Simple(func() { did = append(did, Unload) })},
		})
		for _, word := range []string{Save, Unload} {
			p.start(t, word)
			time.Sleep(6 * time.Millisecond)
		}
		p.end()
		rttest.Equal(t, did, []string{Save, Unload}, "it did")
	})
}

// Goal: a resume that waits for its turn does not undo a pause that an operator sends later.
func TestAPauseOutlastsAResumeThatWaited(t *testing.T) {
	t.Parallel()
	var paused atomic.Bool
	p := resetting(t, map[string]Action{
		Pause:  {Do: Simple(func() { paused.Store(true) })},
		Resume: {Do: Simple(func() { paused.Store(false) })},
	})
	p.start(t, Resume)
	rttest.Eventually(t, "a resume that waits", func() bool { return p.waiting.Load() == 1 })
	p.Command(t.Context(), Pause)
	p.end()
	rttest.Want(t, paused.Load(), true, "paused after both")
	p.Command(t.Context(), Resume)
	rttest.Want(t, paused.Load(), false, "paused after another resume")
}

// Goal: commands that wait for a slow command are few, and give up. Meanwhile status and the urgent commands are
// answered, so that no page and no socket is taken up by commands that wait.
func TestFewCommandsWait(t *testing.T) {
	t.Parallel()
	p := resetting(t, map[string]Action{
		Save:  {Do: func(context.Context, string) (bool, error) { return false, exit.Errorf(exit.Absent, "no") }},
		Pause: {Do: Simple(func() {})},
	})
	for range maxWaiting {
		p.commands.Go(func() { rttest.Want(t, p.Command(t.Context(), Save).Error, errBusy.Error(), "after the wait") })
	}
	rttest.Eventually(t, "commands that wait", func() bool { return p.waiting.Load() == maxWaiting })
	for line, want := range map[string]string{query: "", Pause: "", Save: errBusy.Error()} {
		rttest.Want(t, p.Command(t.Context(), line).Error, want, "%s", line)
	}
	rttest.Want(t, p.waiting.Load(), maxWaiting, "commands that wait still")
	rttest.Eventually(t, "no command that waits", func() bool { return p.waiting.Load() == 0 })
	p.end()
	if r := p.Command(t.Context(), Save); r.Code != int(exit.Absent) {
		t.Errorf("%+v, want the code of its cause", r)
	}
}
