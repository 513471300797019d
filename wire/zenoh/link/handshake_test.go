package link

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// A node that sends TLS or HTTP to a Zenoh port is refused at once, and the error names the protocol. Read as a length,
// the node's first bytes would make us wait until the timeout of the handshake.
func TestForeignProtocolsAreNamed(t *testing.T) {
	for _, tt := range []struct{ name, bytes, want string }{
		{"a TLS client", "\x16\x03\x01\x00\xc8\x01",
			"it speaks TLS, and this endpoint is tcp/: it must dial tcp/HOST:PORT"},
		{"an alert", "\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS: dial it as tls/"},
		{"a browser", "GET / HTTP/1.1\r\n", "it speaks HTTP"},
		{"sshd", "SSH-2.0-OpenSSH_9.2p1\r\n", `it begins with "SSH-2.0-OpenSSH_9.2p1\r\n"`},
		{"a web server", "HTTP/1.1 400 Bad Request\r\n", "it speaks HTTP"},
	} {
		for side, open := range map[string]func(net.Conn) error{
			"dial": func(conn net.Conn) error {
				_, err := Dial(context.Background(), conn, Config{ZID: []byte{1}, Role: codec.Client,
					Lease: time.Second})
				return err
			},
			"accept": func(conn net.Conn) error {
				_, err := Accept(conn, Config{ZID: []byte{1}}, anyone)
				return err
			},
		} {
			ours, theirs := net.Pipe()
			go io.Copy(io.Discard, theirs)
			go theirs.Write([]byte(tt.bytes))
			err := open(ours)
			if !errors.Is(err, ErrForeign) || !rttest.Says(err, tt.want) {
				t.Errorf("%s, %s: %v, want ErrForeign with %q, and not that nothing came in time", tt.name, side, err,
					tt.want)
			}
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
	if !rttest.Says(err, "it took the connection: another program") {
		t.Errorf("Dial = %v, want that another program may listen there", err)
	}
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
