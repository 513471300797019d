package uplink

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// steady is the pace of a server whose inferences all take d.
func steady(d time.Duration) Pace { return Pace{Least: d, Most: d} }

// usual is a run with the default flags on chunks of 50 actions at 30 Hz.
func usual() Config {
	return Config{
		Limits: Limits{
			MaxActionAge:   DefaultMaxActionAge,
			DegradedAfter:  DefaultDegradedAfter,
			RequestTimeout: DefaultRequestTimeout,
			MaxOffline:     time.Minute,
		},
		Schedule: chunk.Config{Schedule: "drtc"},
	}
}

// Goal: limits without a flag follow the policy's time per chunk, as far as its actions need it. Limits that a flag
// fixed stay.
func TestLimitsFollowThePolicy(t *testing.T) {
	for _, tt := range []struct {
		name         string
		pace         Pace
		given        Given
		age, quiet   time.Duration
		hopeless     bool
		notes, needs string // notes is a text in the notes, needs a text that must be missing
	}{
		{"a quick policy", Pace{20 * time.Millisecond, 30 * time.Millisecond, 0}, Given{}, 3 * time.Second,
			time.Second, false, "", "-"},
		{"nothing is known", Pace{}, Given{}, 3 * time.Second, time.Second, false, "", "-"},
		{"8 s", steady(8 * time.Second), Given{}, 14 * time.Second, 12 * time.Second, false,
			"SLOW POLICY --max-action-age --request-timeout", "--degraded-after"},
		{"8 s, and the age is a flag's", steady(8 * time.Second), Given{MaxActionAge: true},
			3 * time.Second, 12 * time.Second, true, "--max-action-age --request-timeout", ""},
		{"4.9 s", steady(4900 * time.Millisecond), Given{}, 10 * time.Second,
			7350 * time.Millisecond, false, "SLOW POLICY --max-action-age", "--request-timeout"},
		{"seven robots at 1.6 s", Pace{1600 * time.Millisecond, 1600 * time.Millisecond, 9600 * time.Millisecond},
			Given{}, 5 * time.Second, 12 * time.Second, false, "--max-action-age --request-timeout", "SLOW"},
		{"seven robots at 1.35 s", Pace{1350 * time.Millisecond, 1600 * time.Millisecond,
			9600 * time.Millisecond}, Given{}, 5 * time.Second, 12 * time.Second, false, "--max-action-age", "SLOW"},
		{"quick, with chunks that outlast the limit", Pace{50 * time.Millisecond, 60 * time.Millisecond, 0},
			Given{}, 3 * time.Second, time.Second, false, "", "-"},
		{"a minute and a half", steady(90 * time.Second), Given{DegradedAfter: true},
			137 * time.Second, time.Second, false, "--max-offline --degraded-after", ""},
		{"1 s: a smaller s_min helps", steady(1100 * time.Millisecond), Given{},
			3 * time.Second, 1650 * time.Millisecond, false, "--s-min 16", "SLOW"},
	} {
		cfg := usual()
		cfg.Given = tt.given
		p := cfg.Patience(50, 30)
		rttest.Want(t, p.Age(tt.pace), tt.age, "%s: the longest age of actions", tt.name)
		rttest.Want(t, p.Quiet(tt.pace), tt.quiet, "%s: degraded after", tt.name)
		if err := p.hopeless(tt.pace); (err != nil) != tt.hopeless || err != nil && exit.Of(err) != exit.Config {
			t.Errorf("%s: hopeless = %v, want %v", tt.name, err, tt.hopeless)
		}
		said := strings.Join(p.notes(tt.pace, 50, 20, 30), "\n")
		for _, flag := range strings.Fields(strings.ReplaceAll(tt.notes, "--s-min 16", "--s-min")) {
			rttest.Contains(t, said, flag)
		}
		if tt.needs != "" && strings.Contains(said, tt.needs) {
			t.Errorf("%s: the notes name %s:\n%s", tt.name, tt.needs, said)
		}
	}
	cfg := usual()
	cfg.Given.MaxActionAge = true
	p := cfg.Patience(50, 30)
	rttest.Fails(t, p.hopeless(steady(8*time.Second)), "give --max-action-age 14s or more")
	cfg.MaxActionAge = 14 * time.Second
	if p := cfg.Patience(50, 30); p.hopeless(steady(8*time.Second)) != nil ||
		p.Age(steady(8*time.Second)) < 8*time.Second+p.chunk {
		t.Error("the value that it names does not work")
	}
	p = cfg.Patience(50, 30)
	within := Pace{20 * time.Millisecond, 90 * time.Millisecond, 10 * time.Millisecond}
	rttest.NoAllocs(t, "a pace within all limits allocates %v times, want 0", 100, func() {
		if p.notes(within, 50, 20, 30) != nil {
			t.Error("a pace within all limits has notes")
		}
	})
}

