// Package plain makes text from foreign files and peers safe for a terminal. A robot's id, a
// model's name, a task and a camera's name may come from any file; a terminal obeys the control
// characters in them.
package plain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// unsafeFormats are characters without a glyph that change how the text around them is shown: the
// order of its letters, or whether two different texts look different.
var unsafeFormats = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x061c, Hi: 0x061c, Stride: 1},
	{Lo: 0x200e, Hi: 0x200f, Stride: 1},
	{Lo: 0x2028, Hi: 0x202e, Stride: 1},
	{Lo: 0x2066, Hi: 0x2069, Stride: 1},
	{Lo: 0xfeff, Hi: 0xfeff, Stride: 1},
}, R32: []unicode.Range32{{Lo: 0xe0001, Hi: 0xe007f, Stride: 1}}}

//rt:noalloc
func safe(r rune) bool { return !unicode.IsControl(r) && !unicode.Is(unsafeFormats, r) }

// Text returns a text as one line, with each character that a terminal would obey, and each byte
// that is not UTF-8, escaped as in Go: \x1b, \n, \u202e.
func Text(text string) string {
	return escaped(text, "", func(b *strings.Builder, _ rune, bytes string) {
		quoted := strconv.QuoteToASCII(bytes)
		b.WriteString(quoted[1 : len(quoted)-1])
	})
}

// Address returns an address with xxxxx in place of its user and password. It hides all characters between the scheme
// and the last @, because a user without a password may be a key, and a password may contain any character.
func Address(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	scheme, _, found := strings.Cut(address[:at], "://")
	if !found {
		return "xxxxx" + address[at:]
	}
	return scheme + "://xxxxx" + address[at:]
}

// Texts returns a new map with Text applied to keys and values.
func Texts(texts map[string]string) map[string]string {
	out := make(map[string]string, len(texts))
	for k, v := range texts {
		out[Text(k)] = Text(v)
	}
	return out
}

// Lines returns a text of several lines, or JSON, that is safe for a terminal. Each character that
// a terminal would obey, except line feeds and tabs, is escaped as in JSON, which does not change
// the meaning of JSON. A byte that is not UTF-8 becomes U+FFFD.
func Lines(text string) string {
	return escaped(text, "\n\t", func(b *strings.Builder, r rune, _ string) {
		switch {
		case r == utf8.RuneError:
			b.WriteRune(r)
			return
		case r > 0xffff:
			var high rune
			high, r = utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x`, high)
		}
		fmt.Fprintf(b, `\u%04x`, r)
	})
}

// Safe reports whether Lines returns a text unchanged.
//
//rt:noalloc
func Safe(text []byte) bool {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 || r != '\n' && r != '\t' && !safe(r) {
			return false
		}
		text = text[n:]
	}
	return true
}

// escaped returns text with each unsafe character escaped, except the characters in kept.
func escaped(text, kept string, escape func(b *strings.Builder, r rune, bytes string)) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && n == 1 || !safe(r) && !strings.ContainsRune(kept, r) {
			escape(&b, r, text[:n])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

// Writer returns a writer that passes text through Lines to w. Each Write must be complete text, as
// from fmt's functions, strings.Builder and json.Encoder.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ to io.Writer }

func (w writer) Write(p []byte) (int, error) {
	if Safe(p) {
		return w.to.Write(p)
	}
	if _, err := io.WriteString(w.to, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
