package server

import (
	"reflect"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/wiretest"
)

// golden decodes one section of the vectors that were recorded from LeRobot's draft server.
func golden[T any](t *testing.T, section string) []T {
	t.Helper()
	return rttest.Cases[T](t, wiretest.Golden(t, "draft_goldens.json"), section)
}

// deviates reports whether deviations.json lists the vector as a deliberate difference of this
// server.
func deviates(t *testing.T, section, name string) bool {
	t.Helper()
	named := wiretest.Deviations(t, section)
	_, one := named[name]
	_, all := named["*"]
	return one || all
}

func TestRoundRobinGolden(t *testing.T) {
	for _, row := range golden[struct {
		Name          string
		Ready, Picked [][]string
	}](t, "scheduler") {
		rr := new(queue.RoundRobin)
		for i, ready := range row.Ready {
			slices.Sort(ready)
			var waiting []queue.Waiting
			for _, uuid := range ready {
				waiting = append(waiting, queue.Waiting{ID: uuid})
			}
			rr.Order(waiting, 1, 0, 0, 0)
			got := []string{}
			if len(waiting) > 0 {
				got = append(got, waiting[0].ID)
			}
			if !reflect.DeepEqual(got, row.Picked[i]) {
				t.Errorf("%s: next(%v) in round %d = %v, want %v", row.Name, ready, i, got, row.Picked[i])
			}
		}
	}
}

// A session's state follows the trace of one session of the draft's server, event by event. There the episode starts at
// 0, which the draft's server sets at open; here it starts at -1.
func TestSessionGolden(t *testing.T) {
	pool := queue.NewPool(memory.New(1 << 20))
	s := newSession("robot", pool, 1<<20)
	s.episode.Store(0)
	seq := uint64(0)
	superseded, since := uint64(0), uint64(0) // superseded since the start, and since the last take_superseded
	deposit := func() {
		seq++
		s.seen(0)
		h := obsHeader(0, seq)
		if s.mailbox.Put(&h, []byte{1}, 0, queue.Schedule{Deadline: queue.NoDeadline}) == queue.Replaced {
			superseded, since = superseded+1, since+1
		}
	}
	for _, row := range golden[struct {
		Event        string
		Pending      bool
		Superseded   uint64
		SinceReply   uint64 `json:"since_reply"`
		Episode      int64
		Alive        bool
		TokenDropped bool `json:"token_dropped"`
		Seq          uint64
		Ret          uint64
	}](t, "session_trace") {
		switch row.Event {
		case "new", "close":
		case "deposit1", "deposit2", "deposit3_after_take", "deposit4_revives":
			deposit()
		case "take":
			if r := s.mailbox.Take(); r == nil || r.Header.SeqID != row.Seq {
				t.Errorf("Take() = %v, want seq %d", r, row.Seq)
			}
		case "take_superseded":
			rttest.Want(t, s.mailbox.TakeSuperseded(), row.Ret, "TakeSuperseded()")
			since = 0
		case "token_drop":
			s.tokenChanged(false, 5)
		case "reset_no_id":
			s.reset(s.episode.Load() + 1)
		case "reset_9":
			s.reset(9)
		default:
			t.Fatalf("unknown event %q", row.Event)
		}
		_, _, pending := s.mailbox.Waiting()
		if pending != row.Pending || superseded != row.Superseded || since != row.SinceReply ||
			s.episode.Load() != row.Episode || s.alive() != row.Alive || s.alive() == row.TokenDropped {
			t.Errorf("after %s: pending %v superseded %d since %d episode %d alive %v, want %+v",
				row.Event, pending, superseded, since, s.episode.Load(), s.alive(), row)
		}
	}
}

// The features in a status are those that LeRobot gives a policy of the same robot.
func TestFeaturesGolden(t *testing.T) {
	type feature struct {
		Type  string
		Shape []int
		DType string
		Names []string
	}
	var golden struct {
		Inputs  map[string]feature `json:"input_features"`
		Outputs map[string]feature `json:"output_features"`
	}
	rttest.ReadJSON(t, "../testdata/golden/features.json", &golden)
	var m policy.Meta
	rttest.ReadJSON(t, "../testdata/demo/bundle/bundle.json", &m)
	var s, got wire.Status
	s.Inputs, s.Outputs = features(&m, true)
	rttest.Do(t, wire.Parse(&got, wire.Append(nil, &s)))
	if last := got.Inputs[len(got.Inputs)-1]; last.Name != "task" || last.Type != "LANGUAGE" {
		t.Errorf("the last input is %+v, want the task", last)
	}
	got.Inputs = got.Inputs[:len(got.Inputs)-1]
	for _, tt := range []struct {
		got  []wire.Feature
		want map[string]feature
	}{{got.Inputs, golden.Inputs}, {got.Outputs, golden.Outputs}} {
		rttest.Want(t, len(tt.got), len(tt.want), "number of %+v, want %+v", tt.got, tt.want)
		for _, f := range tt.got {
			want := tt.want[f.Name]
			if f.Type == "VISUAL" { // LeRobot's vectors have no dtype and no names for pictures
				want.DType, want.Names = "uint8", []string{"channels", "height", "width"}
			}
			if f.Type != want.Type || !slices.Equal(f.Shape, want.Shape) || f.DType != want.DType ||
				!slices.Equal(f.Names, want.Names) {
				t.Errorf("%+v, want %+v", f, want)
			}
		}
	}
}
