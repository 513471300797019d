package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/edge-rt/edge-rt/internal/webpage/metric"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
)

// discarded is an http.ResponseWriter that keeps only the header.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header         { return d.header }
func (d discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d discarded) WriteHeader(int)             {}

// fleet returns a server with the given number of sessions.
func fleet(t *testing.T, sessions int) *Server {
	t.Helper()
	cfg := config()
	cfg.MaxSessions = manifest.Capacity(sessions)
	b := newBench(t, cfg)
	for i := range sessions {
		b.opened(fmt.Sprintf("arm-%d", i))
	}
	return b.server
}

// Goal: scrapes reuse memory and still have the present values, while sessions open and close. Prometheus' own parser
// can read them, and two scrapes at once do not share memory.
func TestScrapesAreReadByPrometheus(t *testing.T) {
	s := fleet(t, 3)
	source := metric.NewSource(metricsOf(func() *Server { return s }, new(atomic.Uint64)))
	h := promhttp.HandlerForTransactional(source, promhttp.HandlerOpts{})
	want := func(clients ...string) {
		t.Helper()
		var names []string
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families := rttest.Must(parser.TextToMetricFamilies(w.Body))(t)
		if f := families["go_goroutines"]; f == nil || f.Metric[0].GetGauge().GetValue() < 1 {
			t.Errorf("go_goroutines = %v", f)
		}
		for _, name := range []string{"process_resident_memory_bytes", "process_open_fds", "process_max_fds",
			"process_start_time_seconds"} {
			if f := families[name]; f == nil || f.Metric[0].GetGauge().GetValue() <= 0 {
				t.Errorf("%s = %v, want more than 0", name, f)
			}
		}
		for _, m := range families[metricPrefix+"session_staleness_seconds"].GetMetric() {
			names = append(names, m.Label[0].GetValue())
		}
		if !slices.Equal(names, clients) {
			t.Errorf("sessions %v, want %v", names, clients)
		}
	}
	want("arm-0", "arm-1", "arm-2")
	first, done, _ := source.Gather() // a slow reader keeps the first scrape's memory
	want("arm-0", "arm-1", "arm-2")
	s.opener.drop(s.sessions.find("arm-1"), "test")
	want("arm-0", "arm-2")
	for _, f := range first {
		if f.GetName() == metricPrefix+"session_staleness_seconds" && len(f.Metric) != 3 {
			t.Errorf("the slow reader has %d sessions now, want the 3 that it was given", len(f.Metric))
		}
	}
	done()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	rttest.Want(t, strings.Count(w.Body.String(), "# TYPE "+metricPrefix+"errors_total "), 1, "families of one name")
}
