package chunk

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// aggregate is the rule for a step that the queue and a new chunk both predict: a weighted mean of
// the two actions.
//
// Source: lerobot async_inference/configs.py; the temporal weights are those of LeRobot's ACTTemporalEnsembler with the
// coefficient -decay, because it numbers the predictions for a step from the oldest.
type aggregate struct {
	old, new float32
	decay    float64 // decay of the weight per row; 0: the fields old and new are the shares
}

// Aggregates lists the values of Config.Aggregate that are names, the default first. Two more values have a number. In
// weighted:SHARE it is the share of the older action (0 to 1). In temporal:DECAY row i of a chunk has the weight
// exp(-DECAY*i), so that older predictions weigh more if DECAY is below 0.
var Aggregates = []string{"weighted_average", "latest_only", "average", "conservative"}

var shares = []float32{0.3, 0, 0.5, 0.7} // share of the older action for each name in Aggregates

const (
	weighted = "weighted:"
	temporal = "temporal:"

	minDecay = -1
	maxDecay = 10 // at this decay, row 1 weighs 1/22000 of row 0
)

// CheckAggregate refuses a text that is no value of Config.Aggregate.
func CheckAggregate(text string) error {
	_, err := parseAggregate(text)
	return err
}

// parseAggregate returns the rule that the text names; the empty text is the default.
func parseAggregate(text string) (*aggregate, error) {
	text = cmp.Or(text, Aggregates[0])
	for i, name := range Aggregates {
		if text == name {
			return &aggregate{old: shares[i], new: 1 - shares[i]}, nil
		}
	}
	if share, ok := strings.CutPrefix(text, weighted); ok {
		v, err := strconv.ParseFloat(share, 32)
		if err == nil && v >= 0 && v <= 1 {
			return &aggregate{old: float32(v), new: 1 - float32(v)}, nil
		}
		return nil, fmt.Errorf("chunk: aggregate %q, want %sSHARE with the older action's share, 0 to 1", text,
			weighted)
	}
	if decay, ok := strings.CutPrefix(text, temporal); ok {
		v, err := strconv.ParseFloat(decay, 64)
		if err == nil && v >= minDecay && v <= maxDecay && v != 0 {
			return &aggregate{decay: v}, nil
		}
		return nil, fmt.Errorf(
			"chunk: aggregate %q, want %sDECAY with a decay for each row, %d to %d and not 0",
			text, temporal, minDecay, maxDecay)
	}
	return nil, fmt.Errorf("chunk: no aggregate function %q, want %s, %sSHARE or %sDECAY", text,
		strings.Join(Aggregates, ", "), weighted, temporal)
}

// weight returns the weight, at most 1, of a row. The parameter rows is the number of rows in the row's chunk. The
// weight is 0 if the rule has no decay.
//
//rt:noalloc
func (a *aggregate) weight(row, rows int) float32 {
	if a.decay == 0 {
		return 0
	}
	if a.decay < 0 {
		row -= rows - 1
	}
	return float32(math.Exp(-a.decay * float64(row)))
}

// shares returns the shares of two actions in their mean. The result old is the share of the queue's action, and fresh
// is the share of a new chunk's action in the given row. The parameter sum is the total weight of the predictions in
// the queue's action, and the result both is the total weight of the predictions in the mean.
//
//rt:noalloc
func (a *aggregate) shares(sum float32, row, rows int) (old, fresh, both float32) {
	if a.decay == 0 {
		return a.old, a.new, 0
	}
	w := a.weight(row, rows)
	if both = sum + w; both == 0 { // the weights of the last rows round to 0
		return 0, 1, 0
	}
	return sum / both, w / both, both
}

// blendRow replaces old by share*old + rest*fresh.
//
//rt:noalloc
func blendRow(old, fresh []float32, share, rest float32) {
	if share == 0 { // 0*old may be -0 or NaN
		copy(old, fresh)
		return
	}
	for j, v := range fresh {
		// The conversions keep arm64 from fusing the products into the sum.
		old[j] = float32(share*old[j]) + float32(rest*v)
	}
}
