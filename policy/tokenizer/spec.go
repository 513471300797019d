package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kinds of tokenizers.
const (
	bpe           = "bpe"           // byte-level BPE, in tokenizer.json
	SentencePiece = "sentencepiece" // Gemma's BPE, in tokenizer.json or tokenizer.model
)

// maxLen is the longest prompt that bundle.json may declare, in tokens.
const maxLen = 4096

// bins is the number of parts of the range from -1 to 1 in Pi0.5's prompt.
const bins = 256

// Spec is bundle.json's description of the tokenizer.
type Spec struct {
	Kind   string `json:"kind"`
	MaxLen int    `json:"max_len"`          // length of the graph's input in tokens, with padding
	PadID  int64  `json:"pad_id"`           // the token that fills the end of the input
	BOSID  *int64 `json:"bos_id,omitempty"` // the token before the text; absent: no token

	// Template is the prompt with {task} in it: "{task}\n" adds a newline to a task that does not
	// end with one. Pi0.5's has {state} too, after a space.
	Template string `json:"template"`

	// Clean strips the task and replaces its underscores and newlines by spaces.
	Clean bool `json:"clean,omitempty"`

	State *State `json:"state,omitempty"`
}

// State describes the robot's state in Pi0.5's prompt: each value is normalised and written as the
// number of its bin.
type State struct {
	Bins int    `json:"bins"` // 256
	Mode string `json:"mode"` // quantiles and min_max: 2*(s-a)/span-1; mean_std: (s-a)/span; identity: s

	A    []float32 `json:"a,omitempty"`    // the lower quantile, the minimum or the mean of each value
	B    []float32 `json:"b,omitempty"`    // the upper quantile, the maximum or the deviation; not used by this program
	Span []float32 `json:"span,omitempty"` // the divisor: b-a, or b plus its epsilon

	dim int // number of values of the state, set by Check
}

const (
	taskMark  = "{task}"
	stateMark = "{state}"
)

// Check refuses a spec that does not fit a policy whose state has stateDim values, and stores stateDim in s.
func (s *Spec) Check(stateDim int) error {
	switch {
	case s.Kind != bpe && s.Kind != SentencePiece:
		return fmt.Errorf("tokenizer: kind is %q, want %s or %s", s.Kind, bpe, SentencePiece)
	case s.MaxLen < 1 || s.MaxLen > maxLen:
		return fmt.Errorf("tokenizer: max_len is %d, want 1 to %d", s.MaxLen, maxLen)
	case s.PadID < 0 || s.PadID > math.MaxInt32:
		return fmt.Errorf("tokenizer: pad_id is %d, want a token's id", s.PadID)
	case s.BOSID != nil && (*s.BOSID < 0 || *s.BOSID > math.MaxInt32):
		return fmt.Errorf("tokenizer: bos_id is %d, want a token's id, or none", *s.BOSID)
	case strings.Count(s.Template, taskMark) != 1 || len(s.Template) > maxTaskBytes:
		return fmt.Errorf("tokenizer: template is %.80q, want %s in it once", s.Template, taskMark)
	}
	if s.State == nil {
		if strings.Contains(s.Template, stateMark) {
			return fmt.Errorf("tokenizer: template has %s, but there is no state", stateMark)
		}
		return nil
	}
	between, tail, _ := strings.Cut(s.Template[strings.Index(s.Template, taskMark)+len(taskMark):], stateMark)
	if strings.Count(s.Template, stateMark) != 1 || tail == "" || len(between) < 2 || !strings.HasSuffix(between, " ") {
		return fmt.Errorf("tokenizer: template is %.80q, want %s after %s, text and a space between them, and text "+
			"after", s.Template, stateMark, taskMark)
	}
	return s.State.check(stateDim)
}

func (s *State) check(stateDim int) error {
	s.dim = stateDim
	if stateDim < 1 {
		return errors.New("tokenizer: state of no values, want at least one")
	}
	if s.Bins != bins {
		return fmt.Errorf("tokenizer: state.bins is %d, want %d", s.Bins, bins)
	}
	switch s.Mode {
	case "identity":
		return nil
	case "quantiles", "min_max", "mean_std":
	default:
		return fmt.Errorf("tokenizer: state.mode is %q, want quantiles, min_max, mean_std or identity", s.Mode)
	}
	if len(s.A) != stateDim || len(s.Span) != stateDim || len(s.B) != 0 && len(s.B) != stateDim {
		return fmt.Errorf("tokenizer: state has %d a, %d b and %d span, want %d of each, as many as the state's values",
			len(s.A), len(s.B), len(s.Span), stateDim)
	}
	if least := slices.Min(s.Span); least <= 0 {
		return fmt.Errorf("tokenizer: state.span has a %v, want the divisor with its epsilon, which is above 0", least)
	}
	return nil
}

// text returns the template with the task in place of {task}. It leaves {state} as it is.
func (s *Spec) text(task string) (string, error) {
	if err := checkTask(task); err != nil {
		return "", err
	}
	if s.Clean {
		task = strings.NewReplacer("_", " ", "\n", " ").Replace(strip(task))
	}
	before, behind, _ := strings.Cut(s.Template, taskMark)
	if behind == "\n" && strings.HasSuffix(task, "\n") {
		behind = ""
	}
	return before + task + behind, nil
}

// bin returns the bin of value i of the state, from -1 to 255. ok is false for NaN. Each operation is rounded to
// float32, as with LeRobot's tensors.
//
//rt:noalloc
func (s *State) bin(i int, value float32) (bin int, ok bool) {
	x := value
	switch s.Mode {
	case "quantiles", "min_max":
		x = float32(float32(2*float32(value-s.A[i]))/s.Span[i]) - 1
	case "mean_std":
		x = float32(value-s.A[i]) / s.Span[i]
	}
	switch {
	case x < -1:
		return -1, true
	case x >= 1:
		return bins - 1, true
	case x != x:
		return 0, false
	}
	// The product x*128 is exact. The formula (x+1)*128 would round a small negative number up into the next bin.
	return int(math.Floor(float64(x)*(bins/2))) + bins/2, true
}
