package pipe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/internal/plain"
)

// guarded is a shell script that runs the command in $1. First it starts a process that reads from descriptor 3, whose
// other end edge-rt has open. When edge-rt ends, for whatever reason, this process ends the whole process group. It
// ignores SIGTERM, so that the group's number stays in use until SIGKILL.
const guarded = `(trap '' TERM; read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec 3<&-; eval "$1"`

// program is a running program.
type program struct {
	cmd   *exec.Cmd
	out   int      // descriptor of the shell's standard output
	guard *os.File // closing it ends the process group
	words words
	ended chan struct{} // closed after the end of the shell
	err   error         // result of the shell, valid after ended
}

// start runs a command in a shell, in a new process group, without standard input.
func start(command string) (p *program, err error) {
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProgram, err)
	}
	p = &program{out: fds[0], ended: make(chan struct{})}
	theirs := os.NewFile(uintptr(fds[1]), "standard output")
	defer theirs.Close()
	enlarge(fds[0])
	guard, held, err := os.Pipe()
	if err != nil {
		_ = unix.Close(p.out)
		return nil, fmt.Errorf("%w: %w", ErrProgram, err)
	}
	defer guard.Close()
	p.guard = held
	p.cmd = exec.Command("/bin/sh", "-c", guarded, "sh", command)
	p.cmd.Stdout, p.cmd.Stderr = theirs, &p.words
	p.cmd.ExtraFiles = []*os.File{guard}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = killAfter // a process that has left the group may keep standard error open
	if err := child.Start(p.cmd); err != nil {
		_ = unix.Close(p.out)
		held.Close()
		return nil, fmt.Errorf("%w: %w", ErrProgram, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process group: first with SIGTERM, so that the program can release the camera, then with SIGKILL.
func (p *program) stop() {
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGTERM)
	p.await()
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	p.guard.Close()
	_ = unix.Close(p.out)
	p.await() // a killed program may hang in a driver, so the result does not matter
}

// await waits for the program's end, at most for killAfter, and reports whether the program has ended.
func (p *program) await() bool {
	limit, cancel := context.WithTimeout(context.Background(), killAfter)
	defer cancel()
	select {
	case <-p.ended:
		return true
	case <-limit.Done():
		return false
	}
}

// result returns an error that describes the end of a program that has closed its output.
func (p *program) result() error {
	if !p.await() {
		return fmt.Errorf("%w its output", errClosed)
	}
	var code *exec.ExitError
	switch {
	case errors.As(p.err, &code) && (code.ExitCode() == 127 || code.ExitCode() == 126):
		return fmt.Errorf("%w (is it installed?)%s", ErrProgram, p.words.last())
	case p.err != nil:
		return fmt.Errorf("%w with %w%s", ErrEnded, p.err, p.words.last())
	}
	return fmt.Errorf("%w with code 0%s", ErrEnded, p.words.last())
}

var errClosed = fmt.Errorf("%w, or it closed", ErrEnded)

// words keeps the newest bytes of a program's standard error. Write never fails.
type words struct {
	mu   sync.Mutex
	text [lastWords]byte
	n    int // bytes in text
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := b[max(0, len(b)-lastWords):]
	if over := w.n + len(kept) - lastWords; over > 0 {
		copy(w.text[:], w.text[over:w.n])
		w.n -= over
	}
	w.n += copy(w.text[w.n:], kept)
	return len(b), nil
}

// shownLines is the number of lines of standard error that an error quotes.
const shownLines = 3

// last returns the newest lines of standard error, to be added to an error; "" if there are none.
func (w *words) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := strings.FieldsFunc(string(w.text[:w.n]), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return ""
	}
	for i, line := range lines {
		lines[i] = plain.Text(strings.TrimSpace(line))
	}
	return "; its last lines: " + strings.Join(lines[max(0, len(lines)-shownLines):], " / ")
}
