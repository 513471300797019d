package strictyaml

import (
	"os"
	"testing"
)

type file struct {
	Name  string   `yaml:"name"`
	Parts []string `yaml:"parts"`
}

func TestDecode(t *testing.T) {
	var f file
	if err := Decode([]byte("name: a\nparts: [b, c]\n"), &f); err != nil || f.Name != "a" || len(f.Parts) != 2 {
		t.Errorf("Decode = %+v, %v", f, err)
	}
	for _, bad := range []string{"nam: a", "parts: 3", "name: [", "parts: !!seq 3"} {
		if err := Decode([]byte(bad), new(file)); err == nil {
			t.Errorf("Decode(%q) has no error", bad)
		}
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
			Decode(text, new(file)) // no panic
		}
	})
}
