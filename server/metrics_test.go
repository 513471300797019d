package server

import (
	"bufio"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// As in Prometheus, each bucket counts all durations up to and including its bound. The buckets agree with a plain
// count.
func TestDurationsAreCumulative(t *testing.T) {
	d := newDurations()
	var all []time.Duration
	for _, b := range bounds {
		all = append(all, b-1, b, b+1)
	}
	all = append(all, 0, time.Minute)
	sum := 0.0
	for _, v := range all {
		d.record(v)
		sum += v.Seconds()
	}
	var buckets [len(bounds)]uint64
	if count, gotSum := d.cumulative(buckets[:]); count != uint64(len(all)) || math.Abs(gotSum-sum) > 1e-9 {
		t.Errorf("cumulative() = %d, %g, want %d, %g", count, gotSum, len(all), sum)
	}
	for i, b := range bounds {
		want := uint64(0)
		for _, v := range all {
			if v <= b {
				want++
			}
		}
		rttest.Want(t, buckets[i], want, "bucket %v", b)
	}
	for i := 1; i < len(bounds); i++ {
		if bounds[i] <= bounds[i-1] {
			t.Errorf("bound %v after %v", bounds[i], bounds[i-1])
		}
	}
}

// scrape returns the server's own series and their values.
func scrape(t *testing.T, h *health) map[string]float64 {
	t.Helper()
	_, text := getPage(t, h, "/metrics")
	series := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if at := strings.LastIndexByte(line, ' '); strings.HasPrefix(line, metricPrefix) && at > 0 {
			value := rttest.Must(strconv.ParseFloat(line[at+1:], 64))(t)
			series[line[:at]] = value
		}
	}
	return series
}

// /metrics has the right values after a run, and before the policy is loaded.
func TestMetrics(t *testing.T) {
	h := pages(t, nil)
	if before := scrape(t, h); before["lean_server_requests_total"] != 0 || len(before) < 50 {
		t.Errorf("before there is a server: %d series, want all of them at 0", len(before))
	}
	cfg := config()
	cfg.Version = "v7"
	b := serve(t, cfg, func(b *bench) {
		b.audited(t.TempDir())
		b.beforeRuns(func(int) error { b.clock.Advance(4 * time.Millisecond); return nil })
		h.watch(b.server)
	})
	b.open(fakeOpen("arm"))
	b.open(fakeOpen("leg"))
	b.open(fakeOpen("tail")) // refused, because the server is full
	wrong := fakeOpen("arm")
	wrong.StateDim = 3
	b.open(wrong)
	r := b.robot("arm")
	body := 0
	for seq := uint64(1); seq <= 3; seq++ {
		o := fakeObs(t)
		if seq == 2 {
			o.State = o.State[:1]
		}
		body += len(wire.AppendObservation(nil, o))
		r.send(obsHeader(0, seq), o)
		r.next()
	}
	// the server counts a request after it has sent the chunk
	rttest.Eventually(t, "the end of the last request", func() bool {
		return b.server.worker.engine.busySince.Load() == 0
	})
	b.clock.Advance(3 * time.Second)
	b.end()
	got := scrape(t, h)
	for series, want := range map[string]float64{
		"lean_server_requests_total":                            2,
		`lean_server_outcomes_total{outcome="ok"}`:              2,
		`lean_server_outcomes_total{outcome="bad_observation"}`: 1,
		`lean_server_errors_total{reason="bad_observation"}`:    1,
		`lean_server_errors_total{reason="inference"}`:          0,
		"lean_server_sessions_opened_total":                     2,
		"lean_server_sessions_refused_total":                    2,
		`lean_server_opens_rejected_total{reason="full"}`:       1,
		`lean_server_opens_rejected_total{reason="state"}`:      1,
		`lean_server_opens_rejected_total{reason="task"}`:       0,
		`lean_server_conditioning_total{mode="free"}`:           2,
		"lean_server_observation_bytes_total":                   float64(body),
		"lean_server_warmed_up":                                 1,
		"lean_server_draining":                                  1,
		"lean_server_audit_lines_total":                         3,
		"lean_server_audit_dropped_total":                       0,
		"lean_server_captures_total":                            3,
		"lean_server_captures_dropped_total":                    0,
		`lean_server_session_staleness_seconds{client="arm"}`:   3.004, // the last inference took 4 ms
		`lean_server_session_staleness_seconds{client="leg"}`:   3.008,
		"lean_server_inference_seconds_count":                   2,
		"lean_server_inference_seconds_sum":                     0.008,
		`lean_server_inference_seconds_bucket{le="0.003"}`:      0,
		`lean_server_inference_seconds_bucket{le="0.005"}`:      2,
		`lean_server_inference_seconds_bucket{le="+Inf"}`:       2,
		"lean_server_queue_wait_seconds_count":                  2,
		"lean_server_decode_seconds_count":                      2,
		"lean_server_service_seconds_count":                     2,
		// the second request may have waited for the first
		`lean_server_service_seconds_bucket{le="0.01"}`: 2,
	} {
		if value, ok := got[series]; !ok || math.Abs(value-want) > 1e-9 {
			t.Errorf("%s = %v (there: %v), want %v", series, value, ok, want)
		}
	}
	if n := got["lean_server_chunk_bytes_total"]; n < 2*2*4*16 { // two chunks of two matrices of 16 floats
		t.Errorf("chunk bytes = %v", n)
	}
	build, model := 0, 0
	for series, value := range got {
		if strings.HasPrefix(series, "lean_server_build_info{") && strings.Contains(series, `version="v7"`) &&
			value == 1 {
			build++
		}
		if strings.HasPrefix(series, "lean_server_model_info{") && strings.Contains(series, `sha256="5ha"`) &&
			strings.Contains(series, `prefix="@lerobot/test-fake/main/demo"`) {
			model++
		}
	}
	if build != 1 || model != 1 {
		t.Errorf("%d build_info with the version, %d model_info with the bundle, want 1 of each", build, model)
	}
}

