package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// traced is a span in the form in which a collector receives it.
type traced struct {
	service                             string
	TraceID, SpanID, ParentSpanID, Name string
	StartTimeUnixNano, EndTimeUnixNano  string
	Status                              struct{ Code int }
}

func (s *traced) took() int64 {
	start, _ := strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
	end, _ := strconv.ParseInt(s.EndTimeUnixNano, 10, 64)
	return end - start
}

// newCollector starts a collector and returns its address. traces returns the spans that it has received, by trace and
// name.
func newCollector(t *testing.T) (address string, traces func() map[string]map[string]traced) {
	t.Helper()
	var mu sync.Mutex
	got := map[string]map[string]traced{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			ResourceSpans []struct {
				Resource struct {
					Attributes []struct{ Value struct{ StringValue string } }
				}
				ScopeSpans []struct{ Spans []traced }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range body.ResourceSpans {
			for _, s := range resource.ScopeSpans[0].Spans {
				s.service = resource.Resource.Attributes[0].Value.StringValue
				if got[s.TraceID] == nil {
					got[s.TraceID] = map[string]traced{}
				}
				got[s.TraceID][s.Name] = s
			}
		}
	}))
	t.Cleanup(collector.Close)
	return collector.URL, func() map[string]map[string]traced {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

// Both programs report a request in one trace: the server's spans are parts of the robot's span, and together not
// longer.
func TestARequestIsOneTrace(t *testing.T) {
	t.Parallel()
	collector, traces := newCollector(t)
	server, endpoint := startLeanServer(t, demo+"/server.yaml", "--traces", collector)
	r := edgeCommand(t, []string{"--bus", "sim", "--camera", "top=sim", "--connect", endpoint, "--duration", "2s",
		"--on-exit",
		"off", "--record", "off", "--traces", collector})
	code, s := r.play()
	if end := server.End(syscall.SIGTERM); code != 0 || end != 0 {
		t.Errorf("%d and %d\n%s\n%s", code, end, r.Log, server.Log)
	}
	whole := 0
	for id, spans := range traces() {
		request := spans["request"]
		serve := spans["serve"]
		infer := spans["infer"]
		if request.SpanID == "" || serve.SpanID == "" {
			continue // incomplete: the last trace, or a first trace with a late answer
		}
		whole++
		if request.service != "edge-rt" || serve.service != "lean-server" || request.ParentSpanID != "" ||
			serve.ParentSpanID != request.SpanID || infer.ParentSpanID != serve.SpanID ||
			spans["encode and send"].ParentSpanID != request.SpanID {
			t.Errorf("trace %s: %+v", id, spans)
		}
		if serve.took() <= 0 || infer.took() > serve.took() || request.Status.Code == 0 &&
			serve.took() > request.took() {
			t.Errorf("trace %s: request %d ns, serve %d, infer %d", id, request.took(), serve.took(), infer.took())
		}
	}
	if whole == 0 || uint64(whole) < s.Chunks {
		t.Errorf("%d whole traces of %d chunks", whole, s.Chunks)
	}
}

// A run refuses an address that cannot be a collector's before the arm moves.
func TestTracesRefuseAWrongAddress(t *testing.T) {
	t.Parallel()
	r := edgeCommand(t, []string{"--bus", "sim", "--connect", "tcp/127.0.0.1:1", "--traces", "collector:4318"})
	r.Start().EndsWith(2)
	rttest.Contains(t, r.Log.String(), "want http://HOST:4318")
}
