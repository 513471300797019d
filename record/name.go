package record

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxCamera is the maximum length of a camera's name in bytes. LeRobot uses the feature's name as
// the name of a folder, which has at most 255 bytes.
const maxCamera = 64

// CheckCamera returns an error for a camera's name that is empty, too long or not printable, or that has a character
// special to paths or lists. The name becomes part of topics, of folders of a dataset and of lines on a terminal,
// and a record may come from any source.
func CheckCamera(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a camera has no name")
	case len(name) > maxCamera:
		return fmt.Errorf("a camera's name has %d bytes, want at most %d: %.40q", len(name), maxCamera, name)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("a camera is named %q, want characters that are printed", name)
	case strings.ContainsAny(name, `/\,=`), strings.HasPrefix(name, "."):
		return fmt.Errorf("a camera is named %q, want a name without / \\ , and =, and without a dot at its start",
			name)
	}
	return nil
}

// checkCameras is CheckCamera for all cameras of a run; their names must also differ.
func checkCameras(names []string) error {
	if len(names) > MaxCameras {
		return fmt.Errorf("%d cameras, want at most %d", len(names), MaxCameras)
	}
	for i, name := range names {
		if err := CheckCamera(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("two cameras are named %q", name)
		}
	}
	return nil
}
