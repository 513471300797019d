//go:build !cgo

package jpeg

import (
	"errors"
	"strings"
	"testing"
)

func TestWithoutLibraryTheErrorNamesThePackage(t *testing.T) {
	_, err := NewEncoder(90, ChromaOfPicture)
	if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "libturbojpeg0-dev") {
		t.Errorf("NewEncoder(90, ChromaOfPicture) = %v, want %v", err, ErrNoLibrary)
	}
	if _, err := NewDecoder(); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("NewDecoder() = %v, want %v", err, ErrNoLibrary)
	}
}
