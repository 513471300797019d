package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A program in the folder "." must not be looked up in $PATH.
func TestFolderIsAbsolute(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for bin, want := range map[string]string{".": here, "a/../b": filepath.Join(here, "b"), "/usr/bin": "/usr/bin", "": filepath.Dir(self)} {
		if got, err := folder(bin); got != want || err != nil {
			t.Errorf("folder(%q) = %q, %v, want %q", bin, got, err, want)
		}
	}
}
