package pipe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// TestMain makes the test program act as an edge with a camera, if an environment variable has the camera's command.
func TestMain(m *testing.M) {
	command := os.Getenv("PIPE_TEST_COMMAND")
	if command == "" {
		os.Exit(m.Run())
	}
	if _, err := Open(Config{Command: command, Format: mjpeg}, rt.KernelClock()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	time.Sleep(10 * time.Minute) // the parent kills this process
}

var (
	mjpeg = camera.Format{Pixels: camera.MJPEG, FPS: 30}
	tiny  = camera.Format{
		Width:  8,
		Height: 4,
		Pixels: camera.RGB8,
		FPS:    30,
	} // 96 bytes
)

// folder returns a folder with three files: the files "a" and "b" have one picture each, and the file "many" has the
// picture of "a" 3000 times.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	a := picture(t, 0)
	for name, content := range map[string][]byte{"a": a, "b": picture(t, 100), "many": bytes.Repeat(a, 3000)} {
		rttest.WriteFile(t, dir, name, content)
	}
	return dir
}

func open(t *testing.T, dir, command string, f camera.Format) *Source {
	t.Helper()
	s := rttest.Must(Open(Config{Command: "cd " + dir + "; " + command, Format: f}, rt.KernelClock()))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestTheNewestPictureIsTaken(t *testing.T) {
	dir := folder(t)
	s := open(t, dir, "cat a; read x < go; cat a a a b; sleep 600", mjpeg)
	if f := s.Format(); f.Width != 32 || f.Height != 16 {
		t.Errorf("the format is %v, want the first picture's size", f)
	}
	// All four pictures arrive before the second Grab.
	s.program.stop()
	s.program = nil
	rttest.Do(t, unix.Mkfifo(filepath.Join(dir, "go"), 0o600))
	rttest.Do(t, s.restart())
	f := frameOf(s)
	rttest.Do(t, s.Grab(&f))
	rttest.WriteFile(t, dir, "go", "\n")
	rttest.Eventually(t, "the pictures in the pipe", func() bool {
		n, _ := unix.IoctlGetInt(s.program.out, unix.TIOCINQ)
		return n == 3*len(picture(t, 0))+len(picture(t, 100))
	})
	before, skipped := s.clock.Now(), s.Counts().Skipped
	if err := s.Grab(&f); err != nil || !bytes.Equal(f.Pix, picture(t, 100)) {
		t.Errorf("Grab has %d bytes (%v), want the last of four pictures", len(f.Pix), err)
	}
	if c := s.Counts(); c.Skipped != skipped+3 || f.At < before || f.At > s.clock.Now() {
		t.Errorf("%d skipped, at %v, want 3, and the instant of arrival", c.Skipped-skipped, f.At)
	}
}

// Grab starts a program that ends again, and its error has the program's last lines.
func TestAProgramThatEndsIsStartedAgain(t *testing.T) {
	s := open(t, folder(t), `cat a; echo 'the lens fell off' >&2; exit 7`, mjpeg)
	f := frameOf(s)
	err := s.Grab(&f)
	rttest.FailsAs(t, err, ErrEnded, "exit status 7", "the lens fell off")
	if err := s.Grab(&f); err != nil || s.Counts().Restarts != 1 {
		t.Errorf("then: %v, %d restarts, want a picture of the second program", err, s.Counts().Restarts)
	}
	rttest.Want(t, s.backoff, 2*backoffMin, "the next pause")
}

// hasty is a clock that runs 50 times as fast.
type hasty struct{ rt.Clock }

func (c hasty) Now() rt.Instant { return 50 * c.Clock.Now() }

func TestOpenNamesTheCause(t *testing.T) {
	dir := folder(t)
	raw := func(bytes int) string { return fmt.Sprintf("while sleep 0.06; do printf %%0%dd 0; done", bytes) }
	slow := "while sleep 0.15; do printf %0192d 0; done"
	for _, tt := range []struct {
		command string
		format  camera.Format
		err     error
		says    string
	}{
		{"no-such-program", mjpeg, ErrProgram, "not found"},
		{"echo bye >&2; exit 3", mjpeg, ErrEnded, "exit status 3; its last lines: bye"},
		{"echo hello", mjpeg, ErrEnded, "6 bytes without a whole picture"},
		{"head -c 2000000 /dev/zero", mjpeg, ErrPictures, "no JPEG in"},
		{"cat a; sleep 600", camera.Format{Width: 64, Height: 48, Pixels: camera.MJPEG, FPS: 30}, ErrPictures, "32x16"},
		{raw(60), tiny, ErrPictures, "60 bytes at a time"},
		{raw(100), tiny, ErrPictures, "100 bytes at a time"},
		{raw(192), tiny, ErrPictures, "2 pictures of rgb 8x4"},
		{slow, tiny, ErrPictures, "2 pictures of rgb 8x4"},
	} {
		s, err := Open(Config{Command: "cd " + dir + ";" + tt.command, Format: tt.format}, rt.KernelClock())
		if err == nil {
			s.Close()
		}
		rttest.FailsAs(t, err, tt.err, tt.says)
	}
	_, err := Open(Config{Command: "sleep 600", Format: mjpeg}, hasty{rt.KernelClock()})
	// a silent program
	rttest.FailsAs(t, err, ErrSilent)
	part := "printf %050d 0; sleep 600" // half a picture: 50 of 96 bytes
	if _, err = Open(Config{Command: part, Format: tiny}, hasty{rt.KernelClock()}); !errors.Is(err, ErrPictures) ||
		!rttest.Says(err, "50 bytes in") {
		t.Errorf("a program that writes too little: %v, want %v", err, ErrPictures)
	}
	canceled := func() bool { return true }
	rttest.Fails(t, rttest.Err(Open(Config{Command: "sleep 600", Format: mjpeg, Canceled: canceled}, rt.KernelClock())))
}

// A raw picture begins after a pause of the output, so the picture after a torn one is whole.
func TestATornRawPictureShiftsNoOther(t *testing.T) {
	s := open(t, t.TempDir(), `p() { sleep 0.06; printf "%0$1d" $2; }; p 96 1; p 50 2; p 96 3; sleep 600`, tiny)
	f := frameOf(s)
	for {
		rttest.Do(t, s.Grab(&f))
		if end := f.Pix[95]; end == '3' {
			break
		} else if end != '1' {
			t.Fatalf("a picture ends with %q", end)
		}
	}
	rttest.Want(t, s.Counts().Broken, 1, "broken")
}

// If a program writes without end, Grab reads its output at a bounded rate.
func TestAFloodIsNotRead(t *testing.T) {
	f := camera.Format{
		Width:  64,
		Height: 64,
		Pixels: camera.Gray8,
		FPS:    30,
	}
	s := open(t, t.TempDir(), "cat /dev/zero", f)
	frame := camera.Frame{Pix: make([]byte, f.FrameBytes())}
	before := s.sequence
	for end := s.clock.Now().Add(500 * time.Millisecond); s.clock.Now() < end; {
		rttest.Do(t, s.Grab(&frame))
	}
	if got, most := s.sequence-before, uint64(2*flood*30+2*chunk/f.FrameBytes()); got > most {
		t.Errorf("%d pictures were read, want at most %d", got, most)
	}
}

func TestGrabNoAlloc(t *testing.T) {
	s := open(t, folder(t), "cat many; sleep 600", mjpeg)
	s.format.FPS = 10_000 // no flood
	f := frameOf(s)
	rttest.NoAllocs(t, "Grab allocates %v times, want 0", 100, func() {
		rttest.Do(t, s.Grab(&f))
	})
}

// alive reports whether the process pid exists and is no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// The whole process group ends when the camera is closed or the edge is killed, including a process that ignores
// SIGTERM and writes nothing.
func TestNoProcessIsLeft(t *testing.T) {
	const command = `(trap '' TERM; exec sleep 600) & echo $! > pid; cat a; wait`
	pidOf := func(dir string) (pid int) {
		rttest.Eventually(t, "the process", func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, "pid"))
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			return pid > 0 && alive(pid)
		})
		t.Cleanup(func() {
			if t.Failed() {
				unix.Kill(pid, unix.SIGKILL)
			}
		})
		return pid
	}
	dir := folder(t)
	s := open(t, dir, command, mjpeg)
	pid := pidOf(dir)
	s.Close()
	rttest.Eventually(t, "the end of the process", func() bool { return !alive(pid) })

	dir = folder(t)
	edge := exec.Command(os.Args[0])
	edge.Env = append(os.Environ(), "PIPE_TEST_COMMAND=cd "+dir+"; "+command)
	rttest.Do(t, edge.Start())
	pid = pidOf(dir)
	edge.Process.Kill()
	edge.Wait()
	rttest.Eventually(t, "the end of the process of a killed edge", func() bool { return !alive(pid) })
}

// frameOf returns a frame with room for the pictures of a source.
func frameOf(s *Source) camera.Frame {
	return camera.Frame{Pix: make([]byte, s.Format().FrameBytes())}
}
