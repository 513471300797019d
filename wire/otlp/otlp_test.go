package otlp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Both programs compute the same ids. Different requests have different ids.
func TestIDs(t *testing.T) {
	a := Of("5e551011", 7)
	if a != Of("5e551011", 7) || a.Robot == a.Server || Part(a.Server, 1) == Part(a.Server, 2) ||
		Part(a.Robot, 1) == a.Robot {
		t.Errorf("%+v", a)
	}
	for _, other := range []Request{Of("5e551011", 8), Of("5e551012", 7)} {
		if other.Trace == a.Trace || other.Robot == a.Robot || other.Server == a.Server {
			t.Errorf("%+v equals %+v", other, a)
		}
	}
}

func example(n byte) Span {
	ids := Of("session", uint64(n))
	return Span{
		Trace:  ids.Trace,
		ID:     ids.Server,
		Parent: ids.Robot,
		Name:   "serve",
		Kind:   Server,
		Start:  time.Unix(5, 1),
		End:    time.Unix(5, 2_000_001),
		Failed: "unsent: \x1b",
		Values: [maxValues]Value{{Key: "seq", Number: 7}, {Key: "robot", Text: "arm"}},
	}
}

// The JSON is OTLP's: ids in hexadecimal, 64-bit numbers as text, kinds and codes as numbers.
func TestTheBodyIsOTLPs(t *testing.T) {
	var got atomic.Pointer[string]
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := string(rttest.Must(io.ReadAll(r.Body))(t))
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s, %v", r.URL, r.Header)
		}
		got.Store(&body)
	}))
	defer collector.Close()
	e := rttest.Must(Open(collector.URL, "lean-server", "host", func(string) { t.Error("a failure") }))(t)
	e.Add(example(1))
	e.Close()
	want := `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"lean-server"}},` +
		`{"key":"service.instance.id","value":{"stringValue":"host"}}]},"scopeSpans":[{"scope":{"name":"edge-rt"},"spans":[` +
		`{"traceId":"TRACE","spanId":"SPAN","parentSpanId":"PARENT","name":"serve","kind":2,` +
		`"startTimeUnixNano":"5000000001","endTimeUnixNano":"5002000001","attributes":[` +
		`{"key":"seq","value":{"intValue":"7"}},{"key":"robot","value":{"stringValue":"arm"}}],` +
		`"status":{"code":2,"message":"unsent: \\x1b"}}]}]}]}`
	s := encode(example(1))
	want = strings.NewReplacer("TRACE", s.Trace, "SPAN", s.ID, "PARENT", s.Parent).Replace(want)
	if len(s.Trace) != 32 || len(s.ID) != 16 || !json.Valid([]byte(*got.Load())) || *got.Load() != want {
		t.Errorf("got\n%s\nwant\n%s", *got.Load(), want)
	}
	if e.Sent.Load() != 1 || e.Dropped.Load() != 0 {
		t.Errorf("%d sent, %d dropped", e.Sent.Load(), e.Dropped.Load())
	}
}

// When the collector refuses spans or does not answer, the spans are dropped, the failure is reported once, and Add is
// never delayed.
func TestALostCollectorCostsSpans(t *testing.T) {
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "full", http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	for _, host := range []string{strings.TrimPrefix(busy.URL, "http://"), "127.0.0.1:1"} {
		address := "http://user:secret@" + host
		reports := 0
		e := rttest.Must(Open(address, "edge-rt", "arm", func(text string) {
			reports++
			rttest.Want(t, strings.Contains(text, "secret"), false, "the password in %s", text)
		}))(t)
		const n = waiting + 500
		for i := range n {
			e.Add(example(byte(i)))
		}
		e.Close()
		if e.Sent.Load() != 0 || e.Dropped.Load() != n || reports != 1 {
			t.Errorf("%s: %d sent, %d dropped of %d, %d reports", address, e.Sent.Load(), e.Dropped.Load(), n, reports)
		}
	}
	for _, wrong := range []string{"host:4318", "ftp://host", "http://", "http://user:p%secret@host:4318"} {
		if err := Check(wrong); err == nil || rttest.Says(err, "secret") {
			t.Errorf("%s: %v, want an error without the password", wrong, err)
		}
	}
}

// A collector may refuse a part of a batch in an answer without an error. The refused spans count as dropped, and its
// message is reported once.
func TestAPartialSuccess(t *testing.T) {
	for answer, want := range map[string]struct {
		dropped uint64
		says    string
	}{
		`{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old\u001b"}}`: {2, `has taken 1 of 3 spans: too old\x1b`},
		`{"partialSuccess":{"rejectedSpans":9}}`:                                  {3, "has taken 0 of 3 spans"},
		`{"partialSuccess":{"errorMessage":"soon full"}}`:                         {0, "has taken 3 of 3 spans: soon full"},
		`{"partialSuccess":{}}`:                                                   {0, ""},
		`no JSON`:                                                                 {0, ""},
	} {
		collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, answer)
		}))
		reports, said := 0, ""
		report := func(text string) { reports, said = reports+1, text }
		e := rttest.Must(Open(collector.URL, "edge-rt", "arm", report))(t)
		for i := range 3 {
			e.Add(example(byte(i)))
		}
		e.post(t.Context())
		for i := range 3 {
			e.Add(example(byte(i)))
		}
		e.Close()
		collector.Close()
		if e.Dropped.Load() != 2*want.dropped || e.Sent.Load() != 6-2*want.dropped ||
			!strings.Contains(said, want.says) || reports > 1 || want.says == "" && reports != 0 {
			t.Errorf("%s: %d sent, %d dropped, %d reports: %q", answer, e.Sent.Load(), e.Dropped.Load(), reports, said)
		}
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	e, s := &Exporter{spans: make(chan Span, 1)}, example(1)
	rttest.NoAllocs(t, "Add allocates %v times", 100, func() { e.Add(s) })
}
