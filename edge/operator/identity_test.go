package operator

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

func TestClaimGivesTwinsTheirOwnNames(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	first := rttest.Must(Claim("arm one"))(t)
	second := rttest.Must(Claim("arm one"))(t)
	defer second.Release()
	if first.ID != "arm-one" || second.ID != "arm-one-2" {
		t.Errorf("ids %q and %q, want arm-one and arm-one-2", first.ID, second.ID)
	}
	if first.Asked != first.ID || second.Asked != first.ID {
		t.Errorf("asked for %q and %q, want arm-one twice: the second one's log says that its name is taken",
			first.Asked, second.Asked)
	}
	if a, b := first.NextEpoch(), first.NextEpoch(); a != 1 || b != 2 {
		t.Errorf("epochs %d, %d, want 1, 2", a, b)
	}
	// a copy of the lock's descriptor, as in a child between fork and exec
	rttest.Must(unix.Dup(int(first.lock.Fd())))(t)
	first.Release()
	again, err := Claim("arm one")
	if err != nil || again.ID != "arm-one" {
		t.Fatalf("after release %v, %v, want arm-one", again, err)
	}
	if next := again.NextEpoch(); next != 3 {
		t.Errorf("epoch after a restart %d, want 3: an old token must not pass for a new one", next)
	}
	again.Release()
}

func TestClaimWithoutAnIDMakesOneThatStays(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("STATE_DIRECTORY", dir)
	first := rttest.Must(Claim(""))(t)
	first.Release()
	second := rttest.Must(Claim(""))(t)
	second.Release()
	if first.ID != second.ID || !strings.HasPrefix(first.ID, "edge-") {
		t.Errorf("ids %q then %q, want the same edge-…", first.ID, second.ID)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "id")); strings.TrimSpace(string(b)) != first.ID {
		t.Errorf("file holds %q, want %q", b, first.ID)
	}
	for _, lost := range []string{"", "\n", strings.Repeat("\x00", 14)} { // content of the file after a power failure
		rttest.WriteFile(t, dir, "id", lost)
		third := rttest.Must(Claim(""))(t)
		third.Release()
		if !strings.HasPrefix(third.ID, "edge-") {
			t.Errorf("id %q of a file with %q, want a new edge-…", third.ID, lost)
		}
	}
}

func TestClaimRefusesAnIDWithoutLetters(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	for _, id := range []string{"***", "server"} {
		rttest.Fails(t, rttest.Err(Claim(id)), "--id")
	}
}

// Goal: an operator's commands look for edges in a service's state folder, too, unless the service manager names a
// folder.
func TestDirs(t *testing.T) {
	service, home := t.TempDir(), t.TempDir()
	before := serviceDir
	t.Cleanup(func() { serviceDir = before })
	serviceDir = service
	own := filepath.Join(home, "edge-rt")
	for _, tt := range []struct {
		name, state string
		want        []string
	}{
		{"an operator", "", []string{own, service}},
		{"a service", filepath.Join(home, "x"), []string{filepath.Join(home, "x")}},
		{"the service's folder itself", service, []string{service}},
	} {
		t.Setenv("STATE_DIRECTORY", tt.state)
		t.Setenv("XDG_STATE_HOME", home)
		if got, closed, err := StateDirs(); err != nil || closed != "" || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %q, %v, want %v", tt.name, got, closed, err, tt.want)
		}
	}
	t.Setenv("STATE_DIRECTORY", "")
	serviceDir = filepath.Join(service, "none")
	if got, closed, err := StateDirs(); err != nil || closed != "" || !slices.Equal(got, []string{own}) {
		t.Errorf("without the service: %v, %q, %v, want %v", got, closed, err, own)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	serviceDir = service
	if got, _, err := StateDirs(); err != nil || !slices.Equal(got, []string{service}) {
		t.Errorf("without a home: %v, %v, want the service's", got, err)
	}
	if os.Getuid() == 0 {
		return // root may read every folder
	}
	t.Setenv("XDG_STATE_HOME", home)
	rttest.Do(t, os.Chmod(service, 0))
	if got, closed, err := StateDirs(); err != nil || closed != service || !slices.Equal(got, []string{own}) {
		t.Errorf("a closed folder: %v, %q, %v, want it named", got, closed, err)
	}
}

// Goal: the error without a state folder advises setting the folder. It does not advise --id, which would not help.
func TestStateWithoutAFolder(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "")
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := Claim("black"); !rttest.Says(err,
		"set HOME, or XDG_STATE_HOME to a folder that this user may write") || rttest.Says(err, "--id") {
		t.Errorf("without a home: %v", err)
	}
	file := rttest.WriteFile(t, t.TempDir(), "file", "")
	t.Setenv("XDG_STATE_HOME", file)
	// a file is in the place of the folder
	rttest.Fails(t, rttest.Err(Claim("black")), "set XDG_STATE_HOME to a folder that this user may write")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "open", Path: "/x", Err: unix.ENOSPC}, "the disk is full"},
		{&os.PathError{Op: "open", Path: "/x", Err: unix.EROFS}, "read-only"},
		{&os.PathError{Op: "open", Path: "/x", Err: unix.EACCES}, "it belongs to another user"},
	} {
		rttest.Contains(t, unwritable(tt.err).Error(), tt.want, "/x")
	}
}
