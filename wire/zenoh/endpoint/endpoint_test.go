package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgert/wire/zenoh/endpoint/endpointtest"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("x", maxPath)
	for _, tt := range []struct {
		text string
		want Endpoint
		err  string
	}{
		{"tcp/host:7447", Endpoint{Protocol: TCP, Address: "host:7447"}, ""},
		{"tcp/[::1]:7447", Endpoint{Protocol: TCP, Address: "[::1]:7447"}, ""},
		{"tcp/[fe80::1%eth0]:7447", Endpoint{Protocol: TCP, Address: "[fe80::1%eth0]:7447"}, ""},
		{"tls/router.example.org:7447", Endpoint{Protocol: TLS, Address: "router.example.org:7447"}, ""},
		{"unixsock-stream//run/edge/zenoh.sock", Endpoint{Protocol: Unix, Address: "/run/edge/zenoh.sock"}, ""},
		{"unixsock-stream/zenoh.sock", Endpoint{Protocol: Unix, Address: "zenoh.sock"}, ""},
		{"unixsock-stream/" + long, Endpoint{Protocol: Unix, Address: long}, ""},
		{"tls/h:1#root_ca_certificate_file=/ca.pem;verify_name_on_connect=false;enable_mtls=true",
			Endpoint{Protocol: TLS, Address: "h:1", Security: Security{RootCA: "/ca.pem", AnyName: true, MutualTLS: true}}, ""},
		{"tls/h:1#connect_certificate_file=c;connect_private_key_file=k;listen_certificate_file=lc;listen_private_key_file=lk",
			Endpoint{Protocol: TLS, Address: "h:1", Security: Security{ConnectCertificate: "c", ConnectKey: "k", ListenCertificate: "lc", ListenKey: "lk"}}, ""},
		{"", Endpoint{}, "want tcp/host:port"},
		{"localhost:7447", Endpoint{}, "want tcp/host:port"},
		{"quic/h:1", Endpoint{}, "want tcp/host:port"},
		{"tcp/h", Endpoint{}, "missing port"},
		{"tcp/::1:7447", Endpoint{}, "too many colons"},
		{"tcp/h:http", Endpoint{}, `port "http", want 0 to 65535`},
		{"tcp/h:65536", Endpoint{}, "want 0 to 65535"},
		{"tcp/h:1?prio=1-3", Endpoint{}, "metadata"},
		{"tcp/h:1#iface=eth0", Endpoint{}, "tls/ only"},
		{"unixsock-stream/", Endpoint{}, "want the path"},
		{"unixsock-stream/@abstract", Endpoint{}, "abstract"},
		{"unixsock-stream/" + long + "x", Endpoint{}, "at most 107"},
		{"tls/h:1#root_ca_certificate_base64=QUJD", Endpoint{}, "root_ca_certificate_base64=QUJD"},
		{"tls/h:1#enable_mtls=yes", Endpoint{}, `option enable_mtls is "yes", want true or false`},
		{"tls/h:1#enable_mtls", Endpoint{}, "not supported"},
		{"tls/h:1#" + strings.Repeat("enable_mtls=true;", 300), Endpoint{}, "at most 4096"},
	} {
		got, err := Parse(tt.text, Security{})
		if tt.err == "" && (err != nil || got != tt.want) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("Parse(%.60q) = %+v, %v; want %+v, %q", tt.text, got, err, tt.want, tt.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("tls/[::1]:7447#root_ca_certificate_file=/ca.pem;enable_mtls=true")
	f.Add("unixsock-stream//tmp/x?y=1#z=2")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text, Security{})
		if err != nil {
			return
		}
		again, err := Parse(e.String(), e.Security)
		if err != nil || again != e {
			t.Errorf("Parse(%q) = %+v, and of its text %+v, %v", text, e, again, err)
		}
	})
}

// exchange listens and dials and sends a byte each way. It returns the errors of
// both sides; the dialling side's is the first of handshake and read.
func exchange(t *testing.T, listen, dial Endpoint) (accepted, dialled error) {
	t.Helper()
	l, err := listen.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dial.Protocol != Unix {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		host, _, _ := net.SplitHostPort(dial.Address)
		dial.Address = net.JoinHostPort(host, port)
	}
	side := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			side <- err
			return
		}
		defer raw.Close()
		conn, err := l.Secure(raw)
		if err == nil {
			var b [1]byte
			if _, err = io.ReadFull(conn, b[:]); err == nil {
				_, err = conn.Write(b[:])
			}
		}
		side <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	prepared := false
	conn, err := dial.Dial(ctx, func(c net.Conn) {
		prepared = true
		if _, ok := c.(*tls.Conn); ok {
			t.Error("prepared after TLS began")
		}
	})
	if err == nil {
		defer conn.Close()
		if !prepared {
			t.Error("the connection was not prepared")
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		b := []byte{7}
		conn.Write(b)
		_, err = io.ReadFull(conn, b)
		err = dial.Refused(err)
	}
	return <-side, err
}

