package terminal

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	rttest.Do(t, err)
	shown := make(chan []byte, 1)
	go func() { b, _ := io.ReadAll(r); shown <- b }()
	term := New(w)
	step := func(text string) {
		term.Write([]byte(text))
		term.Flush()
	}
	step("one\n")
	step("status 1")
	step("status 2")
	step("two\n")
	step("status 3")
	step("")
	w.Close()
	if got, want := string(<-shown), "one\nstatus 1"+clearLine+"status 2"+clearLine+"two\nstatus 3"+
		clearLine; got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
}

// A terminal that accepts nothing delays no writer. Later it shows the number of dropped lines.
func TestStoppedTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	rttest.Do(t, err)
	defer w.Close()
	term := New(w)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	const lines = 1000
	wrote := make(chan int)
	go func() {
		for range lines {
			term.Write(line)
		}
		wrote <- 0
		term.Flush()
		wrote <- 0
	}()
	for _, what := range []string{"Write", "Flush"} {
		select {
		case <-wrote:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s waits for a terminal that is stopped", what)
		}
	}
	var all []byte
	ended := make(chan struct{})
	go func() { all, _ = io.ReadAll(r); close(ended) }()
	for end := time.Now().Add(30 * time.Second); ; {
		term.Flush()
		term.mu.Lock()
		idle := len(term.lines) == 0 && term.lost == 0
		term.mu.Unlock()
		if idle {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what waited is not shown")
		}
	}
	term.Flush()
	w.Close()
	<-ended
	lost := 0
	for _, m := range regexp.MustCompile(`(?m)^(\d+) lines were dropped`).FindAllSubmatch(all, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		lost += n
	}
	if kept := bytes.Count(all, line); lost == 0 || kept+lost != lines {
		t.Errorf("%d lines are shown and %d said to be dropped, of %d", kept, lost, lines)
	}
}

func TestTerminalNoAlloc(t *testing.T) {
	null := rttest.Must(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(t)
	defer null.Close()
	term := New(null)
	status, line := []byte("STREAMING"), []byte("level=INFO\n")
	rttest.NoAllocs(t, "%v allocations, want 0", 1000, func() { term.Write(status); term.Write(line) })
}
