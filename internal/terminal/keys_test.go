package terminal

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Keys are recognised even when their bytes arrive one by one; other bytes are ignored.
func TestParseKeys(t *testing.T) {
	for _, tt := range []struct {
		text string
		want string
	}{
		{"sfd", "s f d"},
		{"\x1b[C\x1b[D\x1bOC\x1bOD", "right left right left"},
		{"\x1b", "esc"},
		{"\x1b\x1b", "esc esc"},
		{"\x1b\x1b[C", "esc right"}, // Esc during a held arrow, but also Alt-right of some terminals
		{"\r\t \x7f", "enter tab space backspace"},
		{"\x1b[1;5C\x1b[3~x", "x"},        // Ctrl-right, Delete
		{"\x1b[[Aq\x1b[[Es\x1bOP", "q s"}, // F1 and F5 of a Linux console, F1 of xterm
		{"\x1bxq", "q"},
		{"\xc3\xa9\x00", ""},
		{"\x1b[", ""},
	} {
		for name, pieces := range map[string][][]byte{"whole": {[]byte(tt.text)},
			"by bytes": slices.Collect(slices.Chunk([]byte(tt.text), 1))} {
			var got []string
			key := func(k string) { got = append(got, k) }
			var rest []byte
			for _, p := range pieces {
				rest = slices.Clone(parse(append(slices.Clone(rest), p...), false, key))
			}
			if rest = parse(rest, true, key); len(rest) != 0 {
				t.Errorf("%q %s: %q is left", tt.text, name, rest)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%q %s: %q, want %q", tt.text, name, got, tt.want)
			}
		}
	}
	var endless []byte
	for range 1000 {
		endless = parse(append(endless, "\x1b[1111111111"...), false, func(string) {})
		if len(endless) > 2*keyBytes {
			t.Fatal("a sequence without an end grows for ever")
		}
	}
}

// Without a terminal ReadKeys returns neither keys nor an error.
func TestNoTerminalNoKeys(t *testing.T) {
	r, w, err := os.Pipe()
	rttest.Do(t, err)
	defer w.Close()
	keys, err := ReadKeys(r, func(string) {})
	if keys != nil || err != nil {
		t.Errorf("keys of a pipe: %v, %v", keys, err)
	}
	keys.Close()
}
