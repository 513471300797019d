package servo

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// lossy makes the line lose some replies of the servos with these ids, and damage others. The parameters drop and spoil
// are the shares of lost and of damaged replies. Without ids all servos are affected.
func (l *line) lossy(drop, spoil float64, ids ...byte) {
	dice := rand.New(rand.NewPCG(16, 17))
	l.tamper = func(r []byte) []byte {
		if ids != nil && !slices.Contains(ids, r[2]) {
			return r
		}
		switch x := dice.Float64(); {
		case x < drop:
			return nil
		case x < drop+spoil:
			r[len(r)-1] ^= 1
		}
		return r
	}
}

// Goal: losses on a cable are not taken for a slow adapter. The measured time equals the time on a clean line, and the
// tuned delay differs by at most two of the tuning's smallest steps.
func TestMeasureTellsLossFromSlowness(t *testing.T) {
	a, l := openLine(t)
	a.health.due = never
	l.gap = replyGap + 100*time.Microsecond
	clean := rttest.Must(a.Measure(100))(t)
	settle := a.bus.replyDelay
	if clean.Clean != 100 || clean.losses() != 0 || clean.Corrupt != 0 || clean.Silent != 0 {
		t.Fatalf("of a clean line it says %+v", clean)
	}
	for _, share := range []float64{0.005, 0.01, 0.05, 0.09} {
		l.lossy(share, share)
		m, err := a.Measure(400)
		if err != nil || m.P99 != clean.P99 || a.CheckLosses(m) != nil {
			t.Errorf("%v lost and as much spoilt: P99 %v, %v, %v; want %v as on a clean line", share, m.P99, err,
				a.CheckLosses(m), clean.P99)
		}
		if d := a.bus.replyDelay - settle; d.Abs() > 2*tuneLast {
			t.Errorf("%v lost and as much spoilt: it learns %v, want %v", share, a.bus.replyDelay, settle)
		}
		if want := 2 * share * 400 * 6; float64(m.losses()) < want/2 || float64(m.losses()) > 2*want ||
			m.Corrupt == 0 || m.Clean+m.losses() < 400 {
			t.Errorf("%v lost and as much spoilt: %d lost of 2400, %d corrupt, %d clean cycles; want about %.0f", share,
				m.losses(), m.Corrupt, m.Clean, want)
		}
	}
	// Noise before a complete reply delays the reply, but does not change the tuning.
	noise, n := make([]byte, 100), 0
	l.tamper = func(r []byte) []byte {
		if n++; n%12 == 0 {
			return append(slices.Clone(noise), r...)
		}
		return r
	}
	if m, err := a.Measure(100); err != nil || m.P99 != clean.P99 || m.Clean != 50 || m.losses() != 0 ||
		m.Corrupt < 50 || (a.bus.replyDelay-settle).Abs() > 4*tuneLast {
		t.Errorf("noise in every second cycle: %+v, %v, learns %v; want P99 %v, 50 clean, none lost, and %v learnt", m,
			err, a.bus.replyDelay, clean.P99, settle)
	}
	// The measured time of a slow adapter is long on a bad cable, too.
	l.gap = replyGap + 500*time.Microsecond
	if m, _ := a.Measure(100); m.P99 < clean.P99+6*400*time.Microsecond {
		t.Errorf("slow and lossy: P99 %v, want 2.4ms more than %v", m.P99, clean.P99)
	}
}

// The limit of losses applies to each motor. The error names the motors above the limit, and gives advice.
func TestUnfitNamesTheMotors(t *testing.T) {
	a, l := openLine(t)
	l.lossy(0.15, 0.15, 3, 4)
	m := rttest.Must(a.Measure(200))(t)
	err := a.CheckLosses(m)
	if !errors.Is(err, ErrNoReply) {
		t.Fatalf("Unfit = %v, want %v", err, ErrNoReply)
	}
	rttest.Fails(t, err, "motor 3 (elbow_flex)", "motor 4 (wrist_flex)", "of 200", "20 %", "plugs")
	if rttest.Says(err, "motor 2") || rttest.Says(err, "motor 5") {
		t.Errorf("%v names motors that are well", err)
	}
	rttest.FailsAs(t, rttest.Err(a.MeasureCycles(200)), ErrNoReply)
	l.lossy(0.1, 0.05, 3)
	if m, err = a.Measure(200); err != nil || a.CheckLosses(m) != nil {
		t.Errorf("15 %% are lost: %v, %v, want them borne", err, a.CheckLosses(m))
	}
	if motors, cure := a.LossReport(m); !strings.HasPrefix(motors, "motor 3 (elbow_flex) ") ||
		strings.Contains(motors, ",") || cure == "" {
		t.Errorf("Losers = %q, %q, want motor 3 alone", motors, cure)
	}
}

// A cycle without any answer does not count as a loss of any motor, because the host was late.
func TestSilenceOfAllIsNobodysLoss(t *testing.T) {
	a, l := openLine(t)
	n := 0
	l.tamper = func(r []byte) []byte {
		if n++; n > 60 && n <= 66 {
			return nil
		}
		return r
	}
	m, err := a.Measure(100)
	if motors, _ := a.LossReport(m); err != nil || m.Silent != 1 || m.losses() != 0 || motors != "" || m.Clean != 99 {
		t.Errorf("%+v, %v, losers %q; want 1 silent of 100 and no loser", m, err, motors)
	}
	l.tamper = func([]byte) []byte { return nil }
	if m, _ = a.Measure(10); m.Silent != 10 || m.Clean != 0 || a.CheckLosses(m) == nil ||
		!strings.Contains(a.CheckLosses(m).Error(), "no motor") {
		t.Errorf("%+v: %v, want 10 silent cycles and a refusal", m, a.CheckLosses(m))
	}
}

func TestMeasuredAddsUp(t *testing.T) {
	var all Measurement
	for _, m := range []Measurement{
		{Cycles: 10, Lost: []int{10, 0}},
		{Cycles: 10, Clean: 5, P99: 7, Lost: []int{3, 2}, Corrupt: 4},
		{Cycles: 10, Clean: 9, P99: 9, Lost: []int{0, 1}, Silent: 1},
	} {
		all.Add(m)
	}
	if all.Cycles != 30 || all.Clean != 14 || all.P99 != 7 || !slices.Equal(all.Lost, []int{13, 3}) ||
		all.losses() != 16 || all.Silent != 1 || all.Corrupt != 4 {
		t.Errorf("sum %+v", all)
	}
}

// In a merged reply, the missing parts after the silent motor do not count as losses of their motors.
func TestAMergedReplysLossIsTheFirstOnes(t *testing.T) {
	m := Measurement{Lost: make([]int, 6)}
	g := &readGroup{all: 0b111111, fast: true}
	m.lose(0b111000, g)
	if g.fast = false; !slices.Equal(m.Lost, []int{0, 0, 0, 1, 0, 0}) {
		t.Errorf("lost %v, want the fourth's alone", m.Lost)
	}
	m.lose(0b101000, g)
	rttest.Equal(t, m.Lost, []int{0, 0, 0, 2, 0, 1}, "lost (the fourth's and the sixth's besides)")
}
