package zmtp

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

const replyMost = 1 << 20

// scripted serves one connection. It sends the greeting, waits for a request, sends the other given bytes, and then
// reads until the connection ends.
func scripted(t testing.TB, bytes []byte) (address string) {
	t.Helper()
	l := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		hello := min(len(bytes), greetingBytes+len(ready))
		c.Write(bytes[:hello])
		io.CopyN(io.Discard, c, int64(greetingBytes+len(ready)+8))
		c.Write(bytes[hello:])
		io.Copy(io.Discard, c)
	}()
	return "tcp://" + l.Addr().String()
}

func greeting(mechanism string) []byte {
	b := make([]byte, greetingBytes)
	copy(b, signature)
	b[versionAt] = version
	copy(b[mechanismAt:], mechanism)
	return b
}

func frame(flags byte, body string) []byte { return append([]byte{flags, byte(len(body))}, body...) }

func readyOf(kind string) []byte {
	return frame(flagCommand, "\x05READY\x0BSocket-Type\x00\x00\x00"+string(rune(len(kind)))+kind)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestHostilePeers(t *testing.T) {
	hello := join(greeting(null), readyOf("REP"))
	for _, tt := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"not ZeroMQ", []byte(strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 4)), "greeting of ZMTP 3"},
		{"security", greeting("CURVE"), `"CURVE"`},
		{"no READY", join(greeting(null), frame(0, "hello")), "want READY"},
		{"publisher", join(greeting(null), readyOf("PUB")), `"PUB"`},
		{"READY without type", join(greeting(null), frame(flagCommand, "\x05READY\x01")), `""`},
		{"frame of 2^63 bytes", join(hello, []byte{flagLong, 0x7F, 255, 255, 255, 255, 255, 255, 255}), "want at most"},
		{"frame of 2^64-1 bytes", join(hello, []byte{flagLong, 255, 255, 255, 255, 255, 255, 255, 255}),
			"want at most"},
		{"unknown flags", join(hello, frame(0x80, "x")), "flags 0x80"},
		{"long command", join(hello, []byte{flagLong | flagCommand, 0, 0, 0, 0, 0, 1, 0, 0}), "want at most"},
		{"two frames", join(hello, frame(flagMore, ""), frame(flagMore, "a"), frame(0, "b")), "more than one"},
		{"a second reply", join(hello, frame(0, "a"), frame(0, "b")), "no request asked for"},
		{"endless commands", join(hello, bytes.Repeat(frame(flagCommand, "\x01X"), 2*envelopeMost)), "without a reply"},
		{"ERROR", join(hello, frame(flagCommand, "\x05ERROR\x02no")), `no`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			c, err := Dial(ctx, scripted(t, tt.bytes), replyMost)
			for err == nil {
				defer c.Close()
				_, err = c.Request(ctx, make([]byte, 99))
			}
			rttest.FailsAs(t, err, ErrProtocol, tt.want)
		})
	}
}

// A peer may end the connection at any byte, and the error names the place.
func TestCutAnywhere(t *testing.T) {
	whole := join(greeting(null), readyOf("REP"), frame(flagMore, ""), frame(0, "reply"))
	for n := range whole {
		c := &Conn{Conn: &pipe{r: bytes.NewReader(whole[:n])}, limit: 100}
		err := c.greet()
		if err == nil {
			_, err = c.reply(true)
		}
		if err == nil || !strings.Contains(err.Error(), "ended the connection after") {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}

func TestRequestEndsWithItsContext(t *testing.T) {
	c := rttest.Must(Dial(context.Background(), scripted(t, join(greeting(null), readyOf("REP")))+"/", replyMost))(t)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	rttest.FailsAs(t, rttest.Err(c.Request(ctx, []byte("x"))), context.DeadlineExceeded)
}

// The error of an interrupted Dial is that of its context, not that of a silent peer.
func TestDialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	rttest.FailsAs(t, rttest.Err(Dial(ctx, scripted(t, nil), replyMost)), context.Canceled)
}

// repServer is a Python program that answers each request with the request and sends heartbeats. It needs pyzmq.
const repServer = `
import sys, zmq
s = zmq.Context().socket(zmq.REP)
s.setsockopt(zmq.HEARTBEAT_IVL, 20)
s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000)
port = s.bind_to_random_port("tcp://127.0.0.1")
print(port, flush=True)
while True:
    s.send(s.recv())
`

// TestPyzmq tests greeting, envelope, long frames and heartbeats with libzmq as the peer.
func TestPyzmq(t *testing.T) {
	python := os.Getenv("EDGERT_PYTHON")
	if python == "" {
		python = "../../.venv/bin/python"
	}
	if exec.Command(python, "-c", "import zmq").Run() != nil {
		t.Skipf("%s has no pyzmq", python)
	}
	cmd := exec.Command(python, "-c", repServer)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	rttest.Do(t, err)
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	port := make([]byte, 16)
	n := rttest.Must(out.Read(port))(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := rttest.Must(Dial(ctx, "tcp://127.0.0.1:"+strings.TrimSpace(string(port[:n])), 8<<20))(t)
	defer c.Close()
	for _, size := range []int{0, 1, 255, 256, 3 << 20, 7} {
		time.Sleep(30 * time.Millisecond) // time for at least one heartbeat
		body := bytes.Repeat([]byte{byte(size)}, size)
		if reply, err := c.Request(ctx, body); err != nil || !bytes.Equal(reply, body) {
			t.Fatalf("a request of %d bytes: %d bytes, %v", size, len(reply), err)
		}
	}
}

// pipe is a connection whose peer has already sent all its bytes.
type pipe struct {
	net.Conn
	r *bytes.Reader
}

func (p *pipe) Read(b []byte) (int, error)  { return p.r.Read(b) }
func (p *pipe) Write(b []byte) (int, error) { return len(b), nil }

// Property: on any bytes from a peer, reading the greeting and the reply ends, and a reply is no longer than its limit.
func FuzzFrames(f *testing.F) {
	f.Add(join(greeting(null), readyOf("REP"), frame(flagMore, ""), frame(0, "reply")))
	f.Add(join(greeting(null), readyOf("ROUTER"), frame(flagCommand, "\x04PING\x00\x00x"), frame(0, "reply")))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Conn{Conn: &pipe{r: bytes.NewReader(b)}, limit: 100}
		if c.greet() != nil {
			return
		}
		if reply, err := c.reply(true); err == nil && len(reply) > c.limit {
			t.Fatalf("a reply of %d bytes, the limit is %d", len(reply), c.limit)
		}
	})
}
