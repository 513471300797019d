package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/webpage/webpagetest"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/server/status"
	"github.com/edge-rt/edge-rt/wire"
)

// playFleet runs a server of the fake policy whose inferences take a while, with robots that send
// as fast as real ones and read no chunks.
func playFleet(t *testing.T, robots int) *bench {
	t.Helper()
	cfg := config()
	cfg.MaxSessions = manifest.Capacity(max(8, robots))
	cfg.SessionsPerLink = max(8, robots)
	cfg.Version = "v0.9"
	cpu := rttest.Must(policy.ParseDevice("cpu"))(t)
	b := newBench(t, cfg, func(d *Deps) {
		d.Model = servertest.NewBatchModel(8, 2)
		d.Clock = rt.KernelClock()
		d.Repo = "lerobot/act_pick_and_place"
		d.SHA256 = "9c56cc51b374c3ba189210d5b6d4bf57"
		d.Placement.Device = cpu
	})
	pause := time.NewTimer(0)
	<-pause.C
	b.model.Before = func() error {
		pause.Reset(4*time.Millisecond + time.Duration(rand.IntN(2000))*time.Microsecond)
		<-pause.C
		return nil
	}
	b.model.Poison = 1
	b.start()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); wg.Wait() })
	picture := fakeObs(t).Images
	for i := range robots {
		o := fakeOpen(fmt.Sprintf("so101-%02d", i+1))
		o.SessionEpoch, o.Host = 1, fmt.Sprintf("pi-%02d", i+1)
		o.Tags, o.Task = []wire.Tag{{Key: "site", Value: "lab"}, {Key: "cell", Value: fmt.Sprint(i / 4)}},
			"put the cube into the box"
		b.admits(b.open(o), "an open")
		obs := rttest.Must(b.session.Publisher(obsKey(t, o.ClientUUID), wire.ObservationQoS))(t)
		wg.Go(func() {
			for seq := uint64(1); ; seq++ {
				runway := 80 + rand.Float64()*float64(100+20*i)
				m := &wire.Observation{
					State:     []float32{float32(2 + i), 20},
					Images:    picture,
					HasRunway: true,
					RunwayMs:  runway,
				}
				if i == 2 && seq%40 == 0 {
					m.State[0] = 1 // an observation that the policy refuses
				}
				_ = obs.Put(wire.AppendObservation(nil, m), wire.AppendHeader(nil, obsHeader(1, seq)))
				if i == 5 && seq == 3 {
					return // from now on the robot sends nothing
				}
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(20+i+rand.IntN(20)) * time.Millisecond):
				}
			}
		})
	}
	return b
}

// browse opens address and lets the page's virtual clock run for this duration. It returns the DOM at the end of this
// time, or writes a screenshot to the file picture if that name is not empty.
func browse(t *testing.T, address string, lasts time.Duration, size, picture string) (dom string) {
	t.Helper()
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir=" + t.TempDir(),
		"--window-size=" + size, fmt.Sprintf("--virtual-time-budget=%d", lasts.Milliseconds())}
	if picture != "" {
		args = append(args, "--screenshot="+picture)
	} else {
		args = append(args, "--dump-dom")
	}
	c := exec.CommandContext(t.Context(), webpagetest.Chromium(t), append(args, address)...)
	var complaints strings.Builder
	c.Stderr = &complaints
	out := rttest.Must(c.Output())(t)
	return string(out)
}

// Goal: Debian's Chromium runs the page under the page's security policy: it shows the sessions, their waits, the
// inferences and the refusals, and shows when the server stops.
func TestThePageInChromium(t *testing.T) {
	webpagetest.Chromium(t)
	h := pages(t, nil)
	at := "http://" + h.Addr().String() + "/"
	if dom := browse(t, at, 2*time.Second, "1200,900", ""); !strings.Contains(dom, `role="status" class="bad">`+
		loadingText) {
		t.Errorf("while the policy loads the page has\n%.3000s", dom[strings.Index(dom, "<header"):])
	}
	b := playFleet(t, 8)
	h.watch(b.server)
	wrong := fakeOpen("other")
	wrong.StateDim = 3
	b.open(wrong)
	rttest.Eventually(t, "chunks", func() bool { return b.server.summary().Requests > 100 })
	dom := browse(t, at, 4*time.Second, "1200,900", "")
	rttest.Contains(t, dom, `role="status" class="good">serving<`, ">lerobot/act_pick_and_place</h1>",
		"sha256 9c56cc51b374,", "on cpu,",
		">8 of 8<", "⚠ full: new robots are sent to other servers",
		">so101-01<", ">so101-08<", "put the cube into the box", "site=lab cell=1", "inferences in the last", "full 1",
		"the device computed")
	if t.Failed() {
		t.Logf("%s", dom[strings.Index(dom, "<header"):strings.LastIndex(dom, "<script>")])
	}
	b.end()
	if dom := browse(t, at, 2*time.Second, "1200,900", ""); !strings.Contains(dom, `class="bad">draining<`) {
		t.Errorf("after the end the page has\n%.2000s", dom[strings.Index(dom, "<header"):])
	}
	if dir := os.Getenv("EDGERT_SCREENSHOTS"); dir != "" {
		takePictures(t, h, dir)
	}
}

