//go:build !race

package server

import (
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/internal/webpage/metric"
)

// Goal: a scrape leaves little garbage whatever the number of robots, because garbage is collected only when the worker
// has time between two requests. With client_golang's registry, a scrape left 450 kB in 2,400 objects for 5 sessions.
// (The test does not run under the race detector, with which a sync.Pool drops objects at random.)
func TestGarbageOfAScrape(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // each of Go's processors has a separate pool of compressors
	// The collector is off, as while a server serves. A collection would empty the pool of
	// compressors.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, sessions := range []int{5, 100} {
		s := fleet(t, sessions)
		h := metric.Handler(metricsOf(func() *Server { return s }, new(atomic.Uint64)))
		for _, encoding := range []string{"identity", "gzip"} {
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.Header.Set("Accept-Encoding", encoding)
			h.ServeHTTP(discarded{http.Header{}}, r)
			const scrapes = 50
			bytes, objects := uint64(math.MaxUint64), uint64(0)
			for range 3 { // if the goroutine moves to another processor, it finds an empty pool
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range scrapes {
					h.ServeHTTP(discarded{http.Header{}}, r)
				}
				runtime.ReadMemStats(&after)
				bytes, objects = min(bytes, (after.TotalAlloc-before.TotalAlloc)/scrapes),
					(after.Mallocs-before.Mallocs)/scrapes
			}
			if bytes > 24<<10 {
				t.Errorf("%d sessions, %s: a scrape leaves %d bytes, want at most 24 kB", sessions, encoding, bytes)
			}
			t.Logf("%d sessions, %s: %d bytes in %d objects", sessions, encoding, bytes, objects)
		}
	}
}
