package chunk

import (
	"fmt"
	"strings"
)

// Aggregate says what becomes of a step that the queue and a new chunk both
// predict.
//
// Source: lerobot async_inference/configs.py.
type Aggregate uint8

// The aggregate functions, as --aggregate names them.
const (
	WeightedAverage Aggregate = iota // 0.3 old + 0.7 new
	LatestOnly                       // new
	Average                          // half and half
	Conservative                     // 0.7 old + 0.3 new
	numAggregates
)

var aggregates = [numAggregates]struct {
	name     string
	old, new float32
}{{"weighted_average", 0.3, 0.7}, {"latest_only", 0, 1}, {"average", 0.5, 0.5}, {"conservative", 0.7, 0.3}}

// AggregateNames lists the aggregate functions, the default first.
var AggregateNames = func() (names []string) {
	for _, a := range aggregates {
		names = append(names, a.name)
	}
	return names
}()

// AggregateByName returns the function called name.
func AggregateByName(name string) (Aggregate, error) {
	for i, a := range aggregates {
		if a.name == name {
			return Aggregate(i), nil
		}
	}
	return 0, fmt.Errorf("chunk: no aggregate function %q, want %s", name, strings.Join(AggregateNames, ", "))
}

func (a Aggregate) String() string {
	if a >= numAggregates {
		return "unknown"
	}
	return aggregates[a].name
}

// blend writes the aggregate of both rows over the old one.
//
//rt:noalloc
func (a Aggregate) blend(old, fresh []float32) {
	w := &aggregates[a]
	if a == LatestOnly { // 0 * old would keep a zero's sign
		copy(old, fresh)
		return
	}
	for j, v := range fresh {
		// The conversions keep arm64 from fusing the products into the sum.
		old[j] = float32(w.old*old[j]) + float32(w.new*v)
	}
}
