package server

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

const looked = 3 // number of observations that the fake policy takes together

func lookbackMeta() *policy.Meta {
	m := servertest.Meta()
	m.ObservationSteps, m.Cameras[0].ExactSize = looked, true
	return m
}

// lookbackObs returns an observation that also holds the two steps before it. The pixels of its raw pictures have the
// value 1 in the oldest step and 5 in the other two.
func lookbackObs() *wire.Observation {
	raw := func(value byte) wire.Image {
		data := bytes.Repeat([]byte{value}, 3*servertest.PictureW*servertest.PictureH)
		return wire.Image{
			Name:  top,
			Codec: wire.Raw,
			H:     servertest.PictureH,
			W:     servertest.PictureW,
			C:     3,
			Data:  data,
		}
	}
	return &wire.Observation{
		State: []float32{10, 20}, Images: []wire.Image{raw(5)},
		PastStates: wire.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 2, 4, 8}},
		PastImages: []wire.Image{raw(1), {Name: top}},
	}
}

// lookbackAnswer is the first joint in the first row of the chunk of lookbackObs. The fake policy adds the state and
// the picture of each step, weighted by the step's place, oldest first.
const lookbackAnswer = 1*(1+1) + 2*(4+5) + 3*(10+5) + 0.01

func serveLookback(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()
	b := newBench(t, config(), func(d *Deps) {
		d.Meta = lookbackMeta()
		d.Model.(*servertest.Model).Look(looked)
	})
	b.start(change...)
	return b
}

func TestStatusAndAckSayHowFarThePolicyLooksBack(t *testing.T) {
	for steps, b := range map[int]*bench{0: serve(t, config()), looked: serveLookback(t)} {
		o := fakeOpen("arm")
		o.Steps = wire.MaxSteps
		ack := b.open(o)
		key := append(msgp.AppendString(nil, "observation_steps"), byte(steps))
		if !ack.Accepted || ack.Steps != steps || bytes.Contains(b.status(), key) != (steps > 0) ||
			len(ack.Warnings) != 0 {
			t.Errorf("ack %d, status %q with warnings %q, want %d and none", ack.Steps, b.status(), ack.Warnings, steps)
		}
	}
}

// A request with a history that the policy cannot take gets an event that gives the reason. The
// next request gets its chunk.
func TestABadHistoryCostsItsOwnRequest(t *testing.T) {
	if d, err := jpeg.NewDecoder(); errors.Is(err, jpeg.ErrNoLibrary) {
		t.Skip(err)
	} else {
		d.Close()
	}
	file := picture(t, servertest.PictureW, servertest.PictureH)
	b := serveLookback(t)
	b.open(fakeOpen("arm"))
	r, seq := b.robot("arm"), uint64(0)
	ask := func(o *wire.Observation) {
		seq++
		r.send(obsHeader(1, seq), o)
	}
	for _, tt := range []struct {
		name   string
		change func(o *wire.Observation)
		says   string
	}{
		{"one step", func(o *wire.Observation) {
			o.PastStates, o.PastImages = wire.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 2}}, o.PastImages[:1]
		}, "rows of past_states: got 1, want 2"},
		{"three steps", func(o *wire.Observation) {
			o.PastStates = wire.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 6)}
		}, "rows of past_states: got 3, want 2"},
		{"another number of joints", func(o *wire.Observation) {
			o.PastStates = wire.Matrix{Rows: 2, Cols: 3, Data: make([]float32, 6)}
		}, "columns of past_states: got 3, want 2"},
		{"a picture too few", func(o *wire.Observation) {
			o.PastImages = o.PastImages[:1]
		}, "past_images of observation.images.top: got 1, want 2"},
		{"states alone", func(o *wire.Observation) {
			o.PastImages = nil
		}, "past_images of observation.images.top: got 0, want 2"},
		{"half a JPEG two steps before", func(o *wire.Observation) {
			o.PastImages[0] = wire.Image{Name: top, Data: file[:len(file)/2]}
		}, "image observation.images.top at 2 before the newest step: "},
		{"no JPEG one step before", func(o *wire.Observation) {
			o.PastImages[1] = wire.Image{Name: top, Data: []byte("no picture")}
		}, "image observation.images.top at 1 before the newest step: "},
		{"a JPEG of another size", func(o *wire.Observation) {
			o.PastImages[1] = wire.Image{Name: top, Data: picture(t, 32, 16)}
		}, "at 1 before the newest step: "},
		{"a raw picture of another size", func(o *wire.Observation) {
			o.PastImages[1] = wire.Image{
				Name:  top,
				Codec: wire.Raw,
				H:     1,
				W:     1,
				C:     3,
				Data:  []byte{1, 2, 3},
			}
		}, "image observation.images.top at 1 before the newest step: got 1x1, want 16x24"},
		{"a newest picture that is none", func(o *wire.Observation) {
			o.Images[0] = wire.Image{Name: top, Data: []byte("no picture")}
		}, "image observation.images.top: "},
	} {
		o := lookbackObs()
		tt.change(o)
		b.clock.Advance(2 * eventInterval)
		ask(o)
		r.wantEvent(wire.EventBadObservation, tt.says)
		ask(lookbackObs())
		if got := r.wantChunk(seq); !near(got.chunk.ChunkRobot.Data, []float32{lookbackAnswer}, 1e-4) {
			t.Fatalf("after %s: %v, want a chunk that begins with %v", tt.name, got.chunk.ChunkRobot.Data,
				lookbackAnswer)
		}
	}
}

