package wire

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// nested returns a body whose only key is unknown and holds n small values.
func nested(n int) []byte {
	src := msgp.AppendString([]byte{0x81}, "x")
	return append(msgp.AppendArrayHeader(src, uint32(n)), bytes.Repeat([]byte{0xc0}, n)...)
}

func TestReadAsked(t *testing.T) {
	whole := *demoObservation()
	whole.HasRunway, whole.RunwayMs = true, 412.5
	silent := whole
	silent.HasRunway = false
	head := func(b ...byte) []byte { return append(msgp.AppendString([]byte{0x81}, "runway_ms"), b...) }
	for _, tt := range []struct {
		name string
		body []byte
		want float64
		said bool
		err  error
	}{
		{"after the pictures", AppendObservation(nil, &whole), 412.5, true, nil},
		{"not said", AppendObservation(nil, &silent), 0, false, nil},
		{"an integer, as Python may send it", head(0xcc, 200), 200, true, nil},
		{"nil is not said", head(0xc0), 0, false, nil},
		{"of two the last counts", append([]byte{0x82}, append(head(7)[1:], head(9)[1:]...)...), 9, true, nil},
		{"text", head(0xa1, 'x'), 0, false, ErrMalformed},
		{"not a number", head(0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0), 0, false, ErrNotFinite},
		{"not a map", []byte{0xc0}, 0, false, ErrMalformed},
		{"cut off", head(0xcb, 1), 0, false, ErrMalformed},
		{"bytes after it", append(head(1), 0), 0, false, ErrMalformed},
		{"as many unknown values as may be", nested(MaxSkipped - 1), 0, false, nil},
		{"one more", nested(MaxSkipped), 0, false, ErrTooLarge},
		{"millions of them", nested(4_700_000), 0, false, ErrTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked, err := ReadAsked(tt.body)
			ms, said := asked.RunwayMs, asked.HasRunway
			if ms != tt.want || said != tt.said || !errors.Is(err, tt.err) {
				t.Errorf("ReadAsked = %v, %v, %v, want %v, %v, %v", ms, said, err, tt.want, tt.said, tt.err)
			}
			var o Observation
			rttest.FailsAs(t, ParseObservation(&o, tt.body), tt.err)
		})
	}
	body := AppendObservation(nil, &whole)
	rttest.NoAllocs(t, "ReadAsked allocates %v times, want 0", 100, func() {
		if asked, err := ReadAsked(body); !asked.HasRunway || !asked.HasN || err != nil {
			t.Fatal(asked, err)
		}
	})
}

// Reading a body with megabytes of values below unknown keys takes no longer than to skip MaxSkipped values. Skipping
// all of them would delay every robot by a third of a second.
func TestUnknownKeysAreCheap(t *testing.T) {
	const times = 50
	body := nested(4_700_000)
	var fastest time.Duration
	rttest.RealTime(t)
	for i := range times {
		begin := time.Now()
		_, err := ReadAsked(body)
		if d := time.Since(begin); i == 0 || d < fastest { // a busy machine does not delay the fastest run
			fastest = d
		}
		rttest.FailsAs(t, err, ErrTooLarge)
	}
	if fastest > 5*time.Millisecond {
		t.Errorf("a body of %d bytes takes %v, want less than 5 ms", len(body), fastest)
	}
}

// Property: from every body that ParseObservation accepts, ReadAsked reads the same values, unless it must skip too
// many values.
func FuzzReadAsked(f *testing.F) {
	seed(f)
	f.Add(nested(MaxSkipped))
	f.Fuzz(func(t *testing.T, src []byte) {
		asked, err := ReadAsked(src)
		var o Observation
		if ParseObservation(&o, src) != nil {
			return
		}
		if errors.Is(err, ErrTooLarge) {
			return
		}
		if err != nil {
			t.Fatalf("% x is an observation, but ReadAsked says %v", src, err)
		}
		if want := (Asked{o.HasRunway, o.RunwayMs, o.HasN, o.N}); asked != want {
			t.Fatalf("% x: ReadAsked = %+v, want %+v", src, asked, want)
		}
	})
}
