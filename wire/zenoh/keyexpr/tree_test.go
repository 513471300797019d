package keyexpr

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// exprs draws canonical expressions from a small set of chunks, so that they often intersect.
var exprs = rapid.Custom(func(t *rapid.T) string {
	chunk := rapid.SampledFrom([]string{"a", "b", "ab", "ba", "*", "**", "a$*", "$*b", "$*a$*", "@a", "@b", "@a$*"})
	s, err := canonical(strings.Join(rapid.SliceOfN(chunk, 1, 6).Draw(t, "chunks"), "/"))
	if err != nil {
		t.Fatalf("Canonical = %v", err)
	}
	return s
})

// Property: after puts and deletes a tree finds exactly the expressions that intersect, each once. When all are
// deleted, the tree is empty.
func TestTreeAgainstPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree Tree[string]
		held := map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			e := exprs.Draw(t, "expr")
			if held[e] && rapid.Bool().Draw(t, "out") {
				tree.Delete(e)
				delete(held, e)
			} else {
				tree.Put(e, e)
				held[e] = true
			}
			tree.Delete("never/there")
			sought := exprs.Draw(t, "sought")
			want := []string{}
			for h := range held {
				if Intersects(h, sought) {
					want = append(want, h)
				}
			}
			got := tree.AppendMatches([]string{}, sought)
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("matches of %q among %v = %v, want %v", sought, held, got, want)
			}
			if v, ok := tree.Get(sought); ok != held[sought] || ok && v != sought {
				t.Fatalf("Get(%q) = %q, %v", sought, v, ok)
			}
		}
		if got := tree.AppendAll(nil); len(got) != len(held) || tree.Len() != len(held) {
			t.Fatalf("all = %v, Len %d, want %d", got, tree.Len(), len(held))
		}
		for h := range held {
			tree.Delete(h)
		}
		if !tree.root.empty() || tree.Nodes() != 0 || tree.Text() != 0 || tree.Len() != 0 {
			t.Fatalf("%d nodes of %d bytes and %d values are left of an empty tree", tree.Nodes(), tree.Text(),
				tree.Len())
		}
	})
}

// slowIntersects implements the definition of intersection as a plain recursion.
func slowIntersects(l, r []string) bool {
	switch {
	case len(l) > 0 && l[0] == "**":
		return slowIntersects(l[1:], r) || len(r) > 0 && r[0][0] != '@' && slowIntersects(l, r[1:])
	case len(r) > 0 && r[0] == "**":
		return slowIntersects(l, r[1:]) || len(l) > 0 && l[0][0] != '@' && slowIntersects(l[1:], r)
	case len(l) > 0 && len(r) > 0:
		return slowChunk(l[0], r[0], false) && slowIntersects(l[1:], r[1:])
	}
	return len(l) == 0 && len(r) == 0
}

// slowIncludes implements the definition of inclusion in the same way.
func slowIncludes(l, r []string) bool {
	switch {
	case len(l) > 0 && l[0] == "**":
		return slowIncludes(l[1:], r) || len(r) > 0 && r[0][0] != '@' && slowIncludes(l, r[1:])
	case len(r) > 0 && r[0] == "**":
		return false
	case len(l) > 0 && len(r) > 0:
		return slowChunk(l[0], r[0], true) && slowIncludes(l[1:], r[1:])
	}
	return len(l) == 0 && len(r) == 0
}

func slowChunk(a, b string, includes bool) bool {
	switch {
	case a == b:
		return true
	case a[0] == '@' || b[0] == '@':
		return false
	case a == "*":
		return true
	case b == "*":
		return !includes
	}
	return slowBytes(tokens(a), tokens(b), includes)
}

// tokens cuts a chunk into its bytes; $* is a single token.
func tokens(s string) (all []string) {
	for len(s) > 0 {
		n := 1
		if strings.HasPrefix(s, "$*") {
			n = 2
		}
		all, s = append(all, s[:n]), s[n:]
	}
	return all
}

