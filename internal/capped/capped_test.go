package capped

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("0123456789"), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(name, 10); err != nil || string(data) != "0123456789" {
		t.Errorf("ReadFile of all it may have = %q, %v", data, err)
	}
	if _, err := ReadFile(name, 9); err == nil {
		t.Error("a file of one byte too many is read")
	}
	if _, err := ReadFile("/dev/zero", 1000); err == nil {
		t.Error("a file without an end is read")
	}
	if _, err := ReadFile(name+"none", 10); !os.IsNotExist(err) {
		t.Errorf("an absent file gives %v", err)
	}
}