// A captured history is answered again, from the capture alone.
func TestReplayOfAHistory(t *testing.T) {
	dir := t.TempDir()
	b := serveLookback(t, func(b *bench) { b.audited(dir) })
	b.open(process("arm", "one", "left-pi", 1))
	r := b.robot("arm")
	for seq := range uint64(3) {
		o := lookbackObs()
		o.PastStates.Data[0] = float32(seq)
		if seq == 2 {
			o.PastStates, o.PastImages = wire.Matrix{}, nil
		}
		r.send(obsHeader(1, seq+1), o)
		r.next()
	}
	b.end()
	found := captured(t, dir)
	again := func() Replayed {
		model := servertest.NewModel()
		model.Look(looked)
		with := &replaying{origin: audit.Origin{ModelSHA256: "5ha"}, meta: lookbackMeta()}
		return rttest.Must(with.replay(&loaded{Deps: Deps{Model: model}}, found))(t)
	}
	if r := again(); !r.OK() || r.Requests != 3 {
		t.Errorf("replay = %+v, want 3 of 3 exact", r)
	}
	var o wire.Observation
	rttest.Do(t, wire.ParseObservation(&o, found[1].Observation))
	o.PastStates.Data[0] += 2
	found[1].Observation = wire.AppendObservation(nil, &o)
	if r := again(); r.Exact != 2 || len(r.Differences) != 1 || r.Differences[0].Seq != 2 ||
		!strings.Contains(r.Differences[0].Why, "2 of chunk_robot") {
		t.Errorf("with another step before the newest: %+v, want one difference of 2", r)
	}
}

// The room for an observation includes its history.
func TestObservationMaxCountsTheSteps(t *testing.T) {
	size := 3 * servertest.PictureW * servertest.PictureH
	for _, tt := range []struct {
		steps, scale, want int
	}{{0, 0, 4 * size}, {1, 0, 4 * size}, {3, 0, 12 * size}, {2, 4, 32 * size}} {
		m := servertest.Meta()
		m.ObservationSteps, m.Cameras[0].DecodeScale = tt.steps, tt.scale
		rttest.Want(t, observationMax(m)-observationSlack, tt.want,
			"%d steps, scale %d: bytes of pictures", tt.steps, tt.scale)
	}
}