// counting is a network session whose losses a test sets.
type counting struct {
	wire.Session
	lost zenoh.Stats
}

func (c counting) Stats() zenoh.Stats { return c.lost }
func (c counting) MemoryUsed() int    { return 0 }

// Goal: the transport's losses reach Prometheus, each under its own reason.
func TestTransportLossesAreShown(t *testing.T) {
	b := newBench(t, config(), func(d *Deps) {
		d.Network = counting{d.Network, zenoh.Stats{
			Dropped:      1,
			Replaced:     2,
			StaleSN:      3,
			Unassembled:  4,
			Keys:         5,
			Declarations: 6,
			Queries:      7,
			Replies:      8,
			RelayDropped: 9,
			Malformed:    10,
			Stalled:      11,
			Revoked:      12,
			HalfOpen:     13,
			Sessions:     14,
			Idle:         15,
		}}
		d.Links = new(Links)
		d.Links.Up.Store(16)
		d.Links.Down.Store(17)
	})
	h := pages(t, b.server)
	got := scrape(t, h)
	want := 1.0
	check := func(name, label string, values ...string) {
		for _, v := range values {
			rttest.Want(t, got[fmt.Sprintf("%s%s{%s=%q}", metricPrefix, name, label, v)], want, "the series of %s", v)
			want++
		}
	}
	check("transport_lost_total", "reason", "congested", "replaced", "late_frame", "fragment", "key", "declaration",
		"query", "reply", "relayed")
	check("links_refused_total", "reason", "malformed", "stalled", "memory", "half_open", "full", "idle")
	check("links_total", "event", "up", "down")
}

// The series of a robot end with its session, so there are series of at most max_sessions robots.
func TestStalenessEndsWithTheSession(t *testing.T) {
	b := newBench(t, config())
	h := pages(t, b.server)
	arm := b.opened("arm")
	const series = `lean_server_session_staleness_seconds{client="arm"}`
	if _, ok := scrape(t, h)[series]; !ok {
		t.Errorf("no %s", series)
	}
	b.server.opener.drop(arm, "test")
	if _, ok := scrape(t, h)[series]; ok {
		t.Errorf("/metrics still has %s", series)
	}
}
