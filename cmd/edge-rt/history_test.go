package main

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/pattern"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
)

// lookServer is a holdServer whose policy takes several observations at a time and moves the wrist.
type lookServer struct {
	*holdServer
	mu   sync.Mutex
	sent []wire.Observation // Guarded by mu.
}

func newLookServer(t *testing.T, steps int) *lookServer {
	t.Helper()
	s := &lookServer{holdServer: newHoldServer(t)}
	s.SetAnswer(s.play)
	s.SetAck(func(a *wire.SessionAck) { a.Steps, a.TrainedFPS = steps, 30 })
	return s
}

func (s *lookServer) play(sample wire.Sample) {
	sample.Payload = bytes.Clone(sample.Payload)
	h, o, ok := stage.ParseRequest(sample)
	if !ok {
		return
	}
	s.mu.Lock()
	s.sent = append(s.sent, o)
	s.mu.Unlock()
	m := s.Chunk(o.State, func(row []float32, i int) { row[len(row)-2] += 0.4 * float32(i+1) })
	go s.Reply(h, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m})
}

// With each observation the real program sends the states and pictures of earlier action steps. The states equal the
// states in the run's record, and the pictures are in the camera's order.
func TestHistoryOfARun(t *testing.T) {
	rttest.RealTime(t) // a late reply restarts the history
	t.Parallel()
	const steps = 4
	s, dir := newLookServer(t, steps), t.TempDir()
	r := edgeCommand(t, []string{"--bus", "sim", "--connect", s.Endpoint, "--id", "arm", "--camera",
		"top=pattern:128x64@30", "--jpeg-quality", "0", "--rt", "off", "--duration", "4s", "--record", "all",
		"--record-dir", dir})
	if code, sum := r.play(); code != 0 || sum.History.Steps != steps || sum.History.NoRoom != 0 {
		t.Fatalf("code %d, %+v, want %d steps\n%s", code, sum.History, steps, r.Log)
	}
	ran := map[int64][]float32{} // the state at each action step
	for _, a := range recordedActions(t, dir) {
		ran[a.Step] = slices.Clone(a.State.Values())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	whole, moved := 0, 0
	for i := range s.sent {
		o := &s.sent[i]
		past := o.Past("observation.images.top")
		if o.PastStates.Rows != steps-1 || len(past) != steps-1 {
			t.Fatalf("observation %d: %d states and %d earlier pictures, want %d", i, o.PastStates.Rows, len(past),
				steps-1)
		}
		numbers, dof := []uint32{pattern.Number(o.Images[0].Data, 128, 64)}, len(o.State)
		for j := len(past) - 1; j >= 0; j-- {
			number := numbers[0]
			if len(past[j].Data) > 0 {
				number = pattern.Number(past[j].Data, 128, 64)
			}
			numbers = slices.Insert(numbers, 0, number)
		}
		first := o.PastStates.Data[:dof]
		if i == 0 && (!slices.Equal(first, o.State) || numbers[0] != numbers[steps-1]) {
			t.Errorf("the first observation holds %v before %v, pictures %d: want itself", first, o.State, numbers)
		}
		if before, ok := ran[o.N-steps+1]; !ok || !slices.Equal(first, before) {
			continue // the history is short at the start, and after a joint did not answer
		}
		whole++
		for j := range steps - 1 {
			if got, want := o.PastStates.Data[j*dof:][:dof], ran[o.N-int64(steps-1-j)]; !slices.Equal(got, want) {
				t.Errorf("after step %d: %v is %d before, want %v", o.N, got, steps-1-j, want)
			}
		}
		if !slices.IsSorted(numbers) {
			t.Errorf("after step %d: pictures %d, want them in the camera's order", o.N, numbers)
		}
		if numbers[0] != numbers[steps-1] {
			moved++
		}
	}
	if whole < 2 || moved < 2 {
		t.Errorf("%d of %d observations hold %d steps that ran, %d with pictures that differ; want some", whole,
			len(s.sent), steps, moved)
	}
}

// A run whose raw pictures are too large for a message ends at its start with code 3. Without this check the
// run would send observations that never arrive.
func TestRawPicturesThatNoMessageHolds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		steps  int
		camera string
	}{{1, "big=pattern:3840x2160"}, {4, "big=pattern:1920x1080"}} {
		s := newLookServer(t, tt.steps)
		r := edgeCommand(t, []string{"--bus", "sim", "--connect", s.Endpoint, "--id", "arm", "--camera", tt.camera,
			"--jpeg-quality", "0", "--duration", "1s", "--rt", "off"})
		r.Start().EndsWith(3)
		r.CheckSays("24883200 bytes, want at most 16711680|--jpeg-quality 1 to 100")
	}
}
