package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
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

// Goal: a release takes effect while another command waits for a server, and again at the end of that command, which
// may undo it.
func TestAReleaseWaitsForNoCommand(t *testing.T) {
	began, server := make(chan bool), make(chan bool)
	released := make(chan bool, 2)
	p := &Panel{
		State: func() Reply { return Reply{} },
		Note:  func(string, error) {},
		Actions: map[string]Action{
			record.Success: {Do: Simple(func() { close(began); <-server })},
			Release:        {Do: Simple(func() { released <- true })},
		},
	}
	var commands sync.WaitGroup
	commands.Go(func() { p.Command(t.Context(), record.Success) })
	<-began
	commands.Go(func() { p.Command(t.Context(), Release) })
	<-released
	rttest.Want(t, len(released), 0, "releases before the end of the command in progress")
	close(server)
	commands.Wait()
	rttest.Want(t, len(released), 1, "releases after it")
}

// Goal: a resume that waits for its turn does not undo a pause that an operator sends later.
func TestAPauseOutlastsAResumeThatWaited(t *testing.T) {
	t.Parallel()
	began, server := make(chan bool), make(chan bool)
	var paused atomic.Bool
	p := &Panel{
		State: func() Reply { return Reply{} },
		Note:  func(string, error) {},
		Actions: map[string]Action{
			Reset:  {Do: Simple(func() { close(began); <-server })},
			Pause:  {Do: Simple(func() { paused.Store(true) })},
			Resume: {Do: Simple(func() { paused.Store(false) })},
		},
	}
	var commands sync.WaitGroup
	commands.Go(func() { p.Command(t.Context(), Reset) })
	<-began
	commands.Go(func() { p.Command(t.Context(), Resume) })
	rttest.Eventually(t, "a resume that waits", func() bool { return p.waiting.Load() == 1 })
	p.Command(t.Context(), Pause)
	close(server)
	commands.Wait()
	rttest.Want(t, paused.Load(), true, "paused after both")
	p.Command(t.Context(), Resume)
	rttest.Want(t, paused.Load(), false, "paused after another resume")
}

// Goal: commands that wait for a slow command are few, and give up. Meanwhile status and the urgent commands are
// answered, so that no page and no socket is taken up by commands that wait.
func TestFewCommandsWait(t *testing.T) {
	t.Parallel()
	began, server := make(chan bool), make(chan bool)
	p := &Panel{
		State: func() Reply { return Reply{} },
		Note:  func(string, error) {},
		Actions: map[string]Action{
			Reset: {Do: Simple(func() { close(began); <-server })},
			Save:  {Do: func(context.Context, string) (bool, error) { return false, exit.Errorf(exit.Absent, "no") }},
			Pause: {Do: Simple(func() {})},
		},
	}
	var commands sync.WaitGroup
	commands.Go(func() { p.Command(t.Context(), Reset) })
	<-began
	for range maxWaiting {
		commands.Go(func() { rttest.Want(t, p.Command(t.Context(), Save).Error, errBusy.Error(), "after the wait") })
	}
	rttest.Eventually(t, "commands that wait", func() bool { return p.waiting.Load() == maxWaiting })
	for line, want := range map[string]string{query: "", Pause: "", Save: errBusy.Error()} {
		rttest.Want(t, p.Command(t.Context(), line).Error, want, "%s", line)
	}
	rttest.Want(t, p.waiting.Load(), maxWaiting, "commands that wait still")
	rttest.Eventually(t, "no command that waits", func() bool { return p.waiting.Load() == 0 })
	close(server)
	commands.Wait()
	if r := p.Command(t.Context(), Save); r.Code != int(exit.Absent) {
		t.Errorf("%+v, want the code of its cause", r)
	}
}
