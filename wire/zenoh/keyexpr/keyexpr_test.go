package keyexpr

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Source: the tests of the crate zenoh-keyexpr.
var table = []struct {
	a, b                 string
	intersects, includes bool
}{
	{"a/b", "a/b", true, true}, {"*", "abc", true, true}, {"*", "x/abc", false, false},
	{"ab/*", "ab", false, false}, {"ab/**", "ab", true, true}, {"**", "a/b/c", true, true},
	{"a/*/c/*/e", "a/c/e", false, false}, {"a/**/c/**/e", "a/c/e", true, true},
	{"a/**/c/*/e/*", "a/b/b/b/c/d/d/c/d/e/f", true, true},
	{"a/**/c/*/e/*", "a/b/b/b/c/d/d/c/d/d/e/f", false, false},
	{"**/xyz", "a/b/xyz/d/e/f/xyz", true, true}, {"ab$*cd", "abxxcxxcd", true, true},
	{"ab$*cd", "abxxcxxcdx", false, false}, {"ab$*", "ab", true, true},
	{"x/a$*de", "x/abc$*de", true, true}, {"x/a$*d$*e", "x/a$*e", true, false},
	{"x/a$*e", "x/a$*d$*e", true, true}, {"x/$*d", "x/$*e", false, false},
	{"x/$*abc", "x/abc$*", true, false}, {"@a", "@a/**", true, false}, {"@a/**", "@a", true, true},
	{"@a/**", "@a/@b", false, false}, {"@a/*", "@a/@b", false, false}, {"@a/**/@b", "@a/@b", true, true},
	{"**", "@a", false, false}, {"@a", "**/@a", true, false},
	{"@a/**/@c/@b", "@a/@c/**/@b", true, false}, {"@a/**/@b", "@a/**/@c/**/@b", false, false},
	{"@lerobot/*/*/*/server/alive", "@lerobot/m/main/demo/server/alive", true, true},
	{"@a$*", "@ab", false, false}, {"$*", "a", true, true}, {"a$*", "a/b", false, false},
}

func TestTable(t *testing.T) {
	for _, tt := range table {
		rttest.Want(t, Intersects(tt.a, tt.b), tt.intersects, "Intersects(%q, %q)", tt.a, tt.b)
		rttest.Want(t, Intersects(tt.b, tt.a), tt.intersects, "Intersects(%q, %q)", tt.b, tt.a)
		rttest.Want(t, Includes(tt.a, tt.b), tt.includes, "Includes(%q, %q)", tt.a, tt.b)
	}
}

func TestCheckAndCanonical(t *testing.T) {
	for _, tt := range []struct {
		in, canonical string
		err           error
	}{
		{"a", "a", nil}, {"a/b c/é", "a/b c/é", nil}, {"**/a/*/$*b$*", "**/a/*/$*b$*", nil}, {"*/**", "*/**", nil},
		{"**/*", "*/**", errCanonical}, {"**/**", "**", errCanonical}, {"**/*/**/*", "*/*/**", errCanonical},
		{"a/**/*/b", "a/*/**/b", errCanonical}, {"$*", "*", errCanonical}, {"a$*$*b", "a$*b", errCanonical},
		{"a$*$*$*$*", "a$*", errCanonical}, {"$*$*/x", "*/x", errCanonical}, {"**/$*", "*/**", errCanonical},
		{"", "", errSyntax}, {"/a", "", errSyntax}, {"a/", "", errSyntax}, {"a//b", "", errSyntax},
		{"a*", "", errSyntax}, {"*a", "", errSyntax}, {"***", "", errSyntax}, {"a#b", "", errSyntax},
		{"a?b", "", errSyntax},
		{"x$y", "", errSyntax}, {"x$", "", errSyntax}, {"$", "", errSyntax}, {"a$**", "", errSyntax},
		{"\xff", "", errSyntax}, {"**/*/", "", errSyntax}, {"$*/a*", "", errSyntax},
		{strings.Repeat("a", MaxBytes), strings.Repeat("a", MaxBytes), nil},
		{strings.Repeat("a", MaxBytes+1), "", errLimit},
		{strings.Repeat("a/", maxChunks-1) + "a", strings.Repeat("a/", maxChunks-1) + "a", nil},
		{strings.Repeat("a/", maxChunks) + "a", "", errLimit},
	} {
		rttest.Want(t, Check(tt.in), tt.err, "Check(%q)", tt.in)
		got, err := canonical(tt.in)
		if tt.err != nil && tt.err != errCanonical {
			rttest.Want(t, err, tt.err, "canonical(%q)", tt.in)
			continue
		}
		if got != tt.canonical || err != nil || Check(got) != nil {
			t.Errorf("canonical(%q) = %q, %v, want %q", tt.in, got, err, tt.canonical)
		}
	}
}

