package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/prometheus/procfs"
)

const (
	// provoke, which makes more garbage, lasts 1/provokedShare of the steady time.
	provokedShare = 4
	// scrapeEvery is the interval at which provoke reads the metrics. Each reading makes 17 kB of
	// garbage, so that the server collects every few seconds.
	scrapeEvery = 5 * time.Millisecond
	// scrapesAlone is how many readings in a row measure the allocations of one reading.
	scrapesAlone = 5
	// pauseMax is the longest time for which the collector may delay a request. noiseMB and
	// rssNoiseMB are growth that does not count as a leak: pages of Go's own, and pages that C
	// touches late.
	pauseMax   = 200 * time.Microsecond
	noiseMB    = 2.0
	rssNoiseMB = 4.0
)

// Steady is the result of a server that robots keep busy for long, with batches and an audit: the
// allocations of its paths and the cost of its collector.
type Steady struct {
	Robots   int     `json:"robots"`   // number of robots
	Seconds  float64 `json:"seconds"`  // s, time for which the robots kept the server busy
	Requests int     `json:"requests"` // requests with a chunk
	Lost     int     `json:"lost"`     // requests without a chunk
	Shared   int     `json:"shared"`   // inferences of more than one request
	// heap objects that the server allocated, except those for readings of its counters
	Allocations int     `json:"allocations"`
	ScrapeCost  int     `json:"scrape_allocations"` // heap objects that each of its two counter readings takes
	Collections int     `json:"collections"`        // garbage collections
	HeapGrewMB  float64 `json:"heap_grew_mb"`       // MiB, growth of the heap
	RSSBeginMB  float64 `json:"rss_begin_mb"`       // MiB, resident memory at the start
	RSSMostMB   float64 `json:"rss_most_mb"`        // MiB, the most
	RSSEndMB    float64 `json:"rss_end_mb"`         // MiB, at the end

	Provoked Provoked `json:"provoked"` // shorter run with far too frequent readings of the metrics
}

// Provoked is the result of a server whose metrics are read far too often, which makes garbage.
type Provoked struct {
	Seconds     float64 `json:"seconds"`     // s, its length
	Requests    int     `json:"requests"`    // requests with a chunk
	Collections int     `json:"collections"` // garbage collections
	// collections that the server started between two requests; the others started by themselves
	ByHand     int     `json:"by_hand"`
	PauseMaxMs float64 `json:"pause_max_ms"` // ms, longest stop of all other work by a collection
}

// Broken returns the defects of the server in words, or "" if it has none.
func (s *Steady) Broken() string {
	var broken []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	if s.Seconds == 0 {
		return "" // the steady server was not measured
	}
	check(s.Requests > 0 && s.Lost == 0, "%d of %d requests are lost, want 0", s.Lost, s.Requests+s.Lost)
	check(s.Shared > 0, "no inference had more than one request, want some: give --max-batch and several --robots")
	check(s.Allocations <= s.slack(),
		"%d objects were allocated while %d requests were served, want 0 (%d may be the counters')", s.Allocations,
		s.Requests, s.slack())
	check(s.Collections == 0, "%d collections in %.0f s, want 0", s.Collections, s.Seconds)
	check(s.HeapGrewMB < noiseMB, "the heap grew by %.2f MB, want less than %.0f", s.HeapGrewMB, noiseMB)
	check(s.RSSMostMB-s.RSSBeginMB < rssNoiseMB, "the process grew by %.2f MB, want less than %.0f",
		s.RSSMostMB-s.RSSBeginMB, rssNoiseMB)
	check(s.Provoked.Collections == s.Provoked.ByHand,
		"%d of %d collections came by themselves, want all between two requests",
		s.Provoked.Collections-s.Provoked.ByHand, s.Provoked.Collections)
	check(s.Provoked.PauseMaxMs <= pauseMax.Seconds()*1e3,
		"a collection stopped all else for %.3f ms, want at most %.1f", s.Provoked.PauseMaxMs, pauseMax.Seconds()*1e3)
	return strings.Join(broken, "; ")
}

// slack returns how many objects the counters may show although no path allocated: the counters lag
// by a span of each size for each processor, and the cost of a reading varies.
func (s *Steady) slack() int { return 2 * s.ScrapeCost }

