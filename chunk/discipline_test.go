package chunk

import (
	"cmp"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// bench drives a discipline as a robot does. An answer comes delay ticks after its request, unless lost returns true
// for the request. The value in row i of an answer is the row's step plus key/1000.
type bench struct {
	Discipline
	ask     Ask
	tick    int
	delay   int
	lost    func(key int64) bool
	state   []float32
	flying  map[int]Ask
	answer  Chunk
	actions []float32
	starved int     // ticks without an action after the first action
	asked   []int   // tick of each request
	keys    []int64 // key of each request
	merged  []Result
}

const (
	benchHorizon = 20
	benchPeriod  = 10 * time.Millisecond
)

func newBench(t *testing.T, c Config, delay int) *bench {
	t.Helper()
	n := cmp.Or(c.Horizon, benchHorizon)
	c.Horizon, c.DOF = n, 1
	c.FPS = cmp.Or(c.FPS, 100)
	c.Epsilon = cmp.Or(c.Epsilon, 1)
	d := rttest.Must(New(c))(t)
	return &bench{
		Discipline: d,
		ask:        NewAsk(n, 1),
		delay:      delay,
		state:      make([]float32, 1),
		flying:     map[int]Ask{},
		answer: Chunk{
			Rows:  n,
			DOF:   1,
			Robot: make([]float32, n),
			Model: make([]float32, n),
		},
	}
}

// ways iterates over the schedules, each first with Compat false (ours), then with Compat true (the original).
func ways(names ...string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, name := range names {
			if !yield(name, false) || !yield(name, true) {
				return
			}
		}
	}
}

func (b *bench) now() rt.Instant {
	return rt.Instant(time.Second).Add(time.Duration(b.tick) * benchPeriod)
}

// onTick reports whether an observation leaves now, and writes its request to b.ask.
func (b *bench) onTick() bool { return b.OnTick(b.now(), b.state, &b.ask) }

// pop takes an action of any age.
func (b *bench) pop() []float32 {
	action, _, _ := b.Pop(b.now(), 0)
	return action
}

func (b *bench) run(ticks int) {
	for range ticks {
		if action := b.pop(); action != nil {
			b.actions = append(b.actions, action[0])
			b.state[0] = action[0]
		} else if len(b.actions) > 0 {
			b.starved++
		}
		if a, ok := b.flying[b.tick]; ok {
			delete(b.flying, b.tick)
			b.answer.Key = a.Key
			for i := range b.answer.Robot {
				b.answer.Robot[i] = float32(a.Step) + float32(i) + float32(a.Key)/1000
				b.answer.Model[i] = -b.answer.Robot[i]
			}
			b.merged = append(b.merged, b.OnChunk(b.now(), &b.answer))
		}
		if b.onTick() {
			b.asked, b.keys = append(b.asked, b.tick), append(b.keys, b.ask.Key)
			if b.lost == nil || !b.lost(b.ask.Key) {
				b.flying[b.tick+b.delay] = b.ask
			}
		}
		b.tick++
	}
}

// Every discipline runs without an allocation once it is made.
func TestDisciplineNoAlloc(t *testing.T) {
	for _, name := range Schedules {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{Schedule: name, Buffer: AutoBuffer}, 3)
			b.run(200)
			b.flying = map[int]Ask{}
			b.actions = nil
			b.asked = nil
			b.merged = nil
			var key int64
			rttest.NoAllocs(t, "%v allocations per tick, want 0", 500, func() {
				b.tick++
				b.Pop(b.now(), time.Second)
				b.Peek()
				b.answer.Key = key
				b.OnChunk(b.now(), &b.answer)
				if b.onTick() {
					key = b.ask.Key
				}
				b.SetSource(key, b.now())
				b.View()
			})
		})
	}
}

func TestDRTCDiscipline(t *testing.T) {
	b := newBench(t, Config{Schedule: scheduleDRTC, SMin: 8, PrefixEnd: 10}, 3)
	b.lost = func(key int64) bool { return key%3 == 0 }
	b.run(300)
	if b.asked[0] != 0 || b.starved != 0 || len(b.actions) != 296 {
		t.Errorf("first request on tick %d, %d actions, %d starved; want tick 0, 296 and none", b.asked[0],
			len(b.actions), b.starved)
	}
	for i, a := range b.actions {
		if int(a) != i {
			t.Fatalf("action %d is of step %v", i, a)
		}
	}
	if r := b.merged[1]; r.Outcome != Joined || r.Delay != 3 || r.RTT != 3*benchPeriod {
		t.Errorf("second merge = %+v, want delay 3 after 30 ms", r)
	}
	b.answer.Key = 4711
	rttest.Want(t, b.OnChunk(b.now(), &b.answer).Outcome, Unknown, "an answer nobody asked for")
}

func TestNewRefuses(t *testing.T) {
	good := Config{Schedule: scheduleDRTC, Horizon: 50, DOF: 6, FPS: 60, Epsilon: 1}
	rttest.Must(New(good))(t)
	for name, change := range map[string]func(*Config){
		"no such schedule":                   func(c *Config) { c.Schedule = "guess" },
		"no such estimator":                  func(c *Config) { c.Estimator = "guess" },
		"a horizon of one":                   func(c *Config) { c.Horizon = 1 },
		"no joints":                          func(c *Config) { c.DOF = 0 },
		"no rate":                            func(c *Config) { c.FPS = 0 },
		"negative epsilon":                   func(c *Config) { c.Epsilon = -1 },
		"s_min of the horizon":               func(c *Config) { c.SMin = 50 },
		"no such prefix":                     func(c *Config) { c.Prefix = "guess" },
		"a threshold above 1":                func(c *Config) { c.Threshold = 1.1 },
		"no similarity":                      func(c *Config) { c.Similarity = math.NaN() },
		"a negative buffer":                  func(c *Config) { c.Buffer = -2 },
		"no such cooldown":                   func(c *Config) { c.Cooldown = "guess" },
		"the original's cooldown without it": func(c *Config) { c.Cooldown = cooldownMerge },
		"no such aggregate":                  func(c *Config) { c.Aggregate = "guess" },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: New accepts it", name)
		}
	}
}