// Goal: one slow answer does not let old actions run. Several slow answers in a row let them run, and so do
// the first slow answers of a server that does not announce its time.
func TestOneHiccupIsNoSlowPolicy(t *testing.T) {
	quick := Pace{20 * time.Millisecond, 30 * time.Millisecond, 0}
	var a Inferences
	rttest.Want(t, a.Learn(quick), quick, "the pace without answers, which is the server's own")
	a.Add(10_000)
	if got := a.Learn(quick); got.Least != quick.Least || got.Most != 10*time.Second {
		t.Errorf("after one slow answer %+v, want the least unchanged", got)
	}
	rttest.Want(t, a.Learn(Pace{}).Least, 10*time.Second, "of a server that says nothing (the answer's 10 s)")
	a.Add(9000)
	rttest.Want(t, a.Learn(quick).Least, quick.Least, "after two slow answers")
	a.Add(9000)
	rttest.Want(t, a.Learn(quick).Least, 9*time.Second, "after three slow answers in a row (a least of 9 s)")
	a.Add(25)
	rttest.Want(t, a.Learn(quick).Least, 25*time.Millisecond, "after a quick answer")
	for range paceKnown {
		a.Add(9000)
	}
	a.Add(-1)
	a.Add(1e300)
	rttest.Want(t, a.Learn(quick).Most, 10*time.Second, "after answers that are no times")
}

// Goal: one slow inference before this run, such as the first on a GPU, does not count. A run whose quick answers stop
// is degraded after the usual time.
func TestTheFirstInferenceOfAServerIsNotItsPace(t *testing.T) {
	said := Pace{20 * time.Millisecond, time.Minute, 0}
	var a Inferences
	for range paceWindow {
		a.Add(20)
	}
	got := a.Learn(said)
	rttest.Want(t, got.Most, paceTimes*20*time.Millisecond,
		"after %d answers of 20 ms, the time of an inference", paceWindow)
	cfg := usual()
	p := cfg.Patience(50, 30)
	rttest.Want(t, p.Quiet(Pace{}.Or(said)), 90*time.Second, "before the first answer degraded after")
	rttest.Want(t, p.Quiet(got.Or(said)), DefaultDegradedAfter, "time until degraded")
}

func TestPaceOfBelievesNoNonsense(t *testing.T) {
	for _, ms := range []float64{-1, 0} {
		rttest.Want(t, paceOf(&wire.Capabilities{InferenceMsMin: ms, InferenceMsP99: ms, QueueWaitMs: ms}), Pace{},
			"%v ms", ms)
	}
	if got := paceOf(&wire.Capabilities{InferenceMsMin: 500, InferenceMsP99: 1e300,
		QueueWaitMs: 10}); got.Most != paceMost || got.Least != 500*time.Millisecond {
		t.Errorf("%+v, want at most %v", got, paceMost)
	}
	if got := paceOf(&wire.Capabilities{InferenceMsMin: 500, InferenceMsP99: 20}); got.Most != got.Least {
		t.Errorf("%+v, want no p99 below the least", got)
	}
}

