package tidy

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// machinePath matches a path that exists on one machine only. It is written so that it does not
// find itself.
var machinePath = regexp.MustCompile(`(?:^|[^\w.~-])/(?:wo` + `rk|ro` + `ot|tmp/sea` + `ms)/[\w.-]`)

// machinePaths returns the places where the files contain a machinePath. It reads binary files,
// too, since an exported model contains the paths of the script that wrote it.
func machinePaths(fsys fs.FS, names []string) (findings []string, err error) {
	for _, name := range names {
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		for i, line := range bytes.Split(content, []byte("\n")) {
			if found := machinePath.Find(line); found != nil {
				findings = append(findings, fmt.Sprintf("%s:%d: %q exists on one machine only", name, i+1, found))
			}
		}
	}
	return findings, nil
}

// listedFiles returns the regular files that git ls-files lists with the options.
func listedFiles(t *testing.T, options ...string) (names []string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "-z"}, options...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("git ls-files: %v: not a checkout, so nothing says which files are tracked", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		// A file may be deleted without a commit; a link is not content.
		if info, err := os.Lstat(root + "/" + name); err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names
}

func TestTrackedFilesNameNoMachinePaths(t *testing.T) {
	names := listedFiles(t)
	findings := rttest.Must(machinePaths(os.DirFS(root), names))(t)
	for _, f := range findings {
		t.Error(f)
	}
}

func TestMachinePathRuleBites(t *testing.T) {
	for _, tt := range []struct{ name, content, want string }{
		{"in a comment", "// see /wo" + "rk/main/rt", "a:1"},
		{"in the second line", "x\ncp /ro" + "ot/go/bin/x .\n", "a:2"},
		{"in a binary", "\x00\x08/wo" + "rk/train.py\x00", "a:1"},
		{"a relative path", "../wo" + "rk/x and frame" + "work/x and ./ro" + "ot/x", ""},
		{"a URL's path", "https://example.org/wo" + "rk/x", ""},
		{"a system path", "/usr/lib/x /proc/self /tmp/x /dev/ttyACM0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings := rttest.Must(machinePaths(fstest.MapFS{"a": {Data: []byte(tt.content)}}, []string{"a"}))(t)
			var wants []string
			if tt.want != "" {
				wants = []string{tt.want}
			}
			want(t, findings, wants)
		})
	}
}
