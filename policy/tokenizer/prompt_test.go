package tokenizer

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestNewlineIsAddedOnce(t *testing.T) {
	spec := gemmaSpec
	spec.Template = "{task}\n"
	tok := load(t, "tokenizer.json", "gemma.json", spec)
	without, err1 := tok.encode("lift it")
	with, err2 := tok.encode("lift it\n")
	two, err3 := tok.encode("lift it\n\n")
	rttest.Do(t, errors.Join(err1, err2, err3))
	if !slices.Equal(without, with) || slices.Equal(with, two) {
		t.Errorf("ids of a task without, with one and with two newlines: %v, %v, %v, want the first two the same",
			without, with, two)
	}
}

func TestFillPadsOnTheRight(t *testing.T) {
	spec := smolSpec
	spec.MaxLen = 8
	p := rttest.Must(load(t, "tokenizer.json", "smolvlm.json", spec).Prompt("<image>12"))(t)
	dst, mask := make([]int64, 8), []bool{true, true, true, true, true, true, true, true}
	rttest.Do(t, p.Fill(dst, mask, nil))
	checkFilled(t, "<image>12", dst, mask, p.task, 2)
	if len(p.task) != 3 || p.task[0] != 6038 {
		t.Errorf("ids of <image>12 = %v, want three, the first 6038", p.task)
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
	rttest.Fails(t, rttest.Err(tok.Prompt(strings.Repeat("a", maxTaskBytes))), "tokens") // Prompt of the longest text
	// Prompt of too many bytes
	rttest.Fails(t, rttest.Err(tok.Prompt(strings.Repeat("a", maxTaskBytes+1))), "4097 bytes, want at most 4096")
}

// Prompt refuses a task that fits only with short numbers of the state, because such a prompt would fail later,
// while the arm moves.
func TestPromptIsRefusedByItsLongestState(t *testing.T) {
	tok := withState(t, loadPi05(t), State{Mode: "identity"}, 6)
	p := rttest.Must(tok.Prompt("lift it"))(t)
	dst, mask := make([]int64, pi05Spec.MaxLen), make([]bool, pi05Spec.MaxLen)
	rttest.Do(t, p.Fill(dst, mask, []float32{1, 1, 1, 1, 1, 1})) // every value is in bin 255
	tok.spec.MaxLen = slices.Index(mask, false)
	if _, err := tok.Prompt("lift it"); err != nil {
		t.Errorf("Prompt of just max_len tokens: %v", err)
	}
	tok.spec.MaxLen--
	const want = "tokens with the longest state of 6 values, this policy reads at most"
	rttest.Fails(t, rttest.Err(tok.Prompt("lift it")), want) // this task is one token too long
}

func TestTaskThatIsNotText(t *testing.T) {
	tok := load(t, "tokenizer.json", "gemma.json", gemmaSpec)
	for _, task := range []string{"\xff", "\xef", "a\xc3", "\xed\xa0\x80", "ok \xf0\x9f\xa4"} {
		rttest.Fails(t, rttest.Err(tok.encode(task)), "not UTF-8")
	}
	if _, err := tok.encode("\ufffd"); err != nil {
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
	p := rttest.Must(loadPi05(t).Prompt("lift it"))(t)
	n := pi05Spec.MaxLen
	for _, tt := range []struct {
		name   string
		tokens int
		mask   int
		state  []float32
		want   error
	}{
		{"tokens of another length", n - 1, n, []float32{0}, errSize},
		{"a mask of another length", n, n + 1, []float32{0}, errSize},
		{"no state", n, n, nil, errSize},
		{"two values", n, n, []float32{0, 0}, errSize},
		{"not a number", n, n, []float32{float32(math.NaN())}, errNumber},
		{"right", n, n, []float32{0}, nil},
	} {
		rttest.FailsAs(t, p.Fill(make([]int64, tt.tokens), make([]bool, tt.mask), tt.state), tt.want)
	}
	p.t.spec.MaxLen = 5
	rttest.FailsAs(t, p.Fill(make([]int64, 5), make([]bool, 5), []float32{0}), errLong) // a prompt that is too long
}

// A prompt with the state has the ids of its whole text, even if a token crosses the border of two parts, as with
// SmolVLM2's pre-tokenizer.
func TestByteLevelPromptWithAState(t *testing.T) {
	spec := pi05Spec
	spec.Kind, spec.BOSID = bpe, nil
	tok := withState(t, load(t, "tokenizer.json", "smolvlm.json", spec), State{Mode: "identity"}, 2)
	p := rttest.Must(tok.Prompt("lift it"))(t)
	dst, mask := make([]int64, 200), make([]bool, 200)
	rttest.Do(t, p.Fill(dst, mask, []float32{0, -3}))
	plain := *tok
	plain.spec = smolSpec
	want := rttest.Must(plain.encode("Task: lift it, State: 128 -1;\nAction: "))(t)
	checkFilled(t, "whole", dst, mask, want, 0)
}

func TestFillDoesNotAllocate(t *testing.T) {
	tok := withState(t, loadPi05(t), State{Mode: "quantiles", A: make([]float32, 6), Span: []float32{1, 1, 1, 1, 1, 1}},
		6)
	p := rttest.Must(tok.Prompt("put the red block in slot 12 🤖"))(t)
	dst := make([]int64, 200)
	mask := make([]bool, 200)
	state := []float32{-1, 0, 0.3, 0.5, 0.9, 2}
	rttest.NoAllocs(t, "Fill allocates %v times, want 0", 100, func() {
		state[2] += 1e-3
		rttest.Do(t, p.Fill(dst, mask, state))
	})
}

func TestFillByManyGoroutines(t *testing.T) {
	p := rttest.Must(loadPi05(t).Prompt("lift it"))(t)
	want, mask := make([]int64, 200), make([]bool, 200)
	rttest.Do(t, p.Fill(want, mask, []float32{0.5}))
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

// The worst texts are those whose symbols all merge into one. The tasks are as long as allowed. Four times the text may
// take a little more than four times as long, but not sixteen times. The test compares CPU times of the thread, whose
// ratio is meaningful on any machine and under the race detector.
func TestLongTasksAreQuick(t *testing.T) {
	rttest.RealTime(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	toks := map[string]*Tokenizer{
		"smolvlm.json": load(t, "tokenizer.json", "smolvlm.json", smolSpec),
		"gemma.json":   load(t, "tokenizer.json", "gemma.json", gemmaSpec),
		"gemma.model":  load(t, "tokenizer.model", "gemma.model", gemmaSpec),
	}
	for name, tok := range toks {
		for _, part := range []string{"a", "e", "-", " ", "\n", "<", "1", "ab", "the ", "▁", "的", "\u0301", "🤖",
			"<image"} {
			text := strings.Repeat(part, maxTaskBytes/len(part))
			quarter := text[:len(part)*(len(text)/len(part)/4)]
			whole, fourth := time.Hour, time.Hour
			for range 10 {
				start := rt.ThreadCPU()
				tok.whole(quarter)
				middle := rt.ThreadCPU()
				tok.whole(text)
				fourth, whole = min(fourth, middle-start), min(whole, rt.ThreadCPU()-middle)
			}
			if whole > 9*fourth {
				t.Errorf("%s: %d bytes of %q take %v and %d bytes %v, want at most nine times as long",
					name, len(quarter), part, fourth, len(text), whole)
			}
		}
	}
	tok, text := withState(t, loadPi05(t), State{Mode: "identity"}, 6), strings.Repeat("a ", maxTaskBytes/2)
	for tok.spec.MaxLen = 200; tok.spec.MaxLen <= maxLen; tok.spec.MaxLen += maxLen - 200 { // too long only for 200
		start := rt.ThreadCPU()
		tok.whole(text)
		middle := rt.ThreadCPU()
		_, err := tok.Prompt(text)
		once, took := middle-start, rt.ThreadCPU()-middle
		if took > 50*once || (err == nil) != (tok.spec.MaxLen > 200) {
			t.Errorf("tokenised in %v, read with max_len %d in %v, want at most 50 times as long; %v", once,
				tok.spec.MaxLen, took, err)
		}
	}
}
