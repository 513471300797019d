package userfile

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestReadFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	rttest.Do(t, os.WriteFile(name, []byte("0123456789"), 0o644))
	if data, err := Read(name, 10); err != nil || string(data) != "0123456789" {
		t.Errorf("ReadFile of all it may have = %q, %v", data, err)
	}
	if _, err := Read(name, 9); err == nil {
		t.Error("a file of one byte too many is read")
	}
	if _, err := Read("/dev/zero", 1000); err == nil {
		t.Error("a file without an end is read")
	}
	if _, err := Read(name+"none", 10); !os.IsNotExist(err) {
		t.Errorf("an absent file gives %v", err)
	}
}

// Goal: a pipe is read to its end, and blocks its reader neither without a writer nor with a silent
// one.
func TestReadPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	rttest.Do(t, syscall.Mkfifo(name, 0o600))
	if data, err := Read(name, 10); err != nil || len(data) != 0 {
		t.Errorf("a pipe without a writer gives %q, %v", data, err)
	}
	silent := rttest.Must(os.OpenFile(name, os.O_RDWR, 0))(t)
	defer silent.Close()
	if _, err := Read(name, 10); !rttest.Says(err, "is a pipe") {
		t.Errorf("a pipe with a silent writer gives %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rttest.Must(w.WriteString("text"))(t)
	w.Close()
	if data, err := Read("/dev/fd/"+strconv.Itoa(int(r.Fd())), 10); err != nil || string(data) != "text" {
		t.Errorf("a shell's <(command) gives %q, %v", data, err)
	}
}
