package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the class of a character in the pattern of ByteLevel.
type kind uint8

const (
	other kind = iota
	letter
	number
	space
)

// newer lists the characters that the Unicode tables of the Python libraries contain and those of this Go release do
// not. A test compares every character.
var newer = &unicode.RangeTable{
	R16: []unicode.Range16{{0x1c89, 0x1c8a, 1}, {0xa7cb, 0xa7cd, 1}, {0xa7da, 0xa7dc, 1}},
	R32: []unicode.Range32{
		{0x105c0, 0x105f3, 1}, {0x10d4a, 0x10d65, 1}, {0x10d6f, 0x10d85, 1}, {0x10ec2, 0x10ec4, 1},
		{0x11380, 0x11389, 1},
		{0x1138b, 0x1138b, 1}, {0x1138e, 0x1138e, 1}, {0x11390, 0x113b5, 1}, {0x113b7, 0x113b7, 1},
		{0x113d1, 0x113d1, 1},
		{0x113d3, 0x113d3, 1}, {0x11bc0, 0x11be0, 1}, {0x13460, 0x143fa, 1}, {0x16100, 0x1611d, 1},
		{0x16d40, 0x16d6c, 1},
		{0x18cff, 0x18cff, 1}, {0x1e5d0, 0x1e5ed, 1}, {0x1e5f0, 0x1e5f0, 1}, {0x2ebf0, 0x2ee5d, 1},
	},
}

// newerNumbers are the digits among the characters of newer. The pre-tokenizer Digits treats newestDigits as digits,
// but the pattern of ByteLevel does not treat them as numbers.
var (
	newerNumbers = &unicode.RangeTable{R32: []unicode.Range32{
		{0x10d40, 0x10d49, 1}, {0x116d0, 0x116e3, 1}, {0x11bf0, 0x11bf9, 1}, {0x16130, 0x16139, 1},
		{0x16d70, 0x16d79, 1},
		{0x1ccf0, 0x1ccf9, 1}, {0x1e5f1, 0x1e5fa, 1},
	}}
	newestDigits = &unicode.RangeTable{R32: []unicode.Range32{{0x11de0, 0x11de9, 1}, {0x16ff4, 0x16ff6, 1}}}
)

//rt:noalloc
func kindOf(r rune) kind {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
		return letter
	case '0' <= r && r <= '9':
		return number
	case r == ' ', '\t' <= r && r <= '\r':
		return space
	case r < utf8.RuneSelf:
		return other
	case unicode.IsLetter(r), unicode.Is(newer, r):
		return letter
	case unicode.IsNumber(r), unicode.Is(newerNumbers, r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

//rt:noalloc
func isDigit(r rune) bool { return kindOf(r) == number || unicode.Is(newestDigits, r) }

// beforeDigit returns the length of the text before its first digit, or the length of that digit
// when the text begins with it.
//
//rt:noalloc
func beforeDigit(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if isDigit(r) {
			if i == 0 {
				return n
			}
			return i
		}
		i += n
	}
	return len(text)
}

// contractions are separate words.
var contractions = [...]string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}

// nextWord returns the length of the word that the text begins with: the first
// match of GPT-2's pattern
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// which regexp cannot express: it has no look-ahead.
//
//rt:noalloc
func nextWord(text []byte) int {
	if text[0] == '\'' {
		for i := range contractions {
			if c := contractions[i]; len(text) >= len(c) && string(text[:len(c)]) == c {
				return len(c)
			}
		}
	}
	from := 0
	if text[0] == ' ' && len(text) > 1 {
		from = 1
	}
	r, _ := utf8.DecodeRune(text[from:])
	if k := kindOf(r); k != space {
		return from + run(text[from:], k)
	}
	n := run(text, space)
	if n == len(text) {
		return n
	}
	// The last of several spaces belongs to the next word.
	_, last := utf8.DecodeLastRune(text[:n])
	if n > last {
		return n - last
	}
	return n
}

// run returns the length of the leading run of characters of one kind.
//
//rt:noalloc
func run(text []byte, k kind) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if kindOf(r) != k {
			return i
		}
		i += n
	}
	return len(text)
}

// strip does the same as Python's str.strip, whose white space has four more control characters than Go's.
func strip(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f })
}
