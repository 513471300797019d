package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

// serve runs an end with these commands as input, and returns the lines of its output.
func serve(t *testing.T, e End, commands string) ([]answer, error) {
	t.Helper()
	var out bytes.Buffer
	err := e.Run(t.Context(), strings.NewReader(commands), &out)
	var all []answer
	for dec := json.NewDecoder(&out); ; {
		var a answer
		if dec.Decode(&a) == io.EOF {
			return all, err
		}
		all = append(all, a)
	}
}

// Goal: an end accepts every size that --size accepts.
func TestSizesOfTheFlagAndOfAnEnd(t *testing.T) {
	field, _ := reflect.TypeFor[Config]().FieldByName("Sizes")
	if got, want := field.Tag.Get("range"), fmt.Sprintf("%d..%d;", minBytes, maxBytes); !strings.HasPrefix(got, want) {
		t.Errorf("--size takes %q, an end %s", got, want)
	}
}

func TestEndsOfAPair(t *testing.T) {
	for _, subject := range []string{native, tcp} {
		t.Run(subject, func(t *testing.T) {
			at := rttest.Must(stage.FreeEndpoint())(t)
			in, stop := io.Pipe()
			ready, up := io.Pipe()
			ended := make(chan error)
			go func() { ended <- End{subject, "pong", "listen", at, "k"}.Run(t.Context(), in, up) }()
			ready.Read(make([]byte, 100))
			go io.Copy(io.Discard, ready)
			all, err := serve(t, End{subject, "ping", "connect", at, "k"},
				"rtt 100000 30\nflood 64 5000\nrtt 8 3\nmallocs\n")
			if err != nil || len(all) != 5 {
				t.Fatalf("%d answers, %v; want that it is ready and 4", len(all), err)
			}
			if len(all[1].NS) != 30 || len(all[2].NS) != 1 || *all[2].Received != 5000 || len(all[3].NS) != 3 ||
				*all[4].Mallocs == 0 {
				t.Errorf("answers %+v", all[1:])
			}
			stop.Close()
			rttest.Do(t, <-ended)
		})
	}
}

func TestWrongCommands(t *testing.T) {
	for _, line := range []string{"", "rtt", "rtt 64", "rtt 64 0", "rtt 4 1", "rtt 64 9999999", "flood 99999999 1",
		"rtt a b"} {
		if _, err := execute(&tcpPing{}, line); err == nil {
			t.Errorf("%q was executed", line)
		}
	}
	rttest.Fails(t, rttest.Err(execute(nil, "rtt 64 1")))
}

// Goal: figures cover all turns; ratios only compare turns of the same round.
func TestReportAddsUp(t *testing.T) {
	n := uint64(4)
	trips := func(round int, subject string, us ...int64) Turn {
		t := Turn{
			Round:   round,
			Subject: subject,
			Path:    direct,
			Bytes:   64,
			Count:   len(us),
			P50:     float64(us[len(us)/2]),
			CPU:     7,
		}
		for _, v := range us {
			t.ns = append(t.ns, v*1000)
		}
		return t
	}
	ours := trips(1, native, 10, 20, 30)
	ours.Mallocs = &n
	late := trips(2, native, 100, 200, 300)
	late.Mallocs = &n
	turns := []Turn{ours, late, trips(1, rust, 20, 20, 20), trips(2, rust, 100, 100, 100),
		{Round: 1, Subject: native, Path: direct, Bytes: 64, Flood: true, Count: 1000, Lost: 100, Seconds: 2},
	}
	r := newReport(Config{Sizes: []int{64}}, bench.Machine{}, []string{"no moon"}, turns)
	if len(r.RoundTrips) != 2 || len(r.Floods) != 1 || r.Rounds != 2 {
		t.Fatalf("%+v", r)
	}
	// The ratio is 1.0 in the first round and 2.0 in the second.
	if a := r.RoundTrips[0]; a.Subject != native || a.Count != 6 || a.Min != 10 || a.P50 != 30 || a.P99 != 200 ||
		a.XRust != 1.5 || *a.Mallocs != 8.0/6 {
		t.Errorf("native = %+v", a)
	}
	if f := r.Floods[0]; f.Rate != 450 || f.Lost != 100 || f.XRust != 0 {
		t.Errorf("flood = %+v", f)
	}
	var text bytes.Buffer
	if err := r.WriteTable(&text); err != nil || !strings.Contains(text.String(), "no moon") ||
		strings.Count(text.String(), "native") != 2 {
		t.Errorf("%v\n%s", err, &text)
	}
}
