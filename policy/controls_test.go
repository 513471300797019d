package policy

import "testing"

func TestConditionChoosesWhatThePolicyKnows(t *testing.T) {
	trained := Meta{ChunkSize: 50, NumSteps: 10, RTC: "guided,trained", RTCMaxDelay: 20, PrefixEnd: 24}
	guided := Meta{ChunkSize: 50, NumSteps: 5, RTC: "guided", PrefixEnd: 24}
	none := Meta{ChunkSize: 50, RTC: "none"}
	tests := []struct {
		name             string
		meta             Meta
		rows, delay, end int
		want             Controls
	}{
		{"no prefix, no conditioning", trained, 0, 8, 24, Controls{0, 0, 24, ModeFree, 10}},
		{"known delay", trained, 30, 8, 24, Controls{30, 8, 24, ModeTrained, 10}},
		{"longest known delay", trained, 30, 20, 24, Controls{30, 20, 24, ModeTrained, 10}},
		{"one step beyond is guided", trained, 30, 21, 24, Controls{30, 21, 24, ModeGuided, 10}},
		{"delay beyond the prefix is the prefix", trained, 12, 40, 24, Controls{12, 12, 24, ModeTrained, 10}},
		{"negative numbers are none", trained, -1, -1, -1, Controls{0, 0, 24, ModeFree, 10}},
		{"end defaults to the bundle's", trained, 30, 8, 0, Controls{30, 8, 24, ModeTrained, 10}},
		{"end is kept inside the chunk", trained, 30, 8, 99, Controls{30, 8, 50, ModeTrained, 10}},
		{"prefix is kept inside the chunk", trained, 99, 8, 24, Controls{50, 8, 24, ModeTrained, 10}},
		{"untrained policy is guided with its own steps", guided, 30, 8, 24, Controls{30, 8, 24, ModeGuided, 5}},
		{"policy without conditioning", none, 30, 8, 24, Controls{30, 8, 24, ModeFree, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.meta.Condition(tt.rows, tt.delay, tt.end); got != tt.want {
				t.Errorf("Condition(%d, %d, %d) = %+v, want %+v", tt.rows, tt.delay, tt.end, got, tt.want)
			}
		})
	}
}

func TestConditionNoAlloc(t *testing.T) {
	m := Meta{ChunkSize: 50, NumSteps: 10, RTC: "guided,trained", RTCMaxDelay: 20, PrefixEnd: 24}
	if n := testing.AllocsPerRun(100, func() { m.Condition(30, 21, 24) }); n != 0 {
		t.Errorf("Condition allocates %v times, want 0", n)
	}
}
