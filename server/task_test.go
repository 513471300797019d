package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/policy/tokenizer"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

// taskLen is the longest task, in tokens, of a fake policy that reads its task. Its tokens are bytes.
const taskLen = 16

// newReader returns a bench whose policy reads its task.
func newReader(t *testing.T, cfg manifest.Config) *bench {
	t.Helper()
	var vocab []string
	for b := range 256 {
		vocab = append(vocab, fmt.Sprintf(`"<0x%02X>":%d`, b, b))
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	file := `{"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},"model":{"type":"BPE","byte_fallback":true,"merges":[],"vocab":{` + strings.Join(vocab, ",") + `}}}`
	rttest.Do(t, os.WriteFile(path, []byte(file), 0o644))
	spec := tokenizer.Spec{Kind: tokenizer.SentencePiece, MaxLen: taskLen, Template: "{task}\n"}
	rttest.Do(t, spec.Check(2))
	text := rttest.Must(tokenizer.LoadFile(path, &spec))(t)
	b := newBench(t, cfg, func(d *Deps) { d.Text, d.Meta.Tokenizer = text, &spec })
	b.model.Read(taskLen)
	return b
}

// read returns the task from which the policy computed its last chunk.
func (b *bench) read() string {
	n := 0
	for n < taskLen && b.model.TokenMask(0)[n] {
		n++
	}
	var text []byte
	for _, id := range b.model.Tokens(0)[:n] {
		text = append(text, byte(id))
	}
	return string(text)
}

// The policy reads the task of the observation. Without one, it reads the task of its session. A reset may announce the
// task of later observations.
func TestTaskOfAnObservation(t *testing.T) {
	cfg := config()
	cfg.DefaultTask = "wait"
	b := newReader(t, cfg)
	b.start()
	r, seq := b.robot("arm"), uint64(0)
	ask := func(task string) {
		seq++
		o := fakeObs(t)
		o.Task = task
		r.send(obsHeader(0, seq), o)
	}
	wants := func(task, read string) {
		t.Helper()
		ask(task)
		r.wantChunk(seq)
		rttest.Want(t, b.read(), read, "what the policy read of an observation with task %q", task)
	}
	open := fakeOpen("arm")
	b.admits(b.open(open), "an open")
	wants("", "wait\n")
	wants("pick", "pick\n")
	wants("", "wait\n") // the session's own task again
	open.Task = "fold"
	b.admits(b.open(open), "an open")
	wants("", "fold\n")
	ask("far too long to read")
	r.wantEvent(wire.EventBadObservation, "has 29 tokens, this policy reads at most 16")
	wants("pick", "pick\n")

	reset := func(task string) wire.ResetAck {
		t.Helper()
		return b.reset("arm", wire.Reset{ClientUUID: "arm", Task: task})
	}
	session := b.server.sessions.find("arm")
	if ack := reset("far too long to read"); ack.OK || !strings.Contains(ack.Error, "shorten it") ||
		session.announced.Load() != nil {
		t.Errorf("a reset with a task that is too long: %+v, want a refusal that changes nothing", ack)
	}
	if ack := reset("stack"); !ack.OK {
		t.Errorf("a reset with a task: %s", ack.Error)
	}
	changed := session.changed
	wants("stack", "stack\n")
	rttest.Want(t, session.changed, changed, "task of the newest observation")
	if ack := reset(""); !ack.OK || session.announced.Load().text != "stack" {
		t.Errorf("a reset without a task: %+v, want none announced", ack)
	}

	open.Task = "far too long to read"
	if ack := b.open(open); ack.Accepted || !strings.Contains(ack.Error, "shorten it") {
		t.Errorf("a session with a task that is too long: %+v, want a refusal", ack)
	}
}

func TestPolicyThatReadsWarnsWithoutATask(t *testing.T) {
	b := newReader(t, config())
	b.start()
	if ack := b.open(fakeOpen("arm")); !ack.Accepted || len(ack.Warnings) != 1 ||
		!strings.Contains(ack.Warnings[0], "--task") {
		t.Errorf("without a task: %+v, want a warning that names --task", ack)
	}
}

// If the manifest pins the task, opens, resets and observations with another task are refused.
func TestPinnedTaskIsTheOnlyOneRead(t *testing.T) {
	cfg := config()
	cfg.DefaultTask, cfg.PinTask = "wait", true
	b := newReader(t, cfg)
	b.start()
	b.admits(b.open(fakeOpen("arm")), "an open")
	r, o := b.robot("arm"), fakeObs(t)
	o.Task = "pick"
	r.send(obsHeader(0, 1), o)
	r.wantEvent(wire.EventBadObservation, "pinned to 'wait'")
	o.Task = "wait"
	r.send(obsHeader(0, 2), o)
	r.wantChunk(2)
	rttest.Want(t, b.read(), "wait\n", "text of the pinned task that the policy read")
}

// Goal: 0 allocations for a request whose task is known.
func TestKnownTaskAllocatesNothing(t *testing.T) {
	b := newReader(t, config())
	s, tensors := newSession("arm", nil, 0), b.server.worker.engine.tensors
	opened := rttest.Must(b.server.opener.tasks.read("wait"))(t)
	s.opened = opened
	bodies := [][]byte{}
	for _, task := range []string{"", "wait", "pick"} {
		o := fakeObs(t)
		o.Task = task
		bodies = append(bodies, wire.AppendObservation(nil, o))
	}
	seq := uint64(0)
	frame := func() {
		seq++
		rttest.Must(tensors.fill(0, s, seq, bodies[seq%uint64(len(bodies))]))(t)
	}
	for range 2 * len(bodies) {
		frame()
	}
	rttest.NoAllocs(t, "a request allocates %v times, want 0", 8*len(bodies), frame)
}

// When a robot sends no history, a policy that takes several observations gets the newest
// observation in place of each.
func TestNewestObservationIsRepeated(t *testing.T) {
	all := make([]float32, 6)
	newest := all[4:]
	newest[0], newest[1] = 3, 4
	repeatNewest(all, newest)
	rttest.Want(t, fmt.Sprint(all), "[3 4 3 4 3 4]", "repeatNewest")

	for _, tt := range []struct {
		observed, sent, warnings int
	}{{1, 0, 0}, {2, 0, 1}, {2, 1, 1}, {2, 2, 0}, {2, 16, 0}, {3, 2, 1}} {
		a := happy()
		a.observed, a.open.Steps = tt.observed, tt.sent
		if r := a.check(); r != nil || len(a.warnings) != tt.warnings {
			t.Errorf("%+v: %v, warnings %q", tt, r, a.warnings)
		}
	}
}
