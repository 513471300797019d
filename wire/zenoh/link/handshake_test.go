package link

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// A node that sends TLS or HTTP to a Zenoh port is refused at once, and the error names the protocol. If we read the
// node's first bytes as a length, we would wait until the timeout of the handshake.
func TestForeignProtocolsAreNamed(t *testing.T) {
	for _, tt := range []struct{ name, bytes, want string }{
		{"a TLS client", "\x16\x03\x01\x00\xc8\x01",
			"it speaks TLS, and this endpoint is tcp/: it must dial tcp/HOST:PORT"},
		{"an alert", "\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS: dial it as tls/"},
		{"a browser", "GET / HTTP/1.1\r\n", "it speaks HTTP"},
		{"sshd", "SSH-2.0-OpenSSH_9.2p1\r\n", `it begins with "SSH-2.0-OpenSSH_9.2p1\r\n"`},
		{"a web server", "HTTP/1.1 400 Bad Request\r\n", "it speaks HTTP"},
	} {
		for _, open := range []func(net.Conn) error{
			func(conn net.Conn) error {
				cfg := Config{ZID: []byte{1}, Role: codec.Client, Lease: time.Second}
				return rttest.Err(Dial(t.Context(), conn, cfg))
			},
			func(conn net.Conn) error { return rttest.Err(Accept(conn, Config{ZID: []byte{1}}, anyone)) },
		} {
			ours, theirs := net.Pipe()
			go io.Copy(io.Discard, theirs)
			go theirs.Write([]byte(tt.bytes))
			rttest.FailsAs(t, open(ours), ErrForeign, tt.want)
			ours.Close()
			theirs.Close()
		}
	}
}

func TestDialOfAPortWhereNothingAnswers(t *testing.T) {
	ours, theirs := net.Pipe()
	go io.Copy(io.Discard, theirs)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, ours, Config{ZID: []byte{1}, Role: codec.Client, Lease: time.Second})
	rttest.Fails(t, err, "it took the connection: another program")
}

// A tls/ listener of another implementation ends a plain connection without an answer.
func TestDialOfAConnectionThatEndsAtOnce(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		theirs.Read(make([]byte, 64))
		theirs.Close()
	}()
	_, err := Dial(context.Background(), ours, Config{ZID: []byte{1}, Role: codec.Client, Lease: time.Second})
	rttest.FailsAs(t, err, io.EOF, "where it listens on tls/, dial it as tls/")
}
