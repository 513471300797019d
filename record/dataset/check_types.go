package dataset

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// whole maps the integer types that the check knows to their least and largest numbers.
var whole = map[string][2]float64{
	"int8":    {math.MinInt8, math.MaxInt8},
	"int16":   {math.MinInt16, math.MaxInt16},
	"int32":   {math.MinInt32, math.MaxInt32},
	int64Type: {math.MinInt64, math.MaxInt64},
	"uint8":   {0, math.MaxUint8},
}

// outside returns the index of the first number that is not of the feature's type; -1 if there is
// no such number.
func (f Feature) outside(numbers []float64) int {
	limits, ok := whole[f.DType]
	if !ok {
		return -1
	}
	return slices.IndexFunc(numbers, func(v float64) bool {
		return v != math.Trunc(v) || v < limits[0] || v > limits[1] // NaN fails the first comparison
	})
}

// loaded lists the types that LeRobot's loader (Hugging Face's datasets library) supports. timed
// lists the beginnings of types with a unit, such as timestamp[ns].
var (
	loaded = []string{
		float32Type, int64Type, boolType, videoType,
		"image", "string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null",
		"int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float", "float16", "float64",
		"double", "date32", "date64",
	}
	timed = []string{"time32[", "time64[", "timestamp[", "duration[", "decimal128(", "decimal256("}
)

// annotations are the features of lerobot-annotate, whose types the loader knows by their names.
var annotations = []string{"language_persistent", "language_events"}

// checkTypes checks that the loader can decode each feature.
func (c *checker) checkTypes() {
	for _, name := range slices.Sorted(maps.Keys(c.info.Features)) {
		f := c.info.Features[name]
		known := slices.Contains(loaded, f.DType) || slices.Contains(annotations, name) ||
			slices.ContainsFunc(timed, func(unit string) bool { return strings.HasPrefix(f.DType, unit) })
		switch {
		case !known:
			c.find("%s: the dtype of %s is %q, which the loader does not know", infoPath, name, f.DType)
		case f.DType == "string" && f.size() > 1:
			c.find("%s: %s are texts of the shape %v: the loader takes one text for a frame", infoPath, name, f.Shape)
		case !numeric(f.DType) && (name == actionName || name == stateName || slices.Contains(bookkeeping, name)) &&
			!strings.HasPrefix(f.DType, "float") && f.DType != "double":
			c.find("%s: the dtype of %s is %q, want numbers", infoPath, name, f.DType)
		}
	}
}

func numeric(dtype string) bool {
	return slices.Contains([]string{float32Type, int64Type, boolType, "float64", "int32", "int16", "int8", "uint8"},
		dtype)
}