// Goal: a session whose policy can never act within the limit of a flag is refused at once; the
// error has the flag and a value that works. Without the flag the session opens, and the log names
// the limits that the policy exceeds.
func TestASessionThatCouldNeverActIsRefused(t *testing.T) {
	s, l, log := demoLink(t, func(a *wire.SessionAck) { a.InferenceMsMin, a.InferenceMsP99 = 8000, 8000 })
	base := usual()
	l.MaxActionAge = base.MaxActionAge
	l.MaxOffline = base.MaxOffline
	l.Given.MaxActionAge = true
	err := l.connect(within(t, 5*time.Second))
	rttest.Ends(t, err, exit.Config, "--max-action-age")
	rttest.Eventually(t, "the session is given back", func() bool { return s.closed() > 0 })
	l.Given.MaxActionAge = false
	opens(t, l)
	rttest.Contains(t, log.String(), "SLOW POLICY", "--max-action-age is 13s", "--request-timeout", "session=s1")
	lines := strings.Count(log.String(), "\n")
	if l.tellPace(); strings.Count(log.String(), "\n") != lines {
		t.Errorf("the same pace is told twice:\n%s", log)
	}
}

// Goal: a live server keeps its session for as long as its announced time for a chunk allows; a
// silent server loses it after --request-timeout.
func TestASlowServerKeepsItsSession(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Hour))
	cfg := usual()
	cfg.Clock = clock
	l := New(cfg)
	l.contract = Contract{Horizon: 50, FPS: 30}
	l.serverToken.Store(tokenAlive)
	start := clock.Now()
	l.openedAt = start
	l.Out.AskedAt.Store(int64(start))
	l.In.Announce(steady(8 * time.Second))
	for at := time.Second; at < 29*time.Second; at += time.Second {
		clock.Advance(time.Second)
		l.heardAt = clock.Now() // set as probe sets it
		if _, why := l.lossReason(); why != "" {
			t.Fatalf("after %v: %s, want the session kept", at, why)
		}
	}
	clock.Advance(2 * time.Second)
	l.heardAt = clock.Now()
	if _, why := l.lossReason(); why == "" {
		t.Error("after 29 s, three times the 8 s of a chunk and --request-timeout, the session is still waited for")
	}
	l.openedAt = clock.Now()
	l.Out.AskedAt.Store(int64(clock.Now()))
	clock.Advance(DefaultRequestTimeout)
	if _, why := l.lossReason(); why != "" {
		t.Errorf("silent for %v: %s", DefaultRequestTimeout, why)
	}
	clock.Advance(time.Millisecond)
	if _, why := l.lossReason(); !strings.Contains(why, "does not answer") {
		t.Errorf("silent for longer: %q, want a loss", why)
	}
}

// Goal: when a policy becomes slow during a run, the log has a value that helps. The log also reports when the limit
// follows the policy, or returns to its former value.
func TestAPolicyThatBecomesSlowIsTold(t *testing.T) {
	_, l, log := demoLink(t, func(a *wire.SessionAck) { a.InferenceMsMin, a.InferenceMsP99 = 200, 250 })
	l.MaxActionAge, l.MaxOffline = DefaultMaxActionAge, time.Minute
	opens(t, l)
	told := func(pace Pace) string {
		n := log.Len()
		l.Out.SetPace(pace)
		l.tellPace()
		return log.String()[n:]
	}
	if l.tellPace(); log.Len() == 0 || strings.Contains(log.String(), "--max-action-age") {
		t.Fatalf("a quick policy is told of:\n%s", log)
	}
	for _, tt := range []struct {
		pace Pace
		want string // empty: nothing is logged
	}{
		{Pace{200 * time.Millisecond, 6 * time.Second, 0},
			"when 3 take so long in a row, it becomes longer by itself; --max-action-age 10s lets all"},
		{steady(6 * time.Second),
			"--max-action-age is 10s now, and was 3s: a chunk takes 6.0 s"},
		{Pace{6100 * time.Millisecond, 6200 * time.Millisecond, 0}, ""},
		{Pace{200 * time.Millisecond, 6 * time.Second, 0},
			"--max-action-age is 3s now, and was 10s: a chunk takes 200 ms"},
		{Pace{200 * time.Millisecond, 250 * time.Millisecond, 0}, ""},
	} {
		if said := told(tt.pace); !strings.Contains(said, tt.want) || (said == "") != (tt.want == "") {
			t.Errorf("%v: it says %q, want %q", tt.pace, said, tt.want)
		}
	}
	cfg := usual()
	cfg.Given.MaxActionAge = true
	p := cfg.Patience(50, 30)
	notes := strings.Join(p.notes(Pace{200 * time.Millisecond, 6 * time.Second, 0}, 50, 20, 30), "\n")
	rttest.Contains(t, notes, "which takes 200 ms to 6.0 s: --max-action-age 11s lets all of them")
}

