package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// TestMain makes this program a parent process when an environment variable asks for that.
func TestMain(m *testing.M) {
	if os.Getenv("CHILD_TEST_PARENT") == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("sleep", "600")
	if err := Start(cmd); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(cmd.Process.Pid)
	time.Sleep(10 * time.Minute) // the process waits until it is killed
}

// A parent that is killed with SIGKILL leaves no child.
func TestNobodyIsLeft(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "CHILD_TEST_PARENT=1")
	out := rttest.Must(parent.StdoutPipe())(t)
	rttest.Do(t, parent.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says %q", line)
	}
	parent.Process.Kill()
	parent.Wait()
	t.Cleanup(func() {
		if t.Failed() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	rttest.Eventually(t, "the end of the child", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		// the orphan is no child of this process, so its zombie may remain
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// When a goroutine that is locked to its thread ends, the thread ends, too. A child that the
// goroutine started still runs.
func TestAThreadThatEndsEndsNoChild(t *testing.T) {
	started := make(chan *exec.Cmd)
	go func() {
		runtime.LockOSThread()
		cmd := exec.Command("sleep", "600")
		if err := Start(cmd); err != nil {
			t.Error(err)
		}
		started <- cmd
	}()
	cmd := <-started
	if cmd.Process == nil {
		return
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	select {
	case err := <-gone:
		t.Errorf("the child ended: %v", err)
	case <-time.After(300 * time.Millisecond):
		cmd.Process.Kill()
		<-gone
	}
}
