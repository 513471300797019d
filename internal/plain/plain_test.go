package plain

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// No character that a terminal obeys passes, in any encoding; all others are unchanged.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"hebe den Würfel auf 把": "hebe den Würfel auf 把",
		"\x1b[2J\x1b]0;x\x07":   `\x1b[2J\x1b]0;x\a`,
		"a\u009b31mb":           `a\u009b31mb`,
		"a\x9bb":                `a\x9bb`,
		"a\r\nb\tc\x00":         `a\r\nb\tc\x00`,
		"a\u202eb\u2066c":       `a\u202eb\u2066c`,
		"\xff\xfe":              `\xff\xfe`,
		"a\u2028b":              `a\u2028b`,
		"\x7f":                  `\x7f`,
		"\ufffd":                "\ufffd",
		`back\slash "quote"`:    `back\slash "quote"`,
		"tag \U000e0041":        `tag \U000e0041`,
	} {
		rttest.Want(t, Text(text), want, "Text(%q)", text)
	}
	if got := Texts(map[string]string{"\x1bk": "\x1bv"}); got[`\x1bk`] != `\x1bv` || len(got) != 1 {
		t.Errorf("Texts() = %q", got)
	}
}

func TestAddress(t *testing.T) {
	for address, want := range map[string]string{
		"":                             "",
		"ws://host:8000/a":             "ws://host:8000/a",
		"http://user:pass@host:4318":   "http://xxxxx@host:4318",
		"ws://key@host:8000":           "ws://xxxxx@host:8000",
		"http://user:p%ss@host:4318":   "http://xxxxx@host:4318", // is no URL
		"http://user:pa/ss@host:4318":  "http://xxxxx@host:4318", // is no URL
		"http://user:12/p@ss@host":     "http://xxxxx@host",      // is a URL without a password
		"user:pass@host:4318":          "xxxxx@host:4318",        // is a URL with the scheme user
		"host:4318":                    "host:4318",
		"http://user:pass@host:port/a": "http://xxxxx@host:port/a",
	} {
		rttest.Want(t, Address(address), want, "Address(%q)", address)
	}
}

func TestWriters(t *testing.T) {
	var b strings.Builder
	if n, err := Writer(&b).Write([]byte("a\tb\n\x1b[1mc\r\n")); n != 11 || err != nil ||
		b.String() != "a\tb\n\\u001b[1mc\\u000d\n" {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
	b.Reset()
	value := map[string]string{"k\u009b": "a\x1b\u202e\U000e0041 ü \n"}
	enc := json.NewEncoder(Writer(&b))
	enc.SetIndent("", "  ")
	rttest.Do(t, enc.Encode(value))
	var back map[string]string
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back["k\u009b"] != value["k\u009b"] {
		t.Errorf("%v: %q is %q, want %q", err, b.String(), back, value)
	}
	if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && !safe(r) }) {
		t.Errorf("%q reaches the terminal", b.String())
	}
}

func TestNoAlloc(t *testing.T) {
	text := []byte("hebe den Würfel auf\n")
	rttest.NoAllocs(t, "%v allocations", 100, func() { Safe(text) })
}

func FuzzText(f *testing.F) {
	f.Add("\x1b[0m \u009b ü")
	f.Fuzz(func(t *testing.T, text string) {
		for _, got := range []string{Text(text), Lines(text)} {
			if !utf8.ValidString(got) {
				t.Errorf("%q is no UTF-8", got)
			}
			if strings.ContainsFunc(got, func(r rune) bool {
				return unicode.IsControl(r) && !strings.ContainsRune("\n\t", r)
			}) {
				t.Errorf("%q has a control character", got)
			}
		}
		if Safe([]byte(text)) != (Lines(text) == text) {
			t.Errorf("Safe(%q) = %v, and Lines gives %q", text, Safe([]byte(text)), Lines(text))
		}
		if got := Text(text); Text(got) != got {
			t.Errorf("%q changes again", got)
		}
	})
}