// Goal: an original schedule of --compat that cannot act with a slow policy is refused, and the error names a flag that
// helps. Our own schedules are not refused.
func TestACompatThatCouldNeverActIsRefused(t *testing.T) {
	for _, tt := range []struct {
		schedule string
		compat   bool
		least    time.Duration
		request  time.Duration
		says     string // empty: the session is not refused
	}{
		{"rtc", true, 8 * time.Second, DefaultRequestTimeout, "leave --compat out"},
		{"rtc", true, time.Second, DefaultRequestTimeout, ""},
		{"rtc", true, 2 * time.Second, DefaultRequestTimeout, "drops"},
		{"rtc", false, 8 * time.Second, DefaultRequestTimeout, ""},
		{"append", true, 8 * time.Second, DefaultRequestTimeout, "give --request-timeout 14s"},
		{"append", true, 8 * time.Second, 14 * time.Second, ""},
		{"sync", true, 8 * time.Second, DefaultRequestTimeout, "give --request-timeout 14s"},
		{"sync", true, 4 * time.Second, DefaultRequestTimeout, ""},
		{"append", false, 8 * time.Second, DefaultRequestTimeout, ""},
		{"async", true, 8 * time.Second, DefaultRequestTimeout, ""},
		{"v1", true, 8 * time.Second, DefaultRequestTimeout, ""},
		{"drtc", true, 8 * time.Second, DefaultRequestTimeout, ""},
	} {
		cfg := usual()
		cfg.Schedule.Schedule = tt.schedule
		cfg.Schedule.Compat = tt.compat
		cfg.RequestTimeout = tt.request
		p := cfg.Patience(50, 30)
		pace := steady(tt.least)
		err := p.hopeless(pace)
		if (err != nil) != (tt.says != "") || p.Never(pace) != (err != nil) || err != nil &&
			!rttest.Says(err, tt.says) {
			t.Errorf("%s, compat %v, %v, --request-timeout %v: %v, want %q", tt.schedule, tt.compat, tt.least,
				tt.request, err, tt.says)
		}
	}
}

// Goal: the real link queries the status of a server whose answer is due, and keeps its session. The reply of another
// replica is ignored.
func TestTheLinkAsksAServerThatOwesAnAnswer(t *testing.T) {
	router, all := replicas(t, "a", "b")
	all["b"].change(func(r *server) { r.status.ServerLoad = 0.9 })
	all["a"].change(func(r *server) {
		r.status.InferenceMsMin = 8000
		r.status.InferenceMsP99 = 8000
		r.status.QueueWaitMs = 16000
		r.status.ActiveSessions = 2
	})
	l, log := router.dial(t, "")
	l.RequestTimeout, l.MaxOffline = 400*time.Millisecond, time.Minute
	opens(t, l)
	if id := l.server(); id != "a" {
		t.Fatalf("the session is at %s, want a", id)
	}
	l.Out.AskedAt.Store(int64(l.Clock.Now()))
	maintain(t, l)
	time.Sleep(3 * l.RequestTimeout) // real time: the transport has no test clock
	if n := l.In.Sessions().Opened; n != 1 || l.In.Sessions().Epoch() == 0 {
		t.Errorf("%d sessions opened, want the first kept:\n%s", n, log)
	}
	if p := l.In.Announced(); p.Most != 8*time.Second || p.Queue != 8*time.Second {
		t.Errorf("learned %+v, want 8 s of inference and 8 s behind the other session", p)
	}
	if l.In.AliveAt.Load() == 0 {
		t.Error("the run does not learn that the server lives")
	}
	all["a"].change(func(r *server) { r.status.ServerID = "other" })
	rttest.Eventually(t, "the loss once it does not answer", func() bool {
		return l.In.Sessions().Opened > 1 || l.In.Sessions().Lost > 0
	})
}