// keys returns every literal key of up to three chunks over a small alphabet.
func keys() [][]string {
	chunks := []string{"a", "b", "ab", "ba", "aa", "bb", "@a", "@b"}
	all := [][]string{}
	for _, x := range chunks {
		all = append(all, []string{x})
		for _, y := range chunks {
			all = append(all, []string{x, y})
			for _, z := range chunks {
				all = append(all, []string{x, y, z})
			}
		}
	}
	return all
}

// Property: a literal key matches an expression exactly if the oracle reports a match. Two expressions intersect if
// some key matches both. An expression that includes another matches all keys of the other. Intersects and Includes
// agree with each other.
func TestAgainstOracle(t *testing.T) {
	all := keys()
	shared, inside := 0, 0
	for i := range 1200 {
		a, b := exprs.Example(2*i), exprs.Example(2*i+1)
		ca, cb := strings.Split(a, "/"), strings.Split(b, "/")
		common, subset := false, true
		for _, k := range all {
			inA, inB := slowIntersects(ca, k), slowIntersects(cb, k)
			key := strings.Join(k, "/")
			if got := Intersects(a, key); got != inA {
				t.Fatalf("Intersects(%q, %q) = %v, want %v", a, key, got, inA)
			}
			if got := Includes(a, key); got != inA {
				t.Fatalf("Includes(%q, %q) = %v, want %v", a, key, got, inA)
			}
			common = common || inA && inB
			subset = subset && (!inB || inA)
		}
		if common && !Intersects(a, b) {
			t.Errorf("Intersects(%q, %q) = false, but they share a key", a, b)
		}
		rttest.Want(t, Intersects(a, b), Intersects(b, a), "Intersects(%q, %q)", a, b)
		if Includes(a, b) && !subset {
			t.Errorf("Includes(%q, %q) = true, but a key of the second is not the first's", a, b)
		}
		if Includes(a, b) && !Intersects(a, b) {
			t.Errorf("%q includes %q without intersecting it", a, b)
		}
		if common {
			shared++
		}
		if Includes(a, b) {
			inside++
		}
	}
	if shared < 50 || inside < 10 {
		t.Errorf("only %d pairs intersected and %d were included: the property was hardly tried", shared, inside)
	}
}

// Goal: matching ends even for chains of wildcards that take exponential time in a backtracking matcher. The test needs
// no clock, because such a matcher would practically never return.
func TestWildcardChainsEnd(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		shared     bool
	}{
		{"chunks", strings.Repeat("**/a/", 31) + "b", strings.Repeat("a/", 63) + "a", false},
		{"bytes", strings.Repeat("$*a", 300) + "b", strings.Repeat("a", 1024), false},
		{"bytes on both sides", strings.Repeat("$*a", 300) + "b", strings.Repeat("a$*", 300), true},
	} {
		if Intersects(tt.a, tt.b) != tt.shared || Includes(tt.a, tt.b) {
			t.Errorf("%s: intersects %v, includes %v, want %v and false", tt.name, Intersects(tt.a, tt.b),
				Includes(tt.a, tt.b), tt.shared)
		}
	}
}

func TestMatchNoAlloc(t *testing.T) {
	rttest.NoAllocs(t, "matching allocates %v times, want 0", 100, func() {
		Intersects("@lerobot/*/$*in/**/obs", "@lerobot/m/main/demo/robot/x/obs")
		Includes("@lerobot/*/$*in/**/obs", "@lerobot/m/main/demo/robot/x/obs")
	})
}

// Property: no function panics. The result of canonical passes Check and is canonical. An expression intersects and
// includes itself.
func FuzzMatch(f *testing.F) {
	for _, tt := range table {
		f.Add(tt.a, tt.b)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		Intersects(a, b)
		Includes(a, b)
		c, err := canonical(a)
		if err != nil {
			return
		}
		if Check(c) != nil || !Intersects(c, c) || !Includes(c, c) {
			t.Fatalf("canonical(%q) = %q: %v", a, c, Check(c))
		}
		if d, err := canonical(b); err == nil && Intersects(c, d) != Intersects(d, c) {
			t.Fatalf("Intersects(%q, %q) depends on the order", c, d)
		}
	})
}

// canonical returns the canonical form of a valid key expression. The tests compare Check's errCanonical with it.
func canonical(s string) (string, error) {
	if err := Check(s); err != errCanonical {
		return s, err
	}
	var out []string
	pending := false // a ** was read, whose place is after the chunks * that follow
	for _, chunk := range strings.Split(s, "/") {
		for strings.Contains(chunk, "$*$*") {
			chunk = strings.ReplaceAll(chunk, "$*$*", "$*")
		}
		switch chunk {
		case "**":
			pending = true
			continue
		case "$*":
			chunk = "*"
		}
		if pending && chunk != "*" {
			out, pending = append(out, "**"), false
		}
		out = append(out, chunk)
	}
	if pending {
		out = append(out, "**")
	}
	return strings.Join(out, "/"), nil
}
