package policy

import (
	"math"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestConditionChoosesWhatThePolicyKnows(t *testing.T) {
	trained := Meta{ChunkSize: 50, NumSteps: 10, RTC: "guided,trained", RTCMaxDelay: 20, PrefixEnd: 24}
	guided := Meta{ChunkSize: 50, NumSteps: 5, RTC: "guided", PrefixEnd: 24}
	none := Meta{ChunkSize: 50, RTC: "none"}
	steer := func(rows, delay, end int, mode Mode, beta float32) Controls {
		return Controls{PrefixLen: rows, Delay: delay, PrefixEnd: end, Mode: mode, Beta: beta}
	}
	for _, tt := range []struct {
		name             string
		meta             Meta
		rows, delay, end int
		want             Controls
	}{
		{"no prefix, no conditioning", trained, 0, 8, 24, steer(0, 0, 24, ModeFree, 10)},
		{"known delay", trained, 30, 8, 24, steer(30, 8, 24, ModeTrained, 10)},
		{"longest known delay", trained, 30, 20, 24, steer(30, 20, 24, ModeTrained, 10)},
		{"one step beyond is guided", trained, 30, 21, 24, steer(30, 21, 24, ModeGuided, 10)},
		{"delay beyond the prefix is the prefix", trained, 12, 40, 24, steer(12, 12, 24, ModeTrained, 10)},
		{"negative numbers are none", trained, -1, -1, -1, steer(0, 0, 24, ModeFree, 10)},
		{"end defaults to the bundle's", trained, 30, 8, 0, steer(30, 8, 24, ModeTrained, 10)},
		{"end is kept inside the chunk", trained, 30, 8, 99, steer(30, 8, 50, ModeTrained, 10)},
		{"prefix is kept inside the chunk", trained, 99, 8, 24, steer(50, 8, 24, ModeTrained, 10)},
		{"untrained policy is guided with its own steps", guided, 30, 8, 24, steer(30, 8, 24, ModeGuided, 5)},
		{"without delay, guided: no rows are a trained prefix", trained, 30, 0, 24, steer(30, 0, 24, ModeGuided, 10)},
		{"policy without conditioning", none, 30, 8, 24, steer(30, 8, 24, ModeFree, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Want(t, tt.meta.Condition(&Conditioning{}, tt.rows, tt.delay, tt.end), tt.want,
				"Condition(%d, %d, %d)", tt.rows, tt.delay, tt.end)
		})
	}
}

func TestConditionNoAlloc(t *testing.T) {
	m := Meta{ChunkSize: 50, NumSteps: 10, RTC: "guided,trained", RTCMaxDelay: 20, PrefixEnd: 24}
	rttest.NoAllocs(t, "Condition allocates %v times, want 0", 100, func() { m.Condition(&Conditioning{}, 30, 21, 24) })
}

func TestConditionAs(t *testing.T) {
	trained := Meta{ChunkSize: 50, NumSteps: 10, RTC: "guided,trained", RTCMaxDelay: 20, PrefixEnd: 24}
	for _, tt := range []struct {
		mode        string
		rows, delay int
		want        Mode
	}{
		{conditionAuto, 30, 8, ModeTrained}, {conditionAuto, 30, 21, ModeGuided}, {"", 30, 8, ModeTrained},
		{conditionOff, 30, 8, ModeFree},
		{conditionGuided, 30, 8, ModeGuided}, {conditionGuided, 0, 0, ModeFree},
		{conditionTrained, 30, 20, ModeTrained}, {conditionTrained, 30, 21, ModeFree},
		{conditionTrainedGuided, 30, 8, ModeTrainedGuided}, {conditionTrainedGuided, 30, 21, ModeGuided},
		{conditionTrainedGuided, 30, 0, ModeGuided},
	} {
		how := Conditioning{Mode: tt.mode, Schedule: scheduleExp, SigmaD: 0.2, Beta: 5}
		got := trained.Condition(&how, tt.rows, tt.delay, 0)
		if got.Mode != tt.want || got.Schedule != scheduleExp || got.SigmaD != 0.2 || got.Beta != 5 {
			t.Errorf("%q with %d rows and delay %d: %+v, want mode %v", tt.mode, tt.rows, tt.delay, got, tt.want)
		}
	}
}

func TestCheckConditioning(t *testing.T) {
	all := Meta{ChunkSize: 50, NumSteps: 10, RTC: "guided,trained", RTCMaxDelay: 20, Schedule: "linear,zeros,ones,exp"}
	linear := Meta{ChunkSize: 50, NumSteps: 10, RTC: "guided", Schedule: "linear"}
	none := Meta{ChunkSize: 50, RTC: "none"}
	nan := float32(math.NaN())
	for _, tt := range []struct {
		name string
		meta *Meta
		how  Conditioning
		ok   bool
	}{
		{"nothing asked", &none, Conditioning{}, true}, {"off", &none, Conditioning{Mode: conditionOff}, true},
		{"all of it", &all, Conditioning{conditionTrainedGuided, scheduleExp, 0.2, 10}, true},
		{"guidance that is not there", &none, Conditioning{Mode: conditionGuided}, false},
		{"a trained prefix that is not there", &linear, Conditioning{Mode: conditionTrained}, false},
		{"a mode that does not exist", &all, Conditioning{Mode: "soft"}, false},
		{"a schedule that the graph does not take", &linear, Conditioning{Schedule: scheduleOnes}, false},
		{"a schedule that does not exist", &all, Conditioning{Schedule: 4}, false},
		{"a deviation that the graph does not take", &linear, Conditioning{SigmaD: 0.2}, false},
		{"a deviation of one for everybody", &linear, Conditioning{SigmaD: 1}, true},
		{"a deviation below nothing", &all, Conditioning{SigmaD: -1}, false},
		{"no deviation", &all, Conditioning{SigmaD: nan}, false},
		{"a weight that overshoots", &all, Conditioning{Beta: 11}, false},
		{"no weight", &all, Conditioning{Beta: nan}, false},
	} {
		if err := tt.meta.CheckConditioning(tt.how); (err == nil) != tt.ok {
			t.Errorf("%s: %v, want ok %v", tt.name, err, tt.ok)
		}
	}
}