// Goal: who trusts whom, on both sides, and what is said when they do not.
func TestTrust(t *testing.T) {
	ours, foreign := endpointtest.New(t), endpointtest.New(t)
	server, serverKey := ours.Issue("server", "localhost", "127.0.0.1", "::1")
	other, otherKey := ours.Issue("other", "elsewhere.example")
	stale, staleKey := ours.IssueUntil(time.Now().Add(-time.Hour), "stale", "127.0.0.1")
	robot, robotKey := ours.Issue("robot")
	stranger, strangerKey := foreign.Issue("stranger")
	plain := Security{ListenCertificate: server, ListenKey: serverKey}
	mutual := Security{ListenCertificate: server, ListenKey: serverKey, RootCA: ours.CA, MutualTLS: true}
	for _, tt := range []struct {
		name         string
		listen, dial Security
		host         string
		err          string // what the dialling side says
	}{
		{"by address", plain, Security{RootCA: ours.CA}, "127.0.0.1", ""},
		{"by name", plain, Security{RootCA: ours.CA}, "localhost", ""},
		{"another authority", plain, Security{RootCA: foreign.CA}, "127.0.0.1", "give the root CA that signed"},
		{"the system's authorities", plain, Security{}, "127.0.0.1", "give the root CA that signed"},
		{"another name", Security{ListenCertificate: other, ListenKey: otherKey}, Security{RootCA: ours.CA}, "127.0.0.1", "switch verify_name_on_connect off"},
		{"another name, unchecked", Security{ListenCertificate: other, ListenKey: otherKey}, Security{RootCA: ours.CA, AnyName: true}, "127.0.0.1", ""},
		{"another authority, name unchecked", plain, Security{RootCA: foreign.CA, AnyName: true}, "127.0.0.1", "give the root CA that signed"},
		{"expired", Security{ListenCertificate: stale, ListenKey: staleKey}, Security{RootCA: ours.CA}, "127.0.0.1", "expired"},
		{"expired, name unchecked", Security{ListenCertificate: stale, ListenKey: staleKey}, Security{RootCA: ours.CA, AnyName: true}, "127.0.0.1", "expired"},
		{"mutual", mutual, Security{RootCA: ours.CA, ConnectCertificate: robot, ConnectKey: robotKey, MutualTLS: true}, "127.0.0.1", ""},
		{"mutual, nothing shown", mutual, Security{RootCA: ours.CA}, "127.0.0.1", "it refused our certificate"},
		{"mutual, a stranger", mutual, Security{RootCA: ours.CA, ConnectCertificate: stranger, ConnectKey: strangerKey}, "127.0.0.1", "it refused our certificate"},
		{"shown though not demanded", plain, Security{RootCA: ours.CA, ConnectCertificate: stranger, ConnectKey: strangerKey}, "127.0.0.1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			accepted, dialled := exchange(t, Endpoint{TLS, "127.0.0.1:0", tt.listen}, Endpoint{TLS, tt.host + ":0", tt.dial})
			if tt.err == "" {
				if accepted != nil || dialled != nil {
					t.Errorf("accepted with %v, dialled with %v", accepted, dialled)
				}
				return
			}
			var auth *AuthError
			if !errors.As(dialled, &auth) || !strings.Contains(dialled.Error(), tt.err) || accepted == nil {
				t.Errorf("dialled with %v, accepted with %v; want an AuthError that says %q, and one", dialled, accepted, tt.err)
			}
		})
	}
	t.Run("TLS at a TCP listener", func(t *testing.T) {
		_, err := exchange(t, Endpoint{Protocol: TCP, Address: "127.0.0.1:0"}, Endpoint{TLS, "127.0.0.1:0", Security{RootCA: ours.CA}})
		if err == nil {
			t.Error("dialled")
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		l, err := Endpoint{TLS, "127.0.0.1:0", plain}.Listen()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			conn, _ := l.Accept()
			defer conn.Close()
			l.Secure(conn)
		}()
		if _, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}); err == nil {
			t.Error("a client of TLS 1.2 was accepted")
		}
	})
}

func TestIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip(err)
	} else {
		l.Close()
	}
	ca := endpointtest.New(t)
	cert, key := ca.Issue("six", "::1")
	if a, d := exchange(t, Endpoint{Protocol: TCP, Address: "[::1]:0"}, Endpoint{Protocol: TCP, Address: "[::1]:0"}); a != nil || d != nil {
		t.Error(a, d)
	}
	if a, d := exchange(t, Endpoint{TLS, "[::1]:0", Security{ListenCertificate: cert, ListenKey: key}}, Endpoint{TLS, "[::1]:0", Security{RootCA: ca.CA}}); a != nil || d != nil {
		t.Error(a, d)
	}
}

// Goal: wrong files are named, with what was wanted, before anything is dialled.
func TestFilesAreChecked(t *testing.T) {
	ca := endpointtest.New(t)
	cert, key := ca.Issue("a", "127.0.0.1")
	_, otherKey := ca.Issue("b")
	junk := filepath.Join(t.TempDir(), "junk.pem")
	os.WriteFile(junk, []byte("hello"), 0o600)
	huge := filepath.Join(t.TempDir(), "huge.pem")
	os.WriteFile(huge, make([]byte, maxPEM+1), 0o600)
	for _, tt := range []struct {
		name   string
		listen bool
		s      Security
		want   []string
	}{
		{"root CA absent", false, Security{RootCA: "/absent.pem"}, []string{"/absent.pem", "no such file"}},
		{"root CA that is none", false, Security{RootCA: junk}, []string{junk, "no certificate"}},
		{"root CA that is a key", false, Security{RootCA: key}, []string{key, "no certificate"}},
		{"too large", false, Security{RootCA: huge}, []string{huge, "more than"}},
		{"certificate without key", false, Security{ConnectCertificate: cert}, []string{cert, "go together"}},
		{"another's key", false, Security{ConnectCertificate: cert, ConnectKey: otherKey}, []string{cert, otherKey, "belongs to it"}},
		{"mutual without certificate", false, Security{RootCA: ca.CA, MutualTLS: true}, []string{"without a certificate to show when dialling"}},
		{"listening without certificate", true, Security{RootCA: ca.CA}, []string{"without a certificate to show"}},
		{"listening with a junk certificate", true, Security{ListenCertificate: junk, ListenKey: key}, []string{junk, "PEM"}},
		{"mutual without authorities", true, Security{ListenCertificate: cert, ListenKey: key, MutualTLS: true}, []string{"give the root CA"}},
	} {
		e := Endpoint{TLS, "127.0.0.1:7447", tt.s}
		err := e.CheckDial()
		if tt.listen {
			err = e.CheckListen()
		}
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %q, want one line with %q", tt.name, err, w)
			}
		}
	}
}

// Goal: a listener shows a renewed certificate without a restart, and goes on
// with the old one while the new files are unusable.
func TestRenewedCertificate(t *testing.T) {
	old, next := endpointtest.New(t), endpointtest.New(t)
	cert, key := old.Issue("a", "127.0.0.1")
	l, err := Endpoint{TLS, "127.0.0.1:0", Security{ListenCertificate: cert, ListenKey: key}}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go l.Secure(conn)
		}
	}()
	trusts := func(ca string) error {
		conn, err := Endpoint{TLS, l.Addr().String(), Security{RootCA: ca}}.Dial(context.Background(), nil)
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := trusts(old.CA); err != nil {
		t.Fatal(err)
	}
	newCert, newKey := next.Issue("a", "127.0.0.1")
	copyFile(t, newCert, cert)
	if err := trusts(old.CA); err != nil {
		t.Errorf("with a certificate whose key has not come yet: %v", err)
	}
	copyFile(t, newKey, key)
	if err := trusts(next.CA); err != nil {
		t.Errorf("with a renewed certificate: %v", err)
	}
	if err := trusts(old.CA); err == nil {
		t.Error("the old certificate is still shown")
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Goal: a socket file left behind by a dead process does not keep a listener
// away; one that somebody listens on, or a file that is none, does.
func TestSocketFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "z.sock")
	at := Endpoint{Protocol: Unix, Address: path}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if _, err := at.Dial(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Dial of a stale socket = %v", err)
	}
	l, err := at.Listen()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("mode %v, %v; want %o", info.Mode(), err, socketMode)
	}
	if _, err := at.Listen(); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("second Listen = %v", err)
	}
	l.Close()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket file is still there: %v", err)
	}
	if a, d := exchange(t, at, at); a != nil || d != nil {
		t.Error(a, d)
	}
	os.WriteFile(path, []byte("mine"), 0o600)
	if _, err := at.Listen(); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("Listen on a plain file = %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "mine" {
		t.Error("a file that is no socket was removed")
	}
	absent := Endpoint{Protocol: Unix, Address: filepath.Join(t.TempDir(), "absent")}
	if _, err := absent.Dial(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("Dial of no socket = %v", err)
	}
}
