package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/wire"
)

// A picture with stray bytes before its end, as webcams send them, is used and counted. A picture
// of which a part is missing is refused, and its observation has no effect.
func TestStrayBytesCostNoChunk(t *testing.T) {
	if d, err := jpeg.NewDecoder(); errors.Is(err, jpeg.ErrNoLibrary) {
		t.Skip(err)
	} else {
		d.Close()
	}
	good := rttest.Must(os.ReadFile(filepath.Join("..", "testdata", "jpeg", "golden", "scene_422.jpg")))(t)
	end := len(good) - 2
	stray := slices.Insert(slices.Clone(good), end, 0x12, 0x00, 0x7f, 0x31)
	half := append(slices.Clone(good[:end/2]), good[end:]...)
	fake := newCameras(policy.Camera{Name: "top", W: 96, H: 64}, policy.Camera{Name: "wrist", W: 96, H: 64})
	b := fake.bench(t)
	s, r := b.server, b.robot("arm")
	var want []byte
	for i, step := range []struct {
		top, wrist []byte
		outcome    audit.Outcome
		says       string
	}{
		{good, good, audit.Answered, ""},
		{stray, good, audit.Answered, ""},
		{stray, stray, audit.Answered, ""},
		{good, good, audit.Answered, ""},
		{stray, half, audit.BadObservation, "premature end of data segment"},
		{stray, half[:len(half)-2], audit.BadObservation, "make sense"},
		{stray, good[:2], audit.BadObservation, "make sense"},
	} {
		before := s.stats.outcomes[step.outcome].Load()
		clear(fake.images[0])
		r.send(obsHeader(0, uint64(i+1)), observation(wire.Image{Name: top, Data: step.top},
			wire.Image{Name: front.ImagePrefix + "wrist", Data: step.wrist}))
		b.serveOne()
		if i == 0 {
			want = bytes.Clone(fake.images[0])
		}
		if !bytes.Equal(fake.images[0], want) {
			t.Errorf("observation %d: the first camera's tensor is another picture", i+1)
		}
		if got := s.stats.outcomes[step.outcome].Load(); got != before+1 ||
			!strings.Contains(s.worker.engine.buffers[0].slots[0].Why, step.says) {
			t.Errorf("observation %d: outcome %v (%s), want %v that says %q", i+1,
				s.worker.engine.buffers[0].slots[0].Outcome,
				s.worker.engine.buffers[0].slots[0].Why, step.outcome, step.says)
		}
	}
	h := pages(t, s)
	page := scrape(t, h)
	for name, want := range map[string]float64{"top": 2, "wrist": 1} {
		if got, ok := page[`lean_server_warned_pictures_total{camera="`+front.ImagePrefix+name+`"}`]; !ok || got != want {
			t.Errorf("the metric says %v for %s, want %v", got, name, want)
		}
	}
	summary := s.summary()
	var table strings.Builder
	if err := summary.Print(&table); err != nil || summary.WarnedPictures != 3 ||
		!strings.Contains(table.String(), "with stray bytes 3") {
		t.Errorf("%v; the summary has %d pictures with stray bytes, want 3:\n%s", err, summary.WarnedPictures,
			table.String())
	}
}
