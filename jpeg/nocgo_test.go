//go:build !cgo

package jpeg

import (
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestWithoutLibraryTheErrorNamesThePackage(t *testing.T) {
	_, err := NewEncoder(90, ChromaOfPicture)
	if !errors.Is(err, ErrNoLibrary) || !rttest.Says(err, "libturbojpeg0-dev") {
		t.Errorf("NewEncoder(90, ChromaOfPicture) = %v, want %v", err, ErrNoLibrary)
	}
	if _, err := NewDecoder(); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("NewDecoder() = %v, want %v", err, ErrNoLibrary)
	}
}
