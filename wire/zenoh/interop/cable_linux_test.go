package interop

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

const (
	cableEnv = "EDGERT_CABLE"
	cutFor   = 4 * time.Second
)

// cable switches the loopback interface of our own network namespace: while it is off no packet
// arrives, and no process gets an error.
func cable(t *testing.T, on bool) {
	t.Helper()
	fd := rttest.Must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, lo)
	}
	if err == nil {
		flags := lo.Uint16() &^ unix.IFF_UP
		if on {
			flags |= unix.IFF_UP
		}
		lo.SetUint16(flags)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
	}
	rttest.Do(t, err)
}

// links records the events of a session's links.
type links struct {
	mu      sync.Mutex
	up      bool
	changed time.Time
	lost    error
	refused error // the router's CloseError for a node id that it still has
}

func (l *links) note(e zenoh.LinkEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var closed *link.CloseError
	if errors.As(e.Err, &closed) {
		l.refused = e.Err
	}
	if e.Up != l.up {
		l.up = e.Up
		l.changed = time.Now()
		l.lost = e.Err
	}
}

func (l *links) are(t *testing.T, up bool, since time.Time) (after time.Duration, why error) {
	t.Helper()
	rttest.Eventually(t, "the link's change", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.up == up })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused != nil {
		t.Errorf("refused: %v", l.refused)
	}
	return l.changed.Sub(since), l.lost
}

// Goal: at an official router with the default lease of 10 s, our sessions detect a cut cable long before this lease
// ends, and reconnect without help when the cable is back. The router does not refuse them although it still has their
// old links, and all declarations work as before.
func TestCableCutBehindARouter(t *testing.T) {
	if os.Getenv(cableEnv) == "" {
		inNamespace(t)
		return
	}
	cable(t, true)
	over(t, func(t *testing.T, v version) {
		_, at := v.router(t)
		var events [2]links
		a := ours(t, zenoh.Config{Connect: []string{at}, Lease: zenoh.DefaultLease, Links: events[0].note})
		b := ours(t, zenoh.Config{Connect: []string{at}, Lease: zenoh.DefaultLease, Links: events[1].note})
		e := declareAll(t, "@cable", a, b)
		e.flows(t, "before")
		cut := time.Now()
		cable(t, false)
		for i := range events {
			after, why := events[i].are(t, false, cut)
			t.Logf("session %d noticed after %.1f s: %v", i, after.Seconds(), why)
			if after > 2*cutFor {
				t.Errorf("session %d noticed after %v, which is the router's lease", i, after)
			}
		}
		time.Sleep(time.Until(cut.Add(cutFor))) // until then the cable stays cut
		back := time.Now()
		cable(t, true)
		for i := range events {
			after, _ := events[i].are(t, true, back)
			t.Logf("session %d was back after %.2f s", i, after.Seconds())
		}
		e.flows(t, "after")
		rttest.Eventually(t, "the token", func() bool {
			all := e.tokens.Entries()
			return len(all) > 2 && all[len(all)-1] == "+@cable/b"
		})
		t.Logf("everything worked %.2f s after the cable came back: %v", time.Since(back).Seconds(), e.tokens.Entries())
	})
}

// inNamespace runs the test in a separate process, in a new network namespace.
func inNamespace(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "3m")
	cmd.Env = append(os.Environ(), cableEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	if errors.Is(err, os.ErrPermission) {
		t.Skip("only root makes a network namespace")
	}
	if err == nil {
		err = cmd.Wait()
	}
	t.Logf("in a network of its own:\n%s", out.String())
	switch {
	case err != nil:
		t.Error(err)
	case bytes.Contains(out.Bytes(), []byte("--- SKIP")):
		t.Skip("it was skipped there")
	}
}

// Goal: a connection may go silent without ending, for example through a proxy whose system still confirms our bytes.
// Our session ends it at the end of the router's lease, and not before.
func TestSilenceBehindARouter(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, v version) {
		if !v.newest {
			t.Skip("one version is enough")
		}
		_, at := v.router(t)
		way := proxy(t, at)
		var events links
		a := ours(t, zenoh.Config{Connect: []string{way.Endpoint(), at}, Lease: zenoh.DefaultLease, Links: events.note})
		b := ours(t, zenoh.Config{Connect: []string{at}})
		e := declareAll(t, "@silent", b, a)
		e.flows(t, "before")
		cut := time.Now()
		way.Set(netfault.CutUp | netfault.CutDown)
		after, why := events.are(t, false, cut)
		t.Logf("noticed after %.1f s: %v", after.Seconds(), why)
		rttest.FailsAs(t, why, link.ErrExpired)
		back, _ := events.are(t, true, cut)
		e.flows(t, "after")
		t.Logf("on the second endpoint %.2f s later", (back - after).Seconds())
	})
}
