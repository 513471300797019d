package userfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

type file struct {
	Name  string   `yaml:"name"`
	Parts []string `yaml:"parts"`
	Baud  int      `yaml:"baud"`
	Slew  float64  `yaml:"slew"`
	On    bool     `yaml:"on"`
	IDs   []uint8  `yaml:"ids"`
	More  []*file  `yaml:"more"`

	Wait time.Duration `yaml:"wait"`
}

func TestDecode(t *testing.T) {
	var f file
	if err := DecodeYAML([]byte("name: a\nparts: [b, c]\n"), &f); err != nil || f.Name != "a" || len(f.Parts) != 2 {
		t.Errorf("Decode = %+v, %v", f, err)
	}
	for _, good := range []string{"baud: 1e6", "baud: 1000000.0", "wait: 1.5s", "name: '1.5'", "ids: [1]"} {
		if err := DecodeYAML([]byte(good), new(file)); err != nil {
			t.Errorf("Decode(%q) = %v", good, err)
		}
	}
	for _, bad := range []string{"nam: a", "parts: 3", "name: [", "parts: !!seq 3"} {
		if err := DecodeYAML([]byte(bad), new(file)); err == nil {
			t.Errorf("Decode(%q) has no error", bad)
		}
	}
}

// The error for a value of another type describes the expected type in words for a user.
func TestWrongType(t *testing.T) {
	for bad, want := range map[string]string{
		"name: a\nbaud: fast":    `[2:7] got "fast", want a whole number`,
		"slew: 0,3":              `[1:7] got "0,3", want a number`,
		"on: 3":                  `[1:5] got "3", want true or false`,
		"name: [a]":              `[1:7] got "[", want a text`,
		"name: a\nbaud: 1.5":     `[2:7] got "1.5", want a whole number`,
		"baud: 010":              `[1:7] got "010", want digits without 0 before them`,
		"baud: -010":             `[1:7] got "-010", want digits without 0 before them`,
		"name: 0x10":             `[1:7] want digits without 0 before them, or quotes around a text`,
		"ids: [3, 007]":          `[1:10] got "007", want digits`,
		"baud: '1.5'":            `got "1.5", want a whole number`,
		"baud: -.inf":            `[1:7] got "-.inf", want a whole number`,
		"slew: &x 1.5\nbaud: *x": `[1:10] got "1.5", want a whole number`,
		"slew: 1\nids: [3, 2.5]": `[2:10] got "2.5", want a whole number`,
		"more: [{baud: 0.1}]":    `[1:15] got "0.1", want a whole number`,
	} {
		if err := DecodeYAML([]byte(bad), new(file)); !rttest.Says(err, want) || rttest.Says(err, "Go ") {
			t.Errorf("Decode(%q) = %v, want %s", bad, err, want)
		}
	}
}

// Deep nesting is refused before the module parses it: the module's memory grows with the square of
// the depth.
func TestNesting(t *testing.T) {
	deep := func(open, end string, n int) string { return strings.Repeat(open, n) + "x" + strings.Repeat(end, n) }
	for _, tt := range []struct {
		name, text string
		refused    bool
	}{
		{"lists", "name: " + deep("[", "]", 10), false},
		{"lists one after the other", "name: " + strings.Repeat("[[a], {b: c}, ", 20) + strings.Repeat("]", 20), false},
		{"many marks, a line each", strings.Repeat("- - a\n", 200), false},
		{"rules", "# " + strings.Repeat("-", 200) + "\nname: a\n", false},
		{"too many lists", deep("[", "]", maxYAMLBytes/4), true},
		{"too many maps", "name: " + deep("{a: ", "}", maxYAMLBytes/8), true},
		{"too many marks", strings.Repeat("- ", maxYAMLBytes/2), true},
		{"too many keys", strings.Repeat("?\t", maxYAMLBytes/2), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var v any
			if err := DecodeYAML([]byte(tt.text), &v); errors.Is(err, errNesting) != tt.refused {
				t.Errorf("Decode: %v, want refused %v", err, tt.refused)
			}
			if _, err := ParseYAML([]byte(tt.text)); errors.Is(err, errNesting) != tt.refused {
				t.Errorf("Parse: %v, want refused %v", err, tt.refused)
			}
		})
	}
}

// A byte order mark is accepted, and a line too long for an error is refused.
func TestMarksAndLongLines(t *testing.T) {
	var f file
	if err := DecodeYAML([]byte("\xEF\xBB\xBFname: a\n"), &f); err != nil || f.Name != "a" {
		t.Errorf("after a byte order mark: %+v, %v", f, err)
	}
	if _, err := ParseYAML([]byte("\xEF\xBB\xBFname: a\n")); err != nil {
		t.Error(err)
	}
	for says, text := range map[string]string{
		"UTF-8":  "\xFF\xFEn\x00",
		"line 2": "name: a\nparts: " + strings.Repeat("x", lineMax),
	} {
		if err := DecodeYAML([]byte(text), new(file)); !rttest.Says(err, says) || len(err.Error()) > 200 {
			t.Errorf("%.10q: %.300v; want a short error with %q", text, err, says)
		}
	}
}

func TestReadYAML(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.yaml")
	for _, size := range []int{0, maxYAMLBytes, maxYAMLBytes + 1} {
		rttest.Do(t, os.WriteFile(name, make([]byte, size), 0o600))
		if data, err := ReadYAML(name); (err == nil) != (size <= maxYAMLBytes) || err == nil && len(data) != size {
			t.Errorf("%d bytes: %d read, %v", size, len(data), err)
		}
	}
	if _, err := ReadYAML("/dev/zero"); err == nil { // the device has no end
		t.Error("/dev/zero was read")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("name: a\nparts: [b, c]\n"))
	f.Add([]byte("parts: !!seq 3"))
	if text, err := os.ReadFile("../../testdata/demo/server.yaml"); err == nil {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) < 1<<12 {
			DecodeYAML(text, new(file)) // the call must not panic
			ParseYAML(text)
		}
	})
}
