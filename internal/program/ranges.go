package program

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// rangeTag on a flag contains its valid numbers or times, such as 1..100. >0..1 excludes 0, 0..<2 excludes 2,
// 20ms.. and ..252 have one bound, and 0,1s..24h also allows the single value 0. A text after a semicolon
// becomes the end of the error message. A pointer or a list without a value is not checked.
const rangeTag = "range"

// interval is a part of a range.
type interval struct {
	low, high       string     // the bounds as in the tag; empty: there is no bound
	lowest, highest *big.Float // precise enough for years in nanoseconds and for every float64
	above, below    bool       // the bound itself is not part of the range
	single          bool
}

// flagRange is a parsed tag.
type flagRange struct {
	parts  []interval
	advice string
}

// parseRange parses a tag for a flag of type t. It panics on an error, because the tag is source
// code.
func parseRange(tag string, t reflect.Type) flagRange {
	text, advice, _ := strings.Cut(tag, ";")
	r := flagRange{advice: strings.TrimSpace(advice)}
	for part := range strings.SplitSeq(text, ",") {
		var p interval
		low, high, isInterval := strings.Cut(strings.TrimSpace(part), "..")
		if !isInterval {
			high, p.single = low, true
		}
		p.low, p.above = strings.CutPrefix(low, ">")
		p.high, p.below = strings.CutPrefix(high, "<")
		p.lowest, p.highest = bound(p.low, -1, t), bound(p.high, +1, t)
		r.parts = append(r.parts, p)
	}
	return r
}

// bound parses one end of an interval; for an empty text it returns infinity with the sign of direction.
func bound(text string, direction int, t reflect.Type) *big.Float {
	if text == "" {
		return new(big.Float).SetInf(direction < 0)
	}
	if t == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			panic(err)
		}
		return new(big.Float).SetInt64(int64(d))
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return big.NewFloat(v)
}

// holds reports whether v is inside the range. A nil v is a number that is not finite, and so is outside.
func (r flagRange) holds(v *big.Float) bool {
	return v != nil && slices.ContainsFunc(r.parts, func(p interval) bool {
		low, high := v.Cmp(p.lowest), v.Cmp(p.highest)
		return (low > 0 || low == 0 && !p.above) && (high < 0 || high == 0 && !p.below)
	})
}

// String returns the range in the words of an error.
func (r flagRange) String() string {
	var texts []string
	for _, p := range r.parts {
		low, high := p.low, "at most "+p.high
		if p.above {
			low = "more than " + p.low
		}
		if p.below {
			high = "less than " + p.high
		}
		switch {
		case p.single:
			texts = append(texts, p.low)
		case p.low == "":
			texts = append(texts, high)
		case p.high == "" && p.above:
			texts = append(texts, low)
		case p.high == "":
			texts = append(texts, low+" or more")
		case p.above || p.below:
			texts = append(texts, low+" and "+high)
		default:
			texts = append(texts, p.low+" to "+p.high)
		}
	}
	return strings.Join(texts, ", or ")
}

// checkRanges refuses values outside the ranges of the flags that the command uses.
func checkRanges(ctx *kong.Context) error {
	selected := cmp.Or(ctx.Selected(), ctx.Model.Node)
	uses, limited := usesOf(selected)
	for node := selected; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if !f.Tag.Has(rangeTag) || limited && node == ctx.Model.Node && uses[f.Name] == unused {
				continue
			}
			if err := checkRange(f, f.Target); err != nil {
				if !given(ctx, f.Name) {
					err = fmt.Errorf("%w (in a variable or the file of --config)", err)
				}
				return err
			}
		}
	}
	return nil
}

func checkRange(f *kong.Flag, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return checkRange(f, v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			if err := checkRange(f, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}
	r := parseRange(f.Tag.Get(rangeTag), v.Type())
	if r.holds(number(v)) {
		return nil
	}
	advice := r.advice
	if advice != "" {
		advice = "; " + advice
	}
	return exit.Errorf(exit.Usage, "--%s is %v, want %v%s", f.Name, v.Interface(), r, advice)
}

func number(v reflect.Value) *big.Float {
	switch {
	case v.CanInt():
		return new(big.Float).SetInt64(v.Int())
	case v.CanUint():
		return new(big.Float).SetUint64(v.Uint())
	case math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0): // panics when the tag is on a field of another type
		return nil
	}
	return big.NewFloat(v.Float())
}
