package tokenizer

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestNewlineIsAddedOnce(t *testing.T) {
	spec := gemmaSpec
	spec.Template = "{task}\n"
	tok := load(t, "tokenizer.json", "gemma.json", spec)
	without, err1 := tok.Encode("lift it")
	with, err2 := tok.Encode("lift it\n")
	two, err3 := tok.Encode("lift it\n\n")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(without, with) || slices.Equal(with, two) {
		t.Errorf("ids of a task without, with one and with two newlines: %v, %v, %v, want the first two the same",
			without, with, two)
	}
}

func TestFillPadsOnTheRight(t *testing.T) {
	spec := smolSpec
	spec.MaxLen = 8
	p, err := load(t, "tokenizer.json", "smolvlm.json", spec).Prompt("<image>12")
	if err != nil {
		t.Fatal(err)
	}
	dst, mask := make([]int64, 8), []bool{true, true, true, true, true, true, true, true}
	if err := p.Fill(dst, mask, nil); err != nil {
		t.Fatal(err)
	}
	checkFilled(t, "<image>12", dst, mask, p.head, 2)
	if len(p.head) != 3 || p.head[0] != 6038 {
		t.Errorf("ids of <image>12 = %v, want three, the first 6038", p.head)
	}
}

func TestTooLongATaskIsRefused(t *testing.T) {
	spec := smolSpec
	spec.MaxLen = 4
	tok := load(t, "tokenizer.json", "smolvlm.json", spec)
	if _, err := tok.Prompt("1234"); err != nil {
		t.Errorf("a task of max_len tokens: %v", err)
	}
	const want = "task has 5 tokens, this policy reads at most 4: shorten it"
	if _, err := tok.Prompt("12345"); err == nil || err.Error() != want {
		t.Errorf("Prompt of five tokens: %v, want %s", err, want)
	}
	if _, err := tok.Prompt(strings.Repeat("a", MaxTaskBytes)); err == nil || !strings.Contains(err.Error(), "tokens") {
		t.Errorf("Prompt of the longest text: %v, want its tokens counted", err)
	}
	if _, err := tok.Prompt(strings.Repeat("a", MaxTaskBytes+1)); err == nil ||
		!strings.Contains(err.Error(), "4097 bytes, want at most 4096") {
		t.Errorf("Prompt of too many bytes: %v, want it refused", err)
	}
}

// A prompt that fits with only some states would fail while the arm moves.
func TestPromptIsRefusedByItsLongestState(t *testing.T) {
	tok := withState(t, loadPi05(t), State{Mode: "identity"}, 6)
	p, err := tok.Prompt("lift it")
	if err != nil {
		t.Fatal(err)
	}
	longest := len(p.head) + 6*len(p.values[256]) + len(p.tail)
	tok.spec.MaxLen = longest
	if _, err := tok.Prompt("lift it"); err != nil {
		t.Errorf("Prompt of just max_len tokens: %v", err)
	}
	tok.spec.MaxLen--
	const want = "tokens with the longest state of 6 values, this policy reads at most"
	if _, err := tok.Prompt("lift it"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Prompt of one token more: %v, want %s", err, want)
	}
}

func TestTaskThatIsNotText(t *testing.T) {
	tok := load(t, "tokenizer.json", "gemma.json", gemmaSpec)
	for _, task := range []string{"\xff", "\xef", "a\xc3", "\xed\xa0\x80", "ok \xf0\x9f\xa4"} {
		if _, err := tok.Encode(task); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
			t.Errorf("Encode(%q): %v, want it refused", task, err)
		}
	}
	if _, err := tok.Encode("\ufffd"); err != nil {
		t.Errorf("Encode of U+FFFD itself: %v", err)
	}
}

