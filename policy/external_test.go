package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"google.golang.org/protobuf/encoding/protowire"
)

// located returns a tensor whose values are in a file.
func located(name string) []byte {
	return field(nil, tensorExternal, field(field(nil, entryKey, []byte(externalName)), entryValue, []byte(name)))
}

// scan writes a graph to a file and returns the files that the graph names.
func scan(t testing.TB, model []byte) ([]string, error) {
	t.Helper()
	path := rttest.WriteFile(t, t.TempDir(), graphName, model)
	return externalFiles(path)
}

// Goal: the scan finds the files of all tensors: in the graph's own list, in nodes, in the graphs inside nodes, in
// functions and in sparse tensors.
func TestExternalFilesOfEveryPlace(t *testing.T) {
	inAttribute := func(number protowire.Number, value []byte) []byte {
		return field(nil, graphNode, field(nil, 5, field(nil, number, value)))
	}
	inner := field(nil, graphTensor, located("inner"))
	deep := inAttribute(6, inAttribute(11, inner))
	graph := slices.Concat(
		field(nil, graphTensor, located("plain")), field(nil, graphTensor, located("plain")),
		field(nil, 15, field(nil, 1, located("sparse"))), field(nil, 15, field(nil, 2, located("indices"))),
		inAttribute(5, located("constant")), inAttribute(10, located("list")),
		inAttribute(22, field(nil, 1, located("sparse attribute"))),
		deep, field(nil, graphTensor, field(nil, tensorRaw, []byte(strings.Repeat("x", 1<<20)))),
		field(nil, graphTensor, located("last")),
	)
	function := field(nil, 7, field(nil, 5, field(nil, 5, located("function"))))
	model := slices.Concat(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 9),
		field(nil, modelGraph, graph), field(nil, 25, function))
	got, err := scan(t, model)
	want := []string{"plain", "sparse", "indices", "constant", "list", "sparse attribute", "inner", "last", "function"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("externalFiles = %q, %v, want %q", got, err, want)
	}
	for _, cut := range []int{1, 100, len(model) - 1} {
		if got, err := scan(t, model[:cut]); !errors.Is(err, errNoGraph) && err == nil {
			t.Errorf("the first %d bytes give %q, %v, want an error", cut, got, err)
		}
	}
}

// Property: no bytes crash the scan, and an accepted graph names each file once, within the limit.
func FuzzExternalFiles(f *testing.F) {
	f.Add(field(nil, modelGraph, field(nil, graphTensor, located("weights"))))
	f.Add([]byte{0x3b, 0x3c})
	f.Add([]byte("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, model []byte) {
		got, err := scan(t, model)
		sorted := slices.Clone(got)
		slices.Sort(sorted)
		if len(got) > maxLocations || len(slices.Compact(sorted)) != len(got) || err != nil && got != nil {
			t.Fatalf("externalFiles = %q, %v", got, err)
		}
	})
}
