package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

// line is a record as any JSON parser sees it.
type line struct {
	TNs, Step, Epoch, Episode, Seq int64
	SourceNs                       int64 `json:"source_ns"`
	T                              int64 `json:"t_ns"`
	Index                          int64 `json:"chunk_index"`
	Delay, Dropped                 int64
	Session, Model, Revision       string
	SHA256                         string `json:"model_sha256"`
	Action, Goal, State            []*float32
}

func fill(a *Action, s *Session) {
	*a = Action{
		At: 5_000_000_001, Source: 4_900_000_000, Step: 41, Seq: math.MaxUint64 >> 1, Epoch: 3, Episode: 2, Index: 7, Delay: 4, Dropped: 5,
		Session: s, Joints: 2,
	}
	a.Action[0], a.Action[1] = -1.25, float32(math.NaN())
	a.Goal[0], a.State[1] = 1e-7, 1e9
}

func TestLogWritesWhatRan(t *testing.T) {
	var out bytes.Buffer
	l, err := NewLog(&out, Header{ID: `arm "1"`, Robot: "so101", Schedule: "drtc", FPS: 59.94, Names: []string{"a.pos", "b\\.pos"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &Session{ID: "abc", Epoch: 3, Model: "demo/x", Revision: "ma\"in\n", SHA256: "ff00"}
	for range 3 {
		fill(l.Reserve(), s)
		l.Commit()
	}
	fill(l.Reserve(), nil)
	l.Commit()
	if err := l.Drain(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 5 || l.Written() != 4 || l.Lost() != 0 {
		t.Fatalf("%d lines, %d written, %d lost, want a header and 4 actions", len(lines), l.Written(), l.Lost())
	}
	var head struct {
		Record   int
		ID       string
		FPS      float64
		Names    []string
		Schedule string
	}
	if err := json.Unmarshal([]byte(lines[0]), &head); err != nil || head.ID != `arm "1"` || head.FPS != 59.94 || head.Names[1] != `b\.pos` || head.Record != 1 {
		t.Errorf("header %s (%v)", lines[0], err)
	}
	var got line
	if err := json.Unmarshal([]byte(lines[1]), &got); err != nil {
		t.Fatalf("%s: %v", lines[1], err)
	}
	if got.T != 5_000_000_001 || got.SourceNs != 4_900_000_000 || got.Step != 41 || got.Seq != math.MaxUint64>>1 || got.Epoch != 3 || got.Episode != 2 ||
		got.Index != 7 || got.Delay != 4 || got.Dropped != 5 || got.Session != "abc" || got.Model != "demo/x" || got.Revision != "ma\"in\n" || got.SHA256 != "ff00" {
		t.Errorf("action %+v", got)
	}
	if *got.Action[0] != -1.25 || got.Action[1] != nil || *got.Goal[0] != 1e-7 || *got.State[1] != 1e9 || len(got.Goal) != 2 {
		t.Errorf("rows %s", lines[1])
	}
	var anonymous line
	if err := json.Unmarshal([]byte(lines[4]), &anonymous); err != nil || anonymous.Session != "" || anonymous.Step != 41 {
		t.Errorf("without a session: %s (%v)", lines[4], err)
	}
}

func TestLogNeverWaits(t *testing.T) {
	var out bytes.Buffer
	l, err := NewLog(&out, Header{Names: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	for range slots + 10 {
		if a := l.Reserve(); a != nil {
			l.Commit()
		}
	}
	if l.Lost() != 10 {
		t.Errorf("%d lost, want 10", l.Lost())
	}
	if err := l.Drain(); err != nil || l.Written() != slots {
		t.Errorf("%d written (%v), want %d", l.Written(), err, slots)
	}
}

type broken struct{ after int }

func (b *broken) Write(p []byte) (int, error) {
	if b.after--; b.after < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestLogFails(t *testing.T) {
	if _, err := NewLog(&broken{}, Header{}); err == nil {
		t.Error("a header that cannot be written: no error")
	}
	if _, err := NewLog(&bytes.Buffer{}, Header{Names: make([]string, maxJoints+1)}); err == nil {
		t.Error("too many joints: no error")
	}
	l, err := NewLog(&broken{1}, Header{})
	if err != nil {
		t.Fatal(err)
	}
	l.Reserve()
	l.Commit()
	if err := l.Drain(); err == nil {
		t.Error("a line that cannot be written: no error")
	}
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

func TestLogNoAlloc(t *testing.T) {
	l, err := NewLog(nowhere{}, Header{Names: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &Session{ID: "abc", SHA256: strings.Repeat("f", 64)}
	if n := testing.AllocsPerRun(200, func() {
		for range 10 {
			fill(l.Reserve(), s)
			l.Commit()
		}
		if l.Drain() != nil {
			t.Error("drain failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations per drain, want 0", n)
	}
}

// A file that fails fails for good: what comes is counted as lost, and the error
// comes once.
func TestLogCountsWhatTheFileDidNotTake(t *testing.T) {
	l, err := NewLog(&broken{2}, Header{})
	if err != nil {
		t.Fatal(err)
	}
	for i, fails := range []bool{false, true, false} {
		for range 3 {
			l.Reserve()
			l.Commit()
		}
		if err := l.Drain(); (err != nil) != fails {
			t.Errorf("drain %d: %v", i, err)
		}
	}
	if l.Written() != 3 || l.Lost() != 6 {
		t.Errorf("%d written and %d lost, want 3 and 6", l.Written(), l.Lost())
	}
}

// A rate that is known late makes the same header, as one line; what comes first is
// written at once, so that a full disk is noticed then.
func TestHeaderWhoseRateComesLate(t *testing.T) {
	var at, late bytes.Buffer
	h := Header{ID: "arm", Robot: "so101", Schedule: "drtc", FPS: 30, Names: []string{"a.pos"}}
	if _, err := NewLog(&at, h); err != nil {
		t.Fatal(err)
	}
	h.FPS = 0
	l, err := NewLog(&late, h)
	if err != nil || late.Len() == 0 {
		t.Fatalf("without a rate %v, %d bytes, want the beginning", err, late.Len())
	}
	for range 2 { // the second is for a log that has begun
		if err := l.Begin(30); err != nil {
			t.Fatal(err)
		}
	}
	if late.String() != at.String() {
		t.Errorf("the header is %q, want %q", late.String(), at.String())
	}
	if l, err = NewLog(&broken{1}, h); err != nil || l.Begin(30) == nil {
		t.Errorf("NewLog = %v and then no error, want one for the second write", err)
	}
}
