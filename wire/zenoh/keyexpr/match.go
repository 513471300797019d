package keyexpr

import "strings"

// chunks is an expression cut at its slashes, without allocating.
type chunks struct {
	s [MaxChunks]string
	n int
}

func (c *chunks) cut(s string) bool {
	c.n = 0
	for more := true; more; c.n++ {
		if c.n == MaxChunks {
			return false
		}
		c.s[c.n], s, more = strings.Cut(s, "/")
	}
	return true
}

func verbatim(chunk string) bool { return len(chunk) > 0 && chunk[0] == '@' }

// Intersects reports whether some key is matched by both a and b. Both must
// have passed Check; an expression beyond its limits intersects nothing.
//
//rt:noalloc
func Intersects(a, b string) bool { return match(a, b, false) }

// Includes reports whether a matches every key that b matches, with the same
// demands on both.
//
//rt:noalloc
func Includes(a, b string) bool { return match(a, b, true) }

func match(a, b string, includes bool) bool {
	if a == b {
		return len(a) <= MaxBytes
	}
	if !Wild(a) && (includes || !Wild(b)) {
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

// match evaluates the recurrences of reference/zenoh.md 9.2 and 9.3 from the
// ends of both expressions; row j says whether l[i:] and r[j:] match.
func (l *chunks) match(r *chunks, includes bool) bool {
	var row, below [MaxChunks + 1]bool
	for i := l.n; i >= 0; i-- {
		for j := r.n; j >= 0; j-- {
			switch {
			case i < l.n && l.s[i] == "**":
				row[j] = below[j] || j < r.n && !verbatim(r.s[j]) && row[j+1]
			case j < r.n && r.s[j] == "**":
				row[j] = !includes && (row[j+1] || i < l.n && !verbatim(l.s[i]) && below[j])
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
	case verbatim(a) || verbatim(b):
		return false
	case a == "*":
		return true
	case b == "*":
		return !includes
	case !Wild(a) && (includes || !Wild(b)):
		return false
	}
	return tokensMatch(a, b, includes)
}

// tokensMatch does for the bytes of two chunks what match does for chunks: $* is
// one token that stands for any run of bytes. For includes, b's $* is a token
// that only a's $* absorbs.
func tokensMatch(a, b string, includes bool) bool {
	var row, below [MaxBytes + 1]bool
	for i := len(a); i >= 0; i-- {
		if i > 0 && a[i-1] == '$' {
			continue // inside a $*
		}
		anyA := i < len(a) && a[i] == '$'
		for j := len(b); j >= 0; j-- {
			if j > 0 && b[j-1] == '$' {
				row[j] = false
				continue
			}
			anyB := j < len(b) && b[j] == '$'
			next := j + 1
			if anyB {
				next = j + 2
			}
			switch {
			case anyA:
				row[j] = below[j] || j < len(b) && row[next]
			case anyB:
				row[j] = !includes && (row[next] || i < len(a) && below[j])
			case i < len(a) && j < len(b):
				row[j] = a[i] == b[j] && below[next]
			default:
				row[j] = i == len(a) && j == len(b)
			}
		}
		copy(below[:len(b)+1], row[:len(b)+1])
	}
	return row[0]
}
