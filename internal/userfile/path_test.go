package userfile

import (
	"os"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestExpand(t *testing.T) {
	t.Setenv("HOME", "/u/")
	t.Setenv("CACHE", "~/c")
	root, err := user.Lookup("root")
	if err != nil {
		t.Skip("no user root here")
	}
	for path, want := range map[string]string{
		"":                "",
		"/a/~/b":          "/a/~/b",
		"~":               "/u",
		"~/a":             "/u/a",
		"~root/a":         root.HomeDir + "/a",
		"~no-such-user/a": "~no-such-user/a",
		"$HOME/a":         "/u//a",
		"${HOME}a":        "/u/a",
		"a$CACHE":         "a~/c",
		"$NO_SUCH_NAME/a": "$NO_SUCH_NAME/a",
		"${}/${HOME/$":    "${}/${HOME/$",
		"~/$HOME":         "/u//u/",
	} {
		rttest.Want(t, Expand(path), want, "Expand(%q)", path)
	}
	t.Setenv("HOME", "/")
	rttest.Want(t, Expand("~"), "/", "Expand(~) with / as home")
	if CheckPath("a~") != nil || CheckPath("./~a") != nil || CheckPath("~no-such-user/a") == nil {
		t.Error("CheckPath does not refuse exactly the paths that begin with ~")
	}
}

// A link to a file stays a link, and the new content is in the file that it leads to.
func TestReplaceFollowsALink(t *testing.T) {
	file, link := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	rttest.Do(t, os.WriteFile(file, []byte("old"), 0o600))
	rttest.Do(t, os.Symlink(file, link))
	rttest.Do(t, Replace(link, []byte("new")))
	if text := rttest.ReadFile(t, file); text != "new" {
		t.Errorf("the linked file has %q, want what was written to the link", text)
	}
	if _, err := os.Stat(file + ".tmp"); err == nil {
		t.Error("a temporary file is left")
	}
}

// A file that cannot be replaced, such as a mounted one, leaves no temporary file.
func TestReplaceThatFailsLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	rttest.Fails(t, Replace(folder, []byte("new")), "rename")
	if _, err := os.Stat(folder + ".tmp"); err == nil {
		t.Error("a temporary file is left")
	}
}

// The output of a command replaces a file as a whole, and is written into a device.
func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a")
	for _, text := range []string{"longer", "new"} {
		rttest.Do(t, Write(file, []byte(text)))
		if got := rttest.ReadFile(t, file); got != text {
			t.Errorf("the file has %q, want %q", got, text)
		}
	}
	rttest.Do(t, os.Mkdir(file+".tmp", 0o700)) // this folder takes the name of the temporary file
	if err := Write(file, []byte("other")); err == nil || rttest.ReadFile(t, file) != "new" {
		t.Errorf("a write that fails: %v, and the file has changed", err)
	}
	rttest.Do(t, Write(os.DevNull, []byte("gone")))
	if info := rttest.Must(os.Stat(os.DevNull))(t); info.Mode().IsRegular() {
		t.Error("the device was replaced")
	}
}