func TestBins(t *testing.T) {
	s := State{Mode: "identity"}
	for _, tt := range []struct {
		x    float32
		want int
	}{
		{-2, -1}, {math.Nextafter32(-1, -2), -1}, {-1, 0}, {-1e-45, 127}, {-1e-30, 127}, {0, 128}, {1e-45, 128},
		{1.0 / 128, 129},
		{math.Nextafter32(127.0/128, 0), 254}, {127.0 / 128, 255}, {1, 255}, {7, 255},
		{float32(math.Inf(1)), 255}, {float32(math.Inf(-1)), -1},
	} {
		if got, ok := s.bin(0, tt.x); got != tt.want || !ok {
			t.Errorf("bin(%v) = %d, %v, want %d", tt.x, got, ok, tt.want)
		}
	}
}

func TestFillRefuses(t *testing.T) {
	p, err := loadPi05(t).Prompt("lift it")
	if err != nil {
		t.Fatal(err)
	}
	p.remember()
	n := pi05Spec.MaxLen
	for _, tt := range []struct {
		name   string
		tokens int
		mask   int
		state  []float32
		whole  bool
		want   error
	}{
		{"tokens of another length", n - 1, n, []float32{0}, false, errSize},
		{"a mask of another length", n, n + 1, []float32{0}, false, errSize},
		{"no state", n, n, nil, false, errSize},
		{"two values", n, n, []float32{0, 0}, false, errSize},
		{"not a number", n, n, []float32{float32(math.NaN())}, false, errNumber},
		{"not a number, whole", n, n, []float32{float32(math.NaN())}, true, errNumber},
		{"right", n, n, []float32{0}, false, nil},
	} {
		p.whole = tt.whole
		if err := p.Fill(make([]int64, tt.tokens), make([]bool, tt.mask), tt.state); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	p.whole, p.t.spec.MaxLen = true, 5
	if err := p.Fill(make([]int64, 5), make([]bool, 5), []float32{0}); !errors.Is(err, errLong) {
		t.Errorf("a whole prompt that is too long: %v, want %v", err, errLong)
	}
}

// The parts give the ids of the whole, for any state; where a token may cross their borders they
// are not used.
func TestPartsAreTheWhole(t *testing.T) {
	model := loadData(t, "tokenizer.model", golden(t, "gemma.model"), gemmaSpec)
	model.spec = withState(t, &Tokenizer{spec: pi05Spec}, State{Mode: "identity"}, 6).spec
	model.joins = true
	random := rand.New(rand.NewPCG(3, 4))
	for _, tok := range []*Tokenizer{withState(t, loadPi05(t), State{Mode: "identity"}, 6), model} {
		for _, task := range []string{"put the red_block in slot 12", "", "State: 1 2", "▁▁ ", "<bos>\n\n🤖", ":"} {
			p, err := tok.Prompt(task)
			if err != nil || p.whole {
				t.Fatalf("Prompt(%q): %v, whole %v, want its parts", task, err, p.whole)
			}
			p.remember()
			a := make([]int64, 200)
			b := make([]int64, 200)
			mask := make([]bool, 200)
			state := make([]float32, 6)
			for range 300 {
				for i := range state {
					state[i] = float32(random.NormFloat64())
				}
				p.whole = false
				err1 := p.Fill(a, mask, state)
				p.whole = true
				if err := errors.Join(err1, p.Fill(b, mask, state)); err != nil || !slices.Equal(a, b) {
					t.Fatalf("%q with %v: parts %v, whole %v, %v", task, state, a, b, err)
				}
			}
		}
	}
}

func TestBorders(t *testing.T) {
	runes := map[rune]int32{':': 1, '▁': 2, ';': 3}
	for r := '0'; r <= '9'; r++ {
		runes[r] = r
	}
	spec := pi05Spec
	spec.State = &State{}
	for _, tt := range []struct {
		text string
		want bool
	}{
		{"▁the", true},
		{"▁-", true},
		{";\n", true},
		{":▁", false},
		{"State:▁", false},
		{"7▁", false},
		{"10▁000", false},
		{"0;", false},
		{"12", true},
	} {
		got := newBorders(&spec).closed(runes, slices.Values([]string{"x", tt.text}))
		if got != tt.want {
			t.Errorf("with a token %q the borders are closed: %v, want %v", tt.text, got, tt.want)
		}
	}
	delete(runes, '3')
	if newBorders(&spec).closed(runes, slices.Values([]string{"x"})) {
		t.Error("borders are closed where a digit has no token of its own, want them open")
	}
}

// SmolVLM2's pre-tokenizer looks across every border, so its parts are never tokenised separately.
func TestByteLevelPromptIsWhole(t *testing.T) {
	spec := pi05Spec
	spec.Kind, spec.BOSID = BPE, nil
	tok := withState(t, load(t, "tokenizer.json", "smolvlm.json", spec), State{Mode: "identity"}, 2)
	p, err := tok.Prompt("lift it")
	if err != nil || !p.whole {
		t.Fatalf("Prompt: %v, whole %v, want it whole", err, p.whole)
	}
	dst, mask := make([]int64, 200), make([]bool, 200)
	if err := p.Fill(dst, mask, []float32{0, -3}); err != nil {
		t.Fatal(err)
	}
	plain := *tok
	plain.spec = smolSpec
	want, err := plain.Encode("Task: lift it, State: 128 -1;\nAction: ")
	if err != nil {
		t.Fatal(err)
	}
	checkFilled(t, "whole", dst, mask, want, 0)
}

func TestFillDoesNotAllocate(t *testing.T) {
	tok := withState(t, loadPi05(t), State{Mode: "quantiles", A: make([]float32, 6), Span: []float32{1, 1, 1, 1, 1, 1}},
		6)
	p, err := tok.Prompt("put the red block in slot 12 🤖")
	if err != nil {
		t.Fatal(err)
	}
	p.remember()
	dst := make([]int64, 200)
	mask := make([]bool, 200)
	state := []float32{-1, 0, 0.3, 0.5, 0.9, 2}
	for _, p.whole = range []bool{false, true} {
		if n := testing.AllocsPerRun(100, func() {
			state[2] += 1e-3
			if err := p.Fill(dst, mask, state); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("Fill with whole %v allocates %v times, want 0", p.whole, n)
		}
	}
}

func TestFillByManyGoroutines(t *testing.T) {
	p, err := loadPi05(t).Prompt("lift it")
	if err != nil {
		t.Fatal(err)
	}
	p.remember()
	p.whole = true
	want, mask := make([]int64, 200), make([]bool, 200)
	if err := p.Fill(want, mask, []float32{0.5}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dst, mask := make([]int64, 200), make([]bool, 200)
			for range 200 {
				if err := p.Fill(dst, mask, []float32{0.5}); err != nil || !slices.Equal(dst, want) {
					t.Errorf("Fill beside others = %v, %v, want %v", dst, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

// The longest tasks of the worst texts, in which all symbols merge to one. Four times the text may
// take a little more than four times as long, but not sixteen times; a ratio is meaningful on any
// machine and under the race detector.
func TestLongTasksAreQuick(t *testing.T) {
	rttest.RealTime(t)
	toks := map[string]*Tokenizer{
		"smolvlm.json": load(t, "tokenizer.json", "smolvlm.json", smolSpec),
		"gemma.json":   load(t, "tokenizer.json", "gemma.json", gemmaSpec),
		"gemma.model":  load(t, "tokenizer.model", "gemma.model", gemmaSpec),
	}
	for name, tok := range toks {
		for _, part := range []string{"a", "e", "-", " ", "\n", "<", "1", "ab", "the ", "▁", "的", "\u0301", "🤖",
			"<image"} {
			text := strings.Repeat(part, MaxTaskBytes/len(part))
			quarter := text[:len(part)*(len(text)/len(part)/4)]
			whole, fourth := time.Hour, time.Hour
			for range 10 {
				start := time.Now()
				tok.whole(quarter)
				middle := time.Now()
				tok.whole(text)
				fourth, whole = min(fourth, middle.Sub(start)), min(whole, time.Since(middle))
			}
			if whole > 9*fourth {
				t.Errorf("%s: %d bytes of %q take %v and %d bytes %v, want at most nine times as long",
					name, len(quarter), part, fourth, len(text), whole)
			}
		}
	}
}
