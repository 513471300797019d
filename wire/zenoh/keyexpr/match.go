package keyexpr

import "strings"

// chunks is an expression cut at its slashes. Cutting does not allocate.
type chunks struct {
	s [maxChunks]string
	n int
}

func (c *chunks) cut(s string) bool {
	c.n = 0
	for more := true; more; c.n++ {
		if c.n == maxChunks {
			return false
		}
		c.s[c.n], s, more = strings.Cut(s, "/")
	}
	return true
}

func isVerbatim(chunk string) bool { return len(chunk) > 0 && chunk[0] == '@' }

// Intersects reports whether some key matches both a and b. Both must have passed Check. An expression beyond the
// limits of Check intersects no expression.
//
//rt:noalloc
func Intersects(a, b string) bool { return match(a, b, false) }

// Includes reports whether a matches every key that b matches. Both must have passed Check.
//
//rt:noalloc
func Includes(a, b string) bool { return match(a, b, true) }

func match(a, b string, includes bool) bool {
	if a == b {
		return len(a) <= MaxBytes
	}
	if !HasWildcard(a) && (includes || !HasWildcard(b)) {
		return false
	}
	if len(a) > MaxBytes || len(b) > MaxBytes {
		return false
	}
	var l, r chunks
	if !l.cut(a) || !r.cut(b) {
		return false
	}
	return l.match(&r, includes)
}

// match evaluates the definitions of intersection and inclusion from the ends of both expressions. For each i, element
// j of the row is true when l[i:] and r[j:] match.
func (l *chunks) match(r *chunks, includes bool) bool {
	var row, below [maxChunks + 1]bool
	for i := l.n; i >= 0; i-- {
		for j := r.n; j >= 0; j-- {
			switch {
			case i < l.n && l.s[i] == "**":
				row[j] = below[j] || j < r.n && !isVerbatim(r.s[j]) && row[j+1]
			case j < r.n && r.s[j] == "**":
				row[j] = !includes && (row[j+1] || i < l.n && !isVerbatim(l.s[i]) && below[j])
			case i < l.n && j < r.n:
				row[j] = below[j+1] && chunkMatch(l.s[i], r.s[j], includes)
			default:
				row[j] = i == l.n && j == r.n
			}
		}
		below = row
	}
	return row[0]
}

func chunkMatch(a, b string, includes bool) bool {
	switch {
	case a == b:
		return true
	case isVerbatim(a) || isVerbatim(b):
		return false
	case a == "*":
		return true
	case b == "*":
		return !includes
	case !HasWildcard(a) && (includes || !HasWildcard(b)):
		return false
	}
	return tokensMatch(a, b, includes)
}

// tokensMatch reports whether two chunks match, at least one of which contains $*. If includes is true, a contains it.
// tokensMatch takes linear time, because a lookup calls it once for each chunk that it tries.
func tokensMatch(a, b string, includes bool) bool {
	switch {
	case !HasWildcard(b):
		return globMatch(a, b)
	case includes:
		return globMatch(a, b) // then only a $* in a can match a $* in b
	case !HasWildcard(a):
		return globMatch(b, a)
	}
	// Any text is possible between two $*, so only the texts before the first $* and after the last one can disagree.
	headA, _, okA := strings.Cut(a, "$*")
	headB, _, okB := strings.Cut(b, "$*")
	if !okA || !okB {
		return a == b // happens only if the expression has not passed Check
	}
	tailA, tailB := a[strings.LastIndex(a, "$*")+2:], b[strings.LastIndex(b, "$*")+2:]
	n, m := min(len(headA), len(headB)), min(len(tailA), len(tailB))
	return headA[:n] == headB[:n] && tailA[len(tailA)-m:] == tailB[len(tailB)-m:]
}

// globMatch reports whether a pattern with at least one $* matches a text. The text must begin with
// the part before the first $*, end with the part after the last $*, and contain the parts in
// between in order. Each part is matched at the earliest possible place.
func globMatch(pattern, text string) bool {
	head, rest, ok := strings.Cut(pattern, "$*")
	if !ok {
		return pattern == text
	}
	if !strings.HasPrefix(text, head) {
		return false
	}
	text = text[len(head):]
	for {
		piece, after, more := strings.Cut(rest, "$*")
		if !more {
			return strings.HasSuffix(text, piece)
		}
		at := strings.Index(text, piece)
		if at < 0 {
			return false
		}
		text, rest = text[at+len(piece):], after
	}
}