// steady keeps a server busy for a time.
func (s *stand) steady(ctx context.Context, n int, limit time.Duration) (r Steady, err error) {
	page, err := stage.FreeEndpoint()
	if err != nil {
		return r, err
	}
	page = strings.TrimPrefix(page, "tcp/")
	_, port, _ := strings.Cut(page, ":")
	// The audit is the null device: the server writes its lines, and needs no disk.
	crowd, err := s.crowd(ctx, "steady", n, "runway", os.DevNull, "--health-port", port)
	if err != nil {
		return r, err
	}
	defer crowd.leave(&err)
	flood := func(limit time.Duration) (answered, lost int, err error) {
		before, gone := crowd.answered(), crowd.lost()
		_, err = crowd.flood(ctx, limit)
		return crowd.answered() - before, crowd.lost() - gone, err
	}
	s.cfg.Progress("%d robots for %v, after as long as it takes to grow\n", n, limit)
	if _, _, err := flood(min(limit, 10*time.Second)); err != nil {
		return r, err
	}
	if r.ScrapeCost, err = scrapeCost(page); err != nil {
		return r, err
	}
	r.Robots = n
	resident := watchRSS(crowd.PID())
	before, err := stage.Scrape(page)
	if err != nil {
		return r, err
	}
	begin := time.Now()
	if r.Requests, r.Lost, err = flood(limit); err != nil {
		return r, err
	}
	r.Seconds = bench.Round(time.Since(begin).Seconds())
	after, err := stage.Scrape(page)
	if err != nil {
		return r, err
	}
	seen := resident()
	r.RSSBeginMB = mb(seen[0])
	r.RSSMostMB = mb(slices.Max(seen))
	r.RSSEndMB = mb(seen[len(seen)-1])
	grew := func(name string) float64 { return after[name] - before[name] }
	r.Allocations = max(0, int(grew("go_memstats_mallocs_total"))-r.ScrapeCost)
	r.Collections = int(grew("go_gc_cycles_total_gc_cycles_total"))
	r.HeapGrewMB = mb(grew("go_memstats_heap_alloc_bytes"))
	for requests := 2; requests <= 16; requests++ {
		r.Shared += int(grew(fmt.Sprintf(`lean_server_batches_total{requests="%d"}`, requests)))
	}
	if r.Provoked, err = s.provoke(ctx, page, max(limit/provokedShare, time.Second), flood); err != nil {
		return r, err
	}
	return r, crowd.Alive()
}

// provoke keeps the server busy while its metrics are read far too often.
func (s *stand) provoke(ctx context.Context, page string, limit time.Duration,
	flood func(time.Duration) (int, int, error)) (p Provoked, err error) {
	s.cfg.Progress("and for %v with garbage\n", limit)
	asking, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	before, err := stage.Scrape(page)
	if err != nil {
		stop()
		return p, err
	}
	go func() {
		var failed error
		for asking.Err() == nil && failed == nil {
			_, failed = stage.Scrape(page)
			stage.Sleep(asking, scrapeEvery)
		}
		ended <- failed
	}()
	begin := time.Now()
	p.Requests, _, err = flood(limit)
	p.Seconds = bench.Round(time.Since(begin).Seconds())
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return p, err
	}
	after, err := stage.Scrape(page)
	p.Collections = int(after["go_gc_cycles_total_gc_cycles_total"] - before["go_gc_cycles_total_gc_cycles_total"])
	p.ByHand = int(after["go_gc_cycles_forced_gc_cycles_total"] - before["go_gc_cycles_forced_gc_cycles_total"])
	p.PauseMaxMs = bench.Round(after["lean_server_collection_pause_max_seconds"] * 1e3)
	return p, err
}

func mb(bytes float64) float64 { return bench.Round(bytes / (1 << 20)) }

// scrapeCost reads the page's metrics scrapesAlone times, and returns the largest number of objects that an otherwise
// idle server allocates between two readings.
func scrapeCost(page string) (objects int, err error) {
	last := 0
	for i := range scrapesAlone {
		all, err := stage.Scrape(page)
		if err != nil {
			return 0, err
		}
		now := int(all["go_memstats_mallocs_total"])
		if i > 0 {
			objects = max(objects, now-last)
		}
		last = now
	}
	return objects, nil
}

// watchRSS reads a process's resident size every second until the caller calls stop, which returns
// the sizes in bytes, at least one.
func watchRSS(pid int) (stop func() []float64) {
	process, _ := procfs.NewProc(pid)
	look := func() float64 {
		stat, _ := process.Stat()
		return float64(stat.ResidentMemory())
	}
	seen := []float64{look()}
	over := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ticks := time.Tick(time.Second); ; {
			select {
			case <-ticks:
				seen = append(seen, look())
			case <-over:
				seen = append(seen, look())
				return
			}
		}
	}()
	return func() []float64 {
		close(over)
		<-ended
		return seen
	}
}
