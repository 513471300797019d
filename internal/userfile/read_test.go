package userfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestReadFile(t *testing.T) {
	name := rttest.WriteFile(t, t.TempDir(), "f", "0123456789")
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

func init() { patience = time.Second }

// Goal: a pipe is read to its end. A pipe without a writer, or with a writer that writes nothing,
// does not block the reader for ever.
func TestReadPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	rttest.Do(t, syscall.Mkfifo(name, 0o600))
	rttest.Fails(t, rttest.Err(Read(name, 10)), "is a pipe") // the pipe has no writer
	time.AfterFunc(100*time.Millisecond, func() { os.WriteFile(name, []byte("late"), 0) })
	rttest.Want(t, string(rttest.Must(Read(name, 10))(t)), "late", "a pipe whose writer comes late")
	silent := rttest.Must(os.OpenFile(name, os.O_RDWR, 0))(t)
	defer silent.Close()
	rttest.Fails(t, rttest.Err(Read(name, 10)), "is a pipe") // the pipe's writer writes nothing
	r, w, err := os.Pipe()
	rttest.Do(t, err)
	defer r.Close()
	w.WriteString("text")
	w.Close()
	shell := rttest.Must(Read("/dev/fd/"+strconv.Itoa(int(r.Fd())), 10))(t)
	rttest.Want(t, string(shell), "text", "a shell's <(command)")
}

// The error for a byte order mark before JSON names the mark, and the command that removes it.
func TestParseJSON(t *testing.T) {
	var v map[string]int
	if err := ParseJSON([]byte(`{"a": 1}`), &v); err != nil || v["a"] != 1 {
		t.Errorf("ParseJSON = %v, %v", v, err)
	}
	const mark = "\xEF\xBB\xBF"
	if err := ParseJSON([]byte(mark+`{"a": 2}`), &v); !rttest.Says(err, "byte order mark (BOM)", "sed -i") || v["a"] != 1 {
		t.Errorf("after a mark: %v, %v", v, err)
	}
	file := rttest.WriteFile(t, t.TempDir(), "f.json", mark+"{}")
	_, command, _ := strings.Cut(errMark.Error(), "without one: ")
	command, _, _ = strings.Cut(command, " removes")
	rttest.Do(t, exec.Command("sh", "-c", strings.ReplaceAll(command, "FILE", file)).Run())
	rttest.Want(t, rttest.ReadFile(t, file), "{}", "%s leaves", command)
}

func TestZeroBytesAreNoText(t *testing.T) {
	rttest.Fails(t, rttest.Err(Text([]byte("id: a\nbus:\x00\x00\n"))), "line 2 has a zero byte")
}