func slowBytes(a, b []string, includes bool) bool {
	switch {
	case len(a) > 0 && a[0] == "$*":
		return slowBytes(a[1:], b, includes) || len(b) > 0 && slowBytes(a, b[1:], includes)
	case len(b) > 0 && b[0] == "$*":
		return !includes && (slowBytes(a, b[1:], includes) || len(a) > 0 && slowBytes(a[1:], b, includes))
	case len(a) > 0 && len(b) > 0:
		return a[0] == b[0] && slowBytes(a[1:], b[1:], includes)
	}
	return len(a) == 0 && len(b) == 0
}

// Property: Intersects and Includes, which compute tables, agree with the plain recursions of their
// definitions.
func TestMatchAgainstRecurrences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := exprs.Draw(t, "a"), exprs.Draw(t, "b")
		l, r := strings.Split(a, "/"), strings.Split(b, "/")
		if got, want := Intersects(a, b), slowIntersects(l, r); got != want {
			t.Fatalf("Intersects(%q, %q) = %v, want %v", a, b, got, want)
		}
		if got, want := Includes(a, b), slowIncludes(l, r); got != want {
			t.Fatalf("Includes(%q, %q) = %v, want %v", a, b, got, want)
		}
	})
}

// Property: canonical is idempotent, its result matches the same keys as the expression, and expressions of the same
// shape that match the same keys have the same canonical form.
func TestCanonicalKeepsTheMeaning(t *testing.T) {
	all := keys()
	chunk := rapid.SampledFrom([]string{"a", "b", "*", "**", "$*", "a$*$*", "$*$*b", "@a"})
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(chunk, 1, 5).Draw(t, "chunks")
		c, err := canonical(strings.Join(raw, "/"))
		if err != nil || Check(c) != nil {
			t.Fatalf("canonical(%v) = %q, %v, Check %v", raw, c, err, Check(c))
		}
		if again, _ := canonical(c); again != c {
			t.Fatalf("canonical(%q) = %q", c, again)
		}
		for _, k := range all {
			if slowIntersects(raw, k) != slowIntersects(strings.Split(c, "/"), k) {
				t.Fatalf("%v and its canonical form %q differ on %v", raw, c, k)
			}
		}
	})
}

// Goal: lookups end even for the wildcards that take 23 GB at the official router. The test needs no clock, because a
// search that branches at each wildcard would practically never return.
func TestWildcardLookupsEnd(t *testing.T) {
	var tree Tree[int]
	for i := range 60 {
		tree.Put(strings.Repeat("**/a/", 30)+fmt.Sprint("x", i), i)
	}
	tree.Put(strings.Repeat("**/a/", 31)+"**", 1000)
	key := strings.Repeat("a/", 63) + "a"
	if got := tree.AppendMatches(nil, key); !slices.Equal(got, []int{1000}) {
		t.Errorf("found %v, want the one that matches", got)
	}
}

func TestTreeNoAlloc(t *testing.T) {
	var tree Tree[int]
	for i := range 1000 {
		tree.Put(fmt.Sprintf("@f/r%d/act", i), i)
		tree.Put(fmt.Sprintf("@f/*/x%d/**", i), i)
	}
	dst := make([]int, 0, 16)
	if n := testing.AllocsPerRun(100, func() {
		dst = tree.AppendMatches(dst[:0], "@f/r77/act")
	}); n != 0 || len(dst) != 1 {
		t.Errorf("a lookup allocates %v times and finds %v, want none and one", n, dst)
	}
}

// Property: no panic, and a tree agrees with Intersects on any expression that passes Check.
func FuzzTree(f *testing.F) {
	for _, tt := range table {
		f.Add(tt.a + "\n" + tt.b + "\na/**/b\n@a/**\n$*a/*")
	}
	f.Fuzz(func(t *testing.T, lines string) {
		var tree Tree[string]
		var all []string
		for _, line := range strings.Split(lines, "\n") {
			if len(all) < 16 && Check(line) == nil && !slices.Contains(all, line) {
				tree.Put(line, line)
				all = append(all, line)
			}
		}
		for _, sought := range all {
			got := tree.AppendMatches(nil, sought)
			for _, e := range all {
				if n := strings.Count("\n"+strings.Join(got, "\n")+"\n", "\n"+e+"\n"); n > 1 ||
					(n == 1) != Intersects(e, sought) {
					t.Fatalf("%q finds %q %d times, Intersects says %v", sought, e, n, Intersects(e, sought))
				}
			}
		}
	})
}
