package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Prompt is the text input of a policy for one task. Many goroutines may use it.
type Prompt struct {
	t    *Tokenizer
	task []int64 // all ids; only for a prompt without the state

	// The memory in which each request encodes a prompt with the state.
	mu            sync.Mutex
	before, after string // the text around the state
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

// Prompt encodes a task. It refuses a task whose prompt could become longer than max_len with some state, because
// LeRobot would cut off its end.
func (t *Tokenizer) Prompt(task string) (*Prompt, error) {
	if t.spec.State == nil {
		ids, err := t.encode(task)
		return &Prompt{t: t, task: ids}, err
	}
	text, err := t.spec.text(task)
	if err != nil {
		return nil, err
	}
	// The task may itself contain " "+stateMark. The last occurrence is that of the template.
	at := strings.LastIndex(text, " "+stateMark)
	dim := t.spec.State.dim
	p := &Prompt{t: t, before: text[:at], after: text[at+len(" "+stateMark):]}
	size := len(p.before) + dim*len(" 255") + len(p.after)
	p.text = make([]byte, 0, size)
	p.ids = make([]int64, 0, 3*size+1)
	p.scratch = room(size)
	tokens := func(before string, bin int) int {
		p.before = before
		p.begin()
		for range dim {
			p.value(bin)
		}
		return len(p.end())
	}
	// The state does not change the tokens of a long task's beginning. Fill would return errLong if it did.
	end := p.before[max(0, len(p.before)-128):]
	longest, more := tokens(p.before, bins-1), 0
	first := tokens(end, bins-1)
	for bin := bins - 2; bin >= -1 && longest+more <= t.spec.MaxLen; bin-- {
		more = max(more, tokens(end, bin)-first)
	}
	longest += more
	p.before = text[:at]
	if longest > t.spec.MaxLen {
		return nil, tooLong(longest, t.spec.MaxLen, fmt.Sprintf(" with the longest state of %d values", dim))
	}
	return p, nil
}

// begin, value and end encode the three parts of a prompt with the state.
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

// Fill writes the prompt's tokens to dst and marks them in mask; both have max_len elements. The state is in the
// robot's units; a policy without the state in its prompt ignores it.
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
	if p.t.spec.State == nil {
		return copy(dst, p.task), nil
	}
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
