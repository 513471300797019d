//go:build !cgo

package jpeg

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestWithoutLibraryTheErrorNamesThePackage(t *testing.T) {
	_, err := NewEncoder(90, ChromaOfPicture)
	rttest.FailsAs(t, err, ErrNoLibrary, "libturbojpeg0-dev")
	rttest.FailsAs(t, rttest.Err(NewDecoder()), ErrNoLibrary)
}