// Goal: a server on a slow link keeps its session: its status reply may take longer than the reply of a server on the
// local network.
func TestAServerOfAFarLinkKeepsItsSession(t *testing.T) {
	t.Parallel()
	router, all := replicas(t, "a")
	l, log := router.dial(t, "")
	l.RequestTimeout, l.MaxOffline = 2*time.Second, time.Minute
	opens(t, l)
	all["a"].change(func(r *server) { r.far = 700 * time.Millisecond })
	l.In.Announce(steady(8 * time.Second))
	l.Out.AskedAt.Store(int64(l.Clock.Now()))
	maintain(t, l)
	time.Sleep(3 * time.Second) // real time: the transport has no test clock
	if n := l.In.Sessions().Opened; n != 1 || l.In.Sessions().Epoch() == 0 {
		t.Errorf("%d sessions opened, want the first kept:\n%s", n, log)
	}
}

// Goal: an answer that arrives after the loss of its session is accepted if robot, episode, request and policy match.
// With another session's number, or with another policy, it is refused.
func TestAnAnswerToAnEarlierSessionCounts(t *testing.T) {
	session := func(in *Inbox, epoch uint32, nonce int64, sha string) {
		in.Open(&Session{Session: record.Session{Epoch: epoch, Model: "m", SHA256: sha}, Nonce: nonce})
	}
	for _, tt := range []struct {
		name  string
		now   func(in *Inbox)
		nonce int64
		stamp int64
		drop  int // -1: the answer is accepted
	}{
		{"a new session is open", func(in *Inbox) { session(in, 3, 30, "ab") }, 20, testStamp(5), -1},
		{"none is open", func(in *Inbox) { in.Lose() }, 20, testStamp(5), -1},
		{"the new session's nonce", func(in *Inbox) { session(in, 3, 30, "ab") }, 30, testStamp(5), dropForeign},
		{"another robot's request", func(in *Inbox) { session(in, 3, 30, "ab") }, 20, 1, dropForeign},
		{"another policy now", func(in *Inbox) { session(in, 3, 30, "cd") }, 20, testStamp(5), DropEpoch},
		{"a session long ago", func(in *Inbox) {
			session(in, 2+pastSessions, 30, "ab")
		}, 20, testStamp(5), DropEpoch},
	} {
		r := testReceiver()
		session(r.in, 2, 20, "ab")
		tt.now(r.in)
		h := goodHeader(5)
		h.ClientMonoNs = tt.stamp
		r.deposit(sample(h, chunkBody(3, 2, tt.nonce)))
		a, key, fresh := r.in.Answers.Front()
		if taken := fresh && key == 5 && a.Epoch == 2; taken != (tt.drop < 0) {
			t.Errorf("%s: taken %v, dropped %v", tt.name, taken, r.stats.Drops())
		}
		if tt.drop >= 0 && r.stats.Dropped[tt.drop].Load() != 1 {
			t.Errorf("%s: dropped %v, want %s", tt.name, r.stats.Drops(), DropNames[tt.drop])
		}
	}
}

// Goal: when the tick finds that no action can run within a flag's limit, the link ends the run and
// names the flag.
func TestATooSlowPolicyEndsTheRun(t *testing.T) {
	cfg := usual()
	cfg.Given.MaxActionAge = true
	cfg.Clock = rttest.NewClock(rt.Instant(time.Hour))
	cfg.Log = slog.New(slog.DiscardHandler)
	l := New(cfg)
	l.contract = Contract{Horizon: 20, FPS: 100}
	l.Out.SetPace(steady(8 * time.Second))
	if err := l.checkPace(); err != nil {
		t.Errorf("before the tick has given up: %v", err)
	}
	l.Out.TooSlow.Store(true)
	rttest.Ends(t, l.checkPace(), exit.Config, "--max-action-age")
}
