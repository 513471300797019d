package servosim

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// client is a program at the other end of the terminal.
type client struct {
	t   testing.TB
	fd  int
	buf [4096]byte
}

func dial(t testing.TB, b *Bus) *client {
	t.Helper()
	fd, err := unix.Open(b.Path(), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open %s: %v", b.Path(), err)
	}
	c := &client{t: t, fd: fd}
	t.Cleanup(c.close)
	return c
}

func (c *client) close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}

func (c *client) send(request []byte) {
	if n, err := unix.Write(c.fd, request); n != len(request) || err != nil {
		c.t.Fatalf("write = %d, %v, want %d", n, err, len(request))
	}
}

// receive reads bytes until their number is want, or until no byte has come for the time patience.
func (c *client) receive(want int, patience time.Duration) []byte {
	n := 0
	for n < want {
		fds := [1]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
		if k, err := unix.Poll(fds[:], int(patience/time.Millisecond)); err == unix.EINTR {
			continue
		} else if k <= 0 {
			break
		}
		k, err := unix.Read(c.fd, c.buf[n:])
		if err != nil {
			break
		}
		n += k
	}
	return c.buf[:n]
}

// patience is the longest wait of a test for bytes that must come. No test waits for silence, see ask.
const patience = 5 * time.Second

// ask sends a request and fails unless exactly the reply want comes. Both are in hex. ask also
// sends a ping to servo 6, whose answer shows that no further bytes came before it.
func (c *client) ask(request, want string) {
	c.t.Helper()
	c.send(unhex(c.t, request))
	full := append(unhex(c.t, want), pong...)
	c.send(ping)
	if got := c.receive(len(full), patience); !bytes.Equal(got, full) {
		c.t.Errorf("%s is answered by % X, want %s", request, bytes.TrimSuffix(got, pong), want)
	}
}

var (
	ping = []byte{0xFF, 0xFF, 6, 2, 1, 0xF6}
	pong = []byte{0xFF, 0xFF, 6, 2, 0, 0xF7}
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	return rttest.Must(hex.DecodeString(strings.NewReplacer(" ", "", "|", "").Replace(s)))(t)
}

// open starts a bus, and closes it at the end of the test.
func open(t testing.TB, cfg Config) *Bus {
	t.Helper()
	b := rttest.Must(Open(cfg))(t)
	t.Cleanup(b.Close)
	return b
}

// dialed starts a bus with one client.
func dialed(t testing.TB, cfg Config) (*Bus, *client) {
	t.Helper()
	b := open(t, cfg)
	return b, dial(t, b)
}