// takePictures takes the screenshots in the documents again:
//
//	EDGERT_CHROMIUM=1 EDGERT_SCREENSHOTS=docs/page go test -run ThePageInChromium ./server
func takePictures(t *testing.T, h *health, dir string) {
	dir = rttest.Must(filepath.Abs(filepath.Join("..", dir)))(t)
	b := playFleet(t, 12)
	h.watch(b.server)
	at := "http://" + h.Addr().String() + "/"
	for name, size := range map[string]string{"lean-server": "1200,1200", "lean-server-phone": "500,1620"} {
		browse(t, at, 100*time.Second, size, filepath.Join(dir, name+".png"))
	}
}

// Goal: 300 sessions can be sorted by their need for attention, cut to the requested number and searched. The refusal
// of an invalid query lists the valid values.
func TestTheStatusOf300Sessions(t *testing.T) {
	const n = 300
	s := fleet(t, n)
	h := pages(t, s)
	for i, session := range s.sessions.all() {
		session.shown.runway.Store(int64((i*7919 + 1) % n * int(time.Millisecond)))
		session.shown.service.Store(int64((i*104729 + 1) % n * int(time.Millisecond)))
		session.shown.superseded.Store(uint64(i * 31 % n))
		// every third robot is quiet
		session.seenAt.Store(int64(s.clock.Now()) - int64(i*17%n)*int64(time.Second)/100)
	}
	s.sessions.all()[7].shown.runway.Store(-1)
	read := func(query string) (l Live) {
		t.Helper()
		code, text := getPage(t, h, "/status.json"+query)
		if code != 200 {
			t.Fatalf("%s: %d %s", query, code, text)
		}
		rttest.Do(t, json.Unmarshal([]byte(text), &l))
		return l
	}
	for sort, key := range map[string]func(*LiveSession) float64{
		"runway": func(r *LiveSession) float64 {
			if r.RunwayMs == nil || r.Why != "streams" {
				return 1e9
			}
			return *r.RunwayMs
		},
		"latency": func(r *LiveSession) float64 {
			return -*r.LatencyMs
		}, "drops": func(r *LiveSession) float64 { return -float64(r.Superseded) },
		"quiet": func(r *LiveSession) float64 { return -r.SeenMs },
	} {
		l := read("?rows=300&sort=" + sort)
		if len(l.Sessions.Rows) != n || l.Sessions.Open != n || l.Sessions.Found != n {
			t.Fatalf("%d rows of %d open, %d found, want %d", len(l.Sessions.Rows), l.Sessions.Open, l.Sessions.Found,
				n)
		}
		for i := 1; i < n; i++ {
			if a, b := &l.Sessions.Rows[i-1], &l.Sessions.Rows[i]; key(a) > key(b) {
				t.Fatalf("by %s %+v comes before %+v", sort, a, b)
			}
		}
	}
	if l := read(""); len(l.Sessions.Rows) != status.DefaultRows || l.Sessions.Open != n {
		t.Errorf("%d rows of %d, want %d of %d", len(l.Sessions.Rows), l.Sessions.Open, status.DefaultRows, n)
	}
	if l := read("?find=arm-29&sort=name"); l.Sessions.Found != 11 || l.Sessions.Rows[0].Name != "arm-29" {
		t.Errorf("%d found, the first %s, want arm-29 and arm-290 to arm-299", l.Sessions.Found,
			l.Sessions.Rows[0].Name)
	}
	for _, query := range []string{"?sort=luck", "?rows=0", "?rows=1001", "?rows=x",
		"?find=" + strings.Repeat("x", 65)} {
		if code, text := getPage(t, h, "/status.json"+query); code != 400 || !strings.Contains(text, "want") {
			t.Errorf("%s: %d %s, want 400 with what would do", query, code, text)
		}
	}
}

// Goal: the page describes the server's state and the problems on which a person has to act.
func TestThePageSaysHowTheServerIs(t *testing.T) {
	b := newBench(t, config(), func(d *Deps) {
		d.LogMissing.Lost = func() uint64 { return 3 }
		d.Placement.Instead = policy.ErrNoProvider
	})
	s := b.server
	want := func(state, why string, warnings ...string) {
		t.Helper()
		l := showLive(s, status.Query{})
		if l.State != state || l.Why != why || l.Ready != (state == "serving") {
			t.Errorf("%q, %q, ready %v; want %q, %q", l.State, l.Why, l.Ready, state, why)
		}
		rttest.Contains(t, strings.Join(l.Warnings, "; "), append(warnings, "lines of the log were lost",
			"CPU instead of a GPU")...)
	}
	if l := showLive(nil, status.Query{}); l.State != loadingText || l.Server != nil {
		t.Errorf("while the policy loads: %+v", l)
	}
	want("warming up", "warming up")
	s.phase.warmed.Store(true)
	s.worker.alive.Store(true)
	want("not ready", "declaring")
	s.phase.serving.Store(true)
	want("serving", "")
	s.housekeeper.moved.Store(int64(s.clock.Now()))
	b.clock.Advance(2 * housekeepingStuckAfter)
	want("stuck", "housekeeping stuck for 20 s: no session opens here")
	s.housekeeper.moved.Store(0)
	s.stats.probes[probeFailed].Add(1)
	s.worker.engine.giveUp("CUDA failure 700", failureRun)
	want("the device failed", "CUDA failure 700", "runs of the server's own have failed")
	s.worker.engine.failed.Store(nil)
	s.phase.draining.Store(true)
	want("draining", "robots are sent to other servers")
}
