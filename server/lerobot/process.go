package lerobot

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/internal/plain"
)

//go:embed worker.py
var program []byte

const (
	// lineMax bounds the bytes of one line of the worker's output, linesKept the number of lines
	// that are kept, and linesPerSecond the number of lines that are logged in a second.
	lineMax        = 2000
	linesKept      = 40
	linesPerSecond = 50
	// killedWithin is how long a killed worker may take to end.
	killedWithin = 5 * time.Second
	// readsWithin bounds the wait for the last lines of an ended worker: a process outside its group may still have
	// the pipe open.
	readsWithin = 100 * time.Millisecond
)

// process is one run of the worker.
type process struct {
	cmd     *exec.Cmd
	control *net.UnixConn
	life    *os.File // this end of the pipe by which the worker's guard detects the end of this process
	output  *output
	done    chan struct{} // closed when the worker has ended; then the field why is valid
	why     string
}

// startProcess starts the interpreter with the worker's program. The worker gets its own process group, so that the
// terminal's signals do not reach it.
func startProcess(python, settings string, rows *os.File, log *slog.Logger) (p *process, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "worker's control")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, err
	}
	p = &process{control: conn.(*net.UnixConn), done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.control.Close())
		}
	}()
	code, err := codeFile()
	if err != nil {
		return nil, err
	}
	defer code.Close()
	alive, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer alive.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, life.Close())
	}
	defer write.Close()
	p.life, p.output = life, &output{log: log, ended: make(chan struct{})}
	p.cmd = exec.Command(python, "/proc/self/fd/6")
	p.cmd.ExtraFiles = []*os.File{theirs, rows, alive, code}
	p.cmd.Stdout, p.cmd.Stderr = write, write
	p.cmd.Env = append(os.Environ(), "LEAN_WORKER="+settings, "PYTHONUNBUFFERED=1", "PYTHONFAULTHANDLER=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err = child.Start(p.cmd); err != nil {
		return nil, errors.Join(err, life.Close(), read.Close())
	}
	go p.output.read(read)
	go p.wait(read)
	return p, nil
}

// codeFile returns an open file that holds the worker's program. The file is in no folder.
func codeFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("lean_worker.py", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "lean_worker.py")
	_, err = f.Write(program)
	return f, err
}

// wait waits for the worker's end, and then ends all processes in the worker's process group.
func (p *process) wait(output io.Closer) {
	_ = p.cmd.Wait() // the process state has everything that the error reports
	p.kill()
	p.life.Close()
	select { // output reads the lines that the worker wrote just before its end
	case <-p.output.ended:
	case <-time.After(readsWithin):
	}
	output.Close()
	p.why = p.reason()
	close(p.done)
}

// kill ends the worker and its process group.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the process may have ended already
}

// end kills the worker and waits for its end, for at most killedWithin.
func (p *process) end() error {
	p.kill()
	gone := time.NewTimer(killedWithin)
	defer gone.Stop()
	select {
	case <-p.done:
		return p.control.Close()
	case <-gone.C:
		return errors.Join(p.control.Close(),
			fmt.Errorf("the worker (pid %d) is not gone %v after it was killed: a driver "+
				"may hold it", p.cmd.Process.Pid, killedWithin))
	}
}

// shot reports whether SIGKILL has ended the worker.
func (p *process) shot() bool {
	s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL
}

// reason describes the worker's end, with the last line that it printed.
func (p *process) reason() string {
	text := fmt.Sprintf("the worker ended: %v", p.cmd.ProcessState)
	if p.shot() {
		text += " (the kernel kills so when memory is short: see dmesg)"
	}
	if last := p.output.last(); last != "" {
		text += "; its last line: " + last
	}
	return text
}

// memory returns the bytes of main memory that the worker occupies; 0: unknown.
func (p *process) memory() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// output reads the lines that the worker prints. It keeps the last linesKept lines, and logs at most linesPerSecond.
type output struct {
	log   *slog.Logger
	ended chan struct{} // closed when the pipe has ended

	mu    sync.Mutex
	lines []string // guarded by mu

	// Owner: the reading goroutine.
	second time.Time
	logged int
	left   int
}

func (o *output) read(from io.Reader) {
	defer close(o.ended)
	lines := bufio.NewReaderSize(from, lineMax)
	for {
		line, long, err := lines.ReadLine()
		for long && err == nil { // the rest of a long line
			_, long, err = lines.ReadLine()
		}
		if text := strings.TrimRight(plain.Text(string(line)), " \r\n"); text != "" {
			o.add(text)
		}
		if err != nil {
			return
		}
	}
}

func (o *output) add(line string) {
	o.mu.Lock()
	o.lines = append(o.lines, line)
	if len(o.lines) > linesKept {
		o.lines = o.lines[1:]
	}
	o.mu.Unlock()
	if now := time.Now(); now.Sub(o.second) > time.Second {
		if o.left > 0 {
			o.log.Info("worker", "lines_left_out", o.left)
		}
		o.second = now
		o.logged = 0
		o.left = 0
	}
	if o.logged++; o.logged > linesPerSecond {
		o.left++
		return
	}
	o.log.Info("worker", "prints", line)
}

// last returns the last line that the worker printed, at most 300 bytes of it.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lines) == 0 {
		return ""
	}
	return fmt.Sprintf("%.300s", o.lines[len(o.lines)-1])
}
