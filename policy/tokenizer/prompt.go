package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// borders are the characters at the joints of a prompt with a state: the head ends, a value begins
// with a space, and after a value's last digit comes the next value or the tail.
type borders struct{ before, after string }

func newBorders(spec *Spec) borders {
	if spec.State == nil {
		return borders{}
	}
	head, tail, _ := strings.Cut(spec.Template, " "+stateMark)
	last, _ := utf8.DecodeLastRuneInString(head)
	first, _ := utf8.DecodeRuneInString(strings.ReplaceAll(tail, " ", "▁"))
	return borders{string(last), string(first)}
}

// closed reports whether no token crosses a border: no text that may become a token contains the
// two characters beside a border next to each other, and each of these characters has a token. A
// merge across a border would produce such a text, so the parts can be tokenised one by one, for
// every state.
func (b borders) closed(runes map[rune]int32, texts func(func(string) bool)) bool {
	if b.before == "" {
		return false
	}
	pairs := []string{b.before + "▁"}
	for d := range 10 {
		pairs = append(pairs, strconv.Itoa(d)+"▁", strconv.Itoa(d)+b.after)
	}
	for _, r := range strings.Join(pairs, "") {
		if _, ok := runes[r]; !ok {
			return false
		}
	}
	for text := range texts {
		if slices.ContainsFunc(pairs, func(p string) bool { return strings.Contains(text, p) }) {
			return false
		}
	}
	return true
}

// Prompt is the text input of a policy for one task. Many goroutines may use it.
type Prompt struct {
	t    *Tokenizer
	head []int64 // all ids, or those before the state
	tail []int64 // those after it

	values [Bins + 1][]int64 // the tokens of each value from -1 on, with its space

	// Where tokens may cross the borders of these parts, the whole text is tokenised on each
	// request, in this memory.
	mu            sync.Mutex
	whole         bool
	before, after string
	text          []byte
	ids           []int64
	scratch       scratch
}

// Errors of Fill.
var (
	errSize   = errors.New("tokenizer: want tokens and mask of max_len and all values of the state")
	errNumber = errors.New("tokenizer: the state has a value that is not a number")
	errLong   = errors.New("tokenizer: this state makes the prompt longer than max_len: want a shorter task")
)

// Prompt tokenises a task. It refuses a task whose prompt may become longer than max_len with some
// state; LeRobot would cut its end.
func (t *Tokenizer) Prompt(task string) (*Prompt, error) {
	if t.spec.State == nil {
		ids, err := t.Encode(task)
		return &Prompt{t: t, head: ids}, err
	}
	text, err := t.spec.text(task)
	if err != nil {
		return nil, err
	}
	p := &Prompt{t: t}
	// The task may contain the words of the template: the last of them belong to the template.
	at := strings.LastIndex(text, " "+stateMark)
	p.before, p.after = text[:at], text[at+len(" "+stateMark):]
	p.head = t.whole(p.before)
	p.tail = p.plain(p.after)
	longest := 0
	for i := range p.values {
		p.values[i] = p.plain(" " + strconv.Itoa(i-1))
		longest = max(longest, len(p.values[i]))
	}
	dim := t.spec.State.dim
	if n := len(p.head) + dim*longest + len(p.tail); n > t.spec.MaxLen {
		return nil, tooLong(n, t.spec.MaxLen, fmt.Sprintf(" with the longest state of %d values", dim))
	}
	p.remember()
	p.whole = !t.joins || !p.agrees()
	if !p.whole {
		p.text = nil
		p.ids = nil
		p.scratch = scratch{}
	}
	return p, nil
}

// remember allocates the memory for a whole prompt.
func (p *Prompt) remember() {
	size := len(p.before) + p.t.spec.State.dim*len(" 255") + len(p.after)
	p.text = make([]byte, 0, size)
	p.ids = make([]int64, 0, 3*size+1)
	p.scratch = room(size)
}

// plain returns the ids of a part that does not begin the prompt.
func (p *Prompt) plain(text string) []int64 {
	var s scratch
	return p.t.append(nil, []byte(text), &s)
}

// agrees compares the parts with the whole on a few states, as a check of the proof in borders.
func (p *Prompt) agrees() bool {
	random := rand.New(rand.NewPCG(1, 2))
	state := make([]int, p.t.spec.State.dim)
	for range 16 {
		for i := range state {
			state[i] = random.IntN(Bins+1) - 1
		}
		p.begin()
		parts := slices.Clone(p.head)
		for _, bin := range state {
			p.value(bin)
			parts = append(parts, p.values[bin+1]...)
		}
		if !slices.Equal(append(parts, p.tail...), p.end()) {
			return false
		}
	}
	return true
}

// begin, value and end tokenise a whole prompt.
//
//rt:noalloc
func (p *Prompt) begin() { p.text = append(p.text[:0], p.before...) }

//rt:noalloc
func (p *Prompt) value(bin int) {
	p.text = strconv.AppendInt(append(p.text, ' '), int64(bin), 10)
}

//rt:noalloc
func (p *Prompt) end() []int64 {
	p.text = append(p.text, p.after...)
	p.ids = p.t.append(p.t.start(p.ids[:0]), p.text, &p.scratch)
	return p.ids
}

// Fill writes the prompt's tokens and the mask of the valid ones, both of max_len. The state is in
// the robot's units; a policy without the state in its prompt ignores it.
//
//rt:noalloc
func (p *Prompt) Fill(dst []int64, mask []bool, state []float32) error {
	spec := &p.t.spec
	if len(dst) != spec.MaxLen || len(mask) != spec.MaxLen || spec.State != nil && len(state) != spec.State.dim {
		return errSize
	}
	n, err := p.fill(dst, state)
	if err != nil {
		return err
	}
	for i := range dst {
		mask[i] = i < n
		if i >= n {
			dst[i] = spec.PadID
		}
	}
	return nil
}

// fill writes the tokens and returns their number.
//
//rt:noalloc
func (p *Prompt) fill(dst []int64, state []float32) (n int, err error) {
	n = copy(dst, p.head)
	if p.t.spec.State == nil {
		return n, nil
	}
	if p.whole {
		return p.fillWhole(dst, state)
	}
	for i, value := range state {
		bin, ok := p.t.spec.State.bin(i, value)
		if !ok {
			return 0, errNumber
		}
		n += copy(dst[n:], p.values[bin+1]) // Prompt has checked that it fits
	}
	return n + copy(dst[n:], p.tail), nil
}

//rt:noalloc
func (p *Prompt) fillWhole(dst []int64, state []float32) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin()
	for i, value := range state {
		bin, ok := p.t.spec.State.bin(i, value)
		if !ok {
			return 0, errNumber
		}
		p.value(bin)
	}
	ids := p.end()
	if len(ids) > len(dst) {
		return 0, errLong
	}
	return copy(dst, ids), nil
}
