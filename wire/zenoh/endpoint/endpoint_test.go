package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("x", maxPath)
	for _, tt := range []struct {
		text string
		want Endpoint
		err  string
	}{
		{"tcp/host:7447", Endpoint{Protocol: tcp, Address: "host:7447"}, ""},
		{"tcp/[::1]:7447", Endpoint{Protocol: tcp, Address: "[::1]:7447"}, ""},
		{"tcp/[fe80::1%eth0]:7447", Endpoint{Protocol: tcp, Address: "[fe80::1%eth0]:7447"}, ""},
		{"tls/router.example.org:7447", Endpoint{Protocol: TLS, Address: "router.example.org:7447"}, ""},
		{"unixsock-stream//run/edge/zenoh.sock", Endpoint{Protocol: Unix, Address: "/run/edge/zenoh.sock"}, ""},
		{"unixsock-stream/zenoh.sock", Endpoint{Protocol: Unix, Address: "zenoh.sock"}, ""},
		{"unixsock-stream/" + long, Endpoint{Protocol: Unix, Address: long}, ""},
		{"tls/h:1#root_ca_certificate_file=/ca.pem;verify_name_on_connect=false;enable_mtls=true",
			Endpoint{Protocol: TLS, Address: "h:1", Security: Security{RootCA: "/ca.pem", AnyName: true,
				MutualTLS: true}}, ""},
		{"tls/h:1#connect_certificate_file=c;connect_private_key_file=k;listen_certificate_file=lc;" +
			"listen_private_key_file=lk",
			Endpoint{Protocol: TLS, Address: "h:1", Security: Security{
				ConnectCertificate: "c",
				ConnectKey:         "k",
				ListenCertificate:  "lc",
				ListenKey:          "lk",
			}}, ""},
		{"", Endpoint{}, "want tcp/host:port"},
		{"localhost:7447", Endpoint{}, "want tcp/host:port"},
		{"quic/h:1", Endpoint{}, "want tcp/host:port"},
		{"tcp/h", Endpoint{}, "missing port"},
		{"tcp/::1:7447", Endpoint{}, "IPv6 in brackets: address ::1:7447: too many colons"},
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
		if tt.err == "" && (err != nil || got != tt.want) || tt.err != "" &&
			(!rttest.Says(err, tt.err)) {
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

// exchange listens at one endpoint, dials the other and sends a byte each way. The result accepted is the listener's
// error. The result dialled is the error of the dialler's handshake, or else of its first read.
func exchange(t *testing.T, listen, dial Endpoint) (accepted, dialled error) {
	t.Helper()
	l := rttest.Must(listen.Listen())(t)
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

// Goal: each side trusts the certificates that it should trust. TestEachFailureHasItsOwnCure tests the certificates
// that a side must refuse.
func TestTrust(t *testing.T) {
	ours, foreign := endpointtest.New(t), endpointtest.New(t)
	server, serverKey := ours.Issue("server", "localhost", "127.0.0.1", "::1")
	other, otherKey := ours.Issue("other", "elsewhere.example")
	robot, robotKey := ours.Issue("robot")
	stranger, strangerKey := foreign.Issue("stranger")
	plain := Security{ListenCertificate: server, ListenKey: serverKey}
	mutual := Security{ListenCertificate: server, ListenKey: serverKey, RootCA: ours.CA, MutualTLS: true}
	for _, tt := range []struct {
		name         string
		listen, dial Security
		host         string
	}{
		{"by address", plain, Security{RootCA: ours.CA}, "127.0.0.1"},
		{"by name", plain, Security{RootCA: ours.CA}, "localhost"},
		{"another name, unchecked", Security{ListenCertificate: other, ListenKey: otherKey},
			Security{RootCA: ours.CA, AnyName: true}, "127.0.0.1"},
		{"mutual", mutual, Security{
			RootCA:             ours.CA,
			ConnectCertificate: robot,
			ConnectKey:         robotKey,
			MutualTLS:          true,
		}, "127.0.0.1"},
		{"shown though not demanded", plain, Security{RootCA: ours.CA, ConnectCertificate: stranger,
			ConnectKey: strangerKey}, "127.0.0.1"},
	} {
		accepted, dialled := exchange(t, Endpoint{TLS, "127.0.0.1:0", tt.listen},
			Endpoint{TLS, tt.host + ":0", tt.dial})
		if accepted != nil || dialled != nil {
			t.Errorf("%s: accepted with %v, dialled with %v", tt.name, accepted, dialled)
		}
	}
	t.Run("TLS 1.2", func(t *testing.T) {
		l := rttest.Must(Endpoint{TLS, "127.0.0.1:0", plain}.Listen())(t)
		defer l.Close()
		go func() {
			conn, _ := l.Accept()
			defer conn.Close()
			l.Secure(conn)
		}()
		rttest.Fails(t, rttest.Err(tls.Dial("tcp", l.Addr().String(),
			&tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true})))
	})
}

func TestIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip(err)
	} else {
		l.Close()
	}
	local := Endpoint{Protocol: tcp, Address: "[fe80::1]:7447"}
	rttest.Fails(t, local.Unreachable(syscall.EINVAL), "[fe80::1%eth0]")
	ca := endpointtest.New(t)
	cert, key := ca.Issue("six", "::1")
	if a, d := exchange(t, Endpoint{Protocol: tcp, Address: "[::1]:0"},
		Endpoint{Protocol: tcp, Address: "[::1]:0"}); a != nil || d != nil {
		t.Error(a, d)
	}
	if a, d := exchange(t, Endpoint{TLS, "[::1]:0", Security{ListenCertificate: cert, ListenKey: key}},
		Endpoint{TLS, "[::1]:0", Security{RootCA: ca.CA}}); a != nil || d != nil {
		t.Error(a, d)
	}
}

// fix holds the words that the dialler's and the listener's errors must contain, and misleading words that the
// dialler's error must not contain.
type fix struct {
	dialled, accepted []string
	never             string
}

// Goal: the error names each cause of a TLS failure exactly, with names, dates and the remedy. Only one cause has the
// remedy "give the root CA".
func TestEachFailureHasItsOwnCure(t *testing.T) {
	const giveCA = "give the root CA"
	hour := time.Hour
	usage := func(u x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{u} }
	}
	ours := endpointtest.New(t)
	other := endpointtest.Make(t, func(c *x509.Certificate) { c.Subject.CommonName = "other CA" })
	anew := endpointtest.New(t) // another authority with the same name and another key
	old := endpointtest.Make(t, valid(-9*hour, -hour))
	young := endpointtest.Make(t, valid(24*hour, 48*hour))
	listen := func(cert, key string) Security { return Security{ListenCertificate: cert, ListenKey: key} }
	mutual := func(s Security, ca string) Security { s.RootCA, s.MutualTLS = ca, true; return s }
	good := listen(ours.Issue("gpu-box", "127.0.0.1"))
	over := listen(ours.IssueAs("gpu-over", valid(-9*hour, -hour), "127.0.0.1"))
	early := listen(ours.IssueAs("gpu-early", valid(24*hour, 48*hour), "127.0.0.1"))
	named := listen(ours.Issue("gpu-named", "gpu.example", "10.9.8.7"))
	nameless := listen(ours.Issue("gpu-nameless"))
	byOld := listen(old.Issue("gpu-old", "127.0.0.1"))
	byYoung := listen(young.IssueAs("gpu-young", func(*x509.Certificate) {}, "127.0.0.1"))
	robot := func(cert, key, ca string) Security {
		return Security{RootCA: ca, ConnectCertificate: cert, ConnectKey: key}
	}
	shows := func(name string, change func(*x509.Certificate)) Security {
		cert, key := ours.IssueAs(name, change)
		return robot(cert, key, ours.CA)
	}
	strangerCert, strangerKey := other.Issue("stranger")
	oldCert, oldKey := old.Issue("robot-old")
	trust := Security{RootCA: ours.CA}
	for _, tt := range []struct {
		name         string
		listen, dial Security
		want         fix
	}{
		{"over", over, trust, fix{[]string{`its certificate "gpu-over" expired on `, "this machine's clock says ",
			"have it renewed on the server"}, []string{"it refuses our certificate", "gpu-over", "expired on"},
			giveCA}},
		{"not begun", early, trust, fix{[]string{`its certificate "gpu-early" is not valid before `,
			"this machine's clock is probably behind: set it"}, []string{"gpu-early", "is not valid before"}, giveCA}},
		{"over, name unchecked", over, Security{RootCA: ours.CA, AnyName: true},
			fix{[]string{`"gpu-over" expired on `, "renewed"}, nil, giveCA}},
		{"another name", named, trust, fix{[]string{`"gpu-named" is for gpu.example, 10.9.8.7 and not for 127.0.0.1`,
			"dial a name that is in the certificate", "switch verify_name_on_connect off"},
			[]string{"must dial a name that the certificate has"}, giveCA}},
		{"no name", nameless, trust, fix{[]string{`"gpu-nameless" is for no host at all`, "subjectAltName"}, nil,
			giveCA}},
		{"another authority", good, Security{RootCA: other.CA},
			fix{[]string{`"gpu-box" was signed by "test CA", and `, `holds "other CA"`, "give the root CA that signed",
				"intermediate"}, []string{"it needs the root CA of this certificate"}, "expired"}},
		{"another authority, name unchecked", good, Security{RootCA: other.CA, AnyName: true},
			fix{[]string{"give the root CA that signed"}, nil, "expired"}},
		{"the system's authorities", good, Security{},
			fix{[]string{"the system's authorities do not hold it", "give the root CA that signed"}, nil, "expired"}},
		{"an authority made anew", good, Security{RootCA: anew.CA},
			fix{[]string{"another authority", "which has the same name", "made anew"}, nil, "expired"}},
		{"an authority that is over", byOld, Security{RootCA: old.CA},
			fix{[]string{`the authority "test CA", which signed its certificate "gpu-old", expired on`,
				"its file copied here"}, nil, giveCA}},
		{"an authority that has not begun", byYoung, Security{RootCA: young.CA},
			fix{[]string{`the authority "test CA", which signed its certificate "gpu-young", is not valid before`,
				"clock is probably behind"}, nil, giveCA}},
		{"nothing shown", mutual(good, ours.CA), trust,
			fix{[]string{"it wants one: --tls-cert FILE --tls-key FILE", "we showed none"},
				[]string{"it shows no certificate", "enable_mtls demands one"}, giveCA}},
		{"a stranger's", mutual(good, ours.CA), robot(strangerCert, strangerKey, ours.CA),
			fix{[]string{`("stranger") was signed by "other CA"`, "show one that its root CA vouches for"},
				[]string{"none of the authorities in "}, giveCA}},
		{"one that is over", mutual(good, ours.CA), shows("robot-over", valid(-9*hour, -hour)),
			fix{[]string{`robot-over.pem ("robot-over") expired on `},
				[]string{`the client's certificate "robot-over" expired on `, "renewed on the robot"}, giveCA}},
		{"one whose authority is over", mutual(good, old.CA), robot(oldCert, oldKey, ours.CA),
			fix{[]string{`the authority "test CA" has expired in its root_ca_certificate`, "made anew"},
				[]string{`the authority "test CA", which signed the client's certificate "robot-old", expired on`},
				giveCA}},
		{"an early one", mutual(good, ours.CA), shows("robot-early", valid(24*hour, 48*hour)),
			fix{[]string{`robot-early.pem ("robot-early") is not valid before `},
				[]string{`"robot-early" is not valid before `}, giveCA}},
		{"one for servers", mutual(good, ours.CA), shows("robot-server", usage(x509.ExtKeyUsageServerAuth)),
			fix{[]string{"robot-server", "is not for clients: its extendedKeyUsage lacks clientAuth"},
				[]string{`"robot-server" is not for clients`}, giveCA}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			accepted, dialled := exchange(t, Endpoint{TLS, "127.0.0.1:0", tt.listen},
				Endpoint{TLS, "127.0.0.1:0", tt.dial})
			rttest.Fails(t, dialled, tt.want.dialled...)
			rttest.Fails(t, accepted, tt.want.accepted...)
			if rttest.Says(dialled, tt.want.never) {
				t.Errorf("dialled: %v\nwant it without %q", dialled, tt.want.never)
			}
			var auth *AuthError
			if !errors.As(dialled, &auth) {
				t.Errorf("dialled: %T, want an AuthError", dialled)
			}
		})
	}
}

// valid returns a function that sets a certificate's period of validity. The period begins at from and ends at to, both
// counted from now.
func valid(from, to time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to) }
}

// Before a robot dials, the listener reports a certificate that every client would refuse.
func TestListeningWithACertificateForClients(t *testing.T) {
	ca := endpointtest.New(t)
	cert, key := ca.IssueAs("gpu", func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}, "127.0.0.1")
	err := Endpoint{TLS, "127.0.0.1:0", Security{ListenCertificate: cert, ListenKey: key}}.CheckListen()
	rttest.Fails(t, err, `("gpu") is not for servers: its extendedKeyUsage lacks serverAuth`)
	anyone, anyKey := ca.IssueAs("any", func(c *x509.Certificate) { c.ExtKeyUsage = nil }, "127.0.0.1")
	// without extendedKeyUsage
	rttest.Do(t, Endpoint{TLS, "127.0.0.1:0", Security{ListenCertificate: anyone, ListenKey: anyKey}}.CheckListen())
}

// Goal: the error of dialling tls/ names the cause when a tcp/ listener, or another protocol,
// answers.
func TestTLSWhereNobodySpeaksIt(t *testing.T) {
	ca := endpointtest.New(t)
	for _, tt := range []struct {
		name   string
		answer func(net.Conn)
		want   string
	}{
		{"words", func(c net.Conn) {
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		}, "its answer is not a TLS record (it does not speak TLS: dial it as tcp/127.0.0.1:"},
		{"the end", func(c net.Conn) {
			io.CopyN(io.Discard, c, 5)
		}, "it ended the connection in the handshake (where it listens on tcp/, dial it as tcp/127.0.0.1:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer l.Close()
			go func() {
				if conn, err := l.Accept(); err == nil {
					tt.answer(conn)
					conn.Close()
				}
			}()
			_, err := Endpoint{TLS, l.Addr().String(), Security{RootCA: ca.CA}}.Dial(context.Background(), nil)
			var plain *PlainError
			if !errors.As(err, &plain) || !rttest.Says(err, tt.want) || rttest.Says(err, "root CA") {
				t.Errorf("Dial = %v, want a PlainError with %q", err, tt.want)
			}
		})
	}
}

// When a client without TLS dials a tls/ listener, both sides' errors name the cause, even if the length of the
// client's first message looks like a TLS record type.
func TestPlainBytesAtATLSListener(t *testing.T) {
	ca := endpointtest.New(t)
	cert, key := ca.Issue("gpu", "127.0.0.1")
	l := rttest.Must(Endpoint{TLS, "127.0.0.1:0", Security{ListenCertificate: cert, ListenKey: key}}.Listen())(t)
	defer l.Close()
	for _, begin := range []string{"\x20\x00\x01 no TLS at all, but many bytes",
		"\x16\x00\x01\x09\x2a 22 bytes of Zenoh", "\x15\x00\x01\x09\x2a 21 bytes of it", "\x16"} {
		refused := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_, err = l.Secure(conn)
				conn.Close()
			}
			refused <- err
		}()
		conn := rttest.Must(net.Dial("tcp", l.Addr().String()))(t)
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		conn.Write([]byte(begin))
		if begin == "\x16" { // the first two bytes arrive one at a time
			conn.Write([]byte("\x00"))
		}
		answer, _ := io.ReadAll(conn)
		conn.Close()
		rttest.Want(t, string(answer), "\x15\x03\x01\x00\x02\x02\x46", "the answer to %q", begin)
		rttest.Fails(t, <-refused, "it speaks no TLS, and this endpoint is tls/: it must dial "+
			"tls/HOST:PORT")
	}
}

// Goal: at any time a listener can report the faults of the certificates that it shows now, and that it does not use
// newer files.
func TestCertificatesOfAListener(t *testing.T) {
	ca := endpointtest.New(t)
	now, hour := time.Now(), time.Hour
	cert, key := ca.IssueAs("gpu", valid(-hour, 72*hour+time.Minute), "127.0.0.1")
	own := ca.CA + ".own"
	copyFile(t, ca.CA, own)
	l := rttest.Must(Endpoint{TLS, "127.0.0.1:0", Security{
		ListenCertificate: cert,
		ListenKey:         key,
		RootCA:            own,
		MutualTLS:         true,
	}}.Listen())(t)
	defer l.Close()
	put := func(newCert, newKey string) {
		copyFile(t, newCert, cert)
		copyFile(t, newKey, key)
	}
	check := func(when time.Time, refused bool, want ...string) {
		t.Helper()
		found := l.Certificates(when)
		all, any := "", false
		for _, f := range found {
			all, any = all+f.Text+"\n", any || f.Refused
		}
		if any != refused || len(found) < len(want) {
			t.Errorf("Certificates = %+v, want refused %v and %q", found, refused, want)
		}
		rttest.Contains(t, all, want...)
	}
	check(now, false, `the certificate "gpu" of `, "gpu.pem ends in 3 days, on ")
	// the authority's certificate has ended by then
	check(now.Add(71*hour), true, "ends in less than two hours", `of `+own+" ended on ")
	check(now.Add(73*hour), true, "gpu.pem ended on ", "robots refuse this server")
	check(now.Add(-2*hour), true, "gpu.pem is not valid before ", "clock where it is behind")

	other, _ := ca.Issue("other", "127.0.0.1")
	copyFile(t, other, cert)
	check(now, false, "have changed and are not used", "private key does not match",
		"goes on with the set before, whose certificate (\"gpu\") ends on ")
	check(now.Add(73*hour), true, "gpu.pem ended on ", "are not used")
	young, youngKey := ca.IssueAs("young", valid(hour/2, 71*hour), "127.0.0.1")
	put(young, youngKey)
	check(now, false, `("young") is valid from `, "goes on with the set before, whose certificate (\"gpu\")")
	over, overKey := ca.IssueAs("over", valid(-2*hour, -hour), "127.0.0.1")
	put(over, overKey)
	check(now, false, `("over") is valid from `, "goes on with the set before, whose certificate (\"gpu\")")
	put(young, youngKey)
	check(now.Add(45*time.Minute), false, `the certificate "young" of `)
	next, nextKey := ca.IssueUntil(now.Add(90*24*hour), "next", "127.0.0.1")
	put(next, nextKey)
	for _, f := range l.Certificates(now) {
		if strings.Contains(f.Text, "gpu.pem") {
			t.Errorf("after a renewal: %s", f.Text)
		}
	}
	rttest.Do(t, os.Remove(own))
	check(now, false, own+": no such file", "are not used")
}

// Goal: before any dial, an error names a wrong file and its expected content.
func TestFilesAreChecked(t *testing.T) {
	ca := endpointtest.New(t)
	cert, key := ca.Issue("a", "127.0.0.1")
	_, otherKey := ca.Issue("b")
	junk := rttest.WriteFile(t, t.TempDir(), "junk.pem", "hello")
	huge := rttest.WriteFile(t, t.TempDir(), "huge.pem", make([]byte, maxPEM+1))
	root := rttest.ReadFile(t, ca.CA)
	oneLine := copiedText(t, root+strings.TrimSpace(root)+root) // cat of a file that does not end with a newline
	marked, wide := copiedText(t, "\uFEFF"+root), copiedText(t, "\xFF\xFE-\x00")
	locked := copiedText(t, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
	locked1 := copiedText(t, "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n"+
		"AAAA\n-----END EC PRIVATE KEY-----\n")
	rttest.Do(t, Endpoint{TLS, "127.0.0.1:7447", Security{RootCA: marked}}.CheckDial())
	for _, tt := range []struct {
		name   string
		listen bool
		s      Security
		want   []string
	}{
		{"root CA absent", false, Security{RootCA: "/absent.pem"}, []string{"/absent.pem", "no such file"}},
		{"root CA that is none", false, Security{RootCA: junk}, []string{junk, "no certificate"}},
		{"root CA that is a key", false, Security{RootCA: key}, []string{key, "no certificate"}},
		{"root CA whose blocks share a line", false, Security{RootCA: oneLine},
			[]string{oneLine, "2 of its 3", "lines"}},
		{"root CA in UTF-16", false, Security{RootCA: wide}, []string{wide, "UTF-16"}},
		{"key with a passphrase", false, Security{ConnectCertificate: cert, ConnectKey: locked},
			[]string{locked, "passphrase", "openssl pkey"}},
		{"older key with a passphrase", true, Security{ListenCertificate: cert, ListenKey: locked1},
			[]string{locked1, "passphrase"}},
		{"too large", false, Security{RootCA: huge}, []string{huge, "more than"}},
		{"certificate without key", false, Security{ConnectCertificate: cert}, []string{cert, "go together"}},
		{"another's key", false, Security{ConnectCertificate: cert, ConnectKey: otherKey},
			[]string{cert, otherKey, "belongs to it"}},
		{"mutual without certificate", false, Security{RootCA: ca.CA, MutualTLS: true},
			[]string{"without a certificate to show when dialling"}},
		{"listening without certificate", true, Security{RootCA: ca.CA}, []string{"without a certificate to show"}},
		{"listening with a junk certificate", true, Security{ListenCertificate: junk, ListenKey: key},
			[]string{junk, "PEM"}},
		{"mutual without authorities", true, Security{ListenCertificate: cert, ListenKey: key, MutualTLS: true},
			[]string{"give the root CA"}},
	} {
		e := Endpoint{TLS, "127.0.0.1:7447", tt.s}
		err := e.CheckDial()
		if tt.listen {
			err = e.CheckListen()
		}
		if !rttest.Says(err, tt.want...) || rttest.Says(err, "\n") {
			t.Errorf("%s: %v, want one line with %q", tt.name, err, tt.want)
		}
	}
}

// Goal: a listener shows a renewed certificate without a restart, and keeps the old one while the
// new files are unusable. The new files have the size and the time of the old ones.
func TestRenewedCertificate(t *testing.T) {
	old, next := endpointtest.New(t), endpointtest.New(t)
	cert, key := old.Issue("a", "127.0.0.1")
	copyFile(t, cert, cert)
	copyFile(t, key, key)
	l := rttest.Must(Endpoint{TLS, "127.0.0.1:0", Security{ListenCertificate: cert, ListenKey: key}}.Listen())(t)
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
	rttest.Do(t, trusts(old.CA))
	newCert, newKey := next.Issue("a", "127.0.0.1")
	copyFile(t, newCert, cert)
	rttest.Do(t, trusts(old.CA)) // the new certificate is here, and its key is not
	copyFile(t, newKey, key)
	rttest.Do(t, trusts(next.CA))
	rttest.Fails(t, trusts(old.CA))
}

// copyFile replaces a file. All files that it makes have one size and time.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	next := rttest.WriteFile(t, "", to+".new", fmt.Sprintf("%-2000s", rttest.ReadFile(t, from)))
	rttest.Do(t, os.Chtimes(next, time.Time{}, time.Unix(1, 0)))
	rttest.Do(t, os.Rename(next, to))
}

// Goal: Listen replaces the socket file of a dead process. It fails if the socket is in use, or if a file of another
// kind exists.
func TestSocketFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "z.sock")
	at := Endpoint{Protocol: Unix, Address: path}
	stale := rttest.Must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	stale.SetUnlinkOnClose(false)
	stale.Close()
	rttest.Fails(t, rttest.Err(at.Dial(context.Background(), nil)), "refused") // Dial of a stale socket
	l := rttest.Must(at.Listen())(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("mode %v, %v; want %o", info.Mode(), err, socketMode)
	}
	rttest.Fails(t, rttest.Err(at.Listen()), "another process listens") // second Listen
	// a duplicate, as a child process has between fork and exec
	rttest.Must(syscall.Dup(int(l.lock.Fd())))(t)
	l.Close()
	rttest.FailsAs(t, rttest.Err(os.Stat(path)), fs.ErrNotExist) // Close has removed the socket file
	if a, d := exchange(t, at, at); a != nil || d != nil {
		t.Error(a, d)
	}
	os.WriteFile(path, []byte("mine"), 0o600)
	rttest.Fails(t, rttest.Err(at.Listen()), "no socket") // Listen on a plain file
	rttest.Want(t, rttest.ReadFile(t, path), "mine", "a file that is no socket")
	absent := Endpoint{Protocol: Unix, Address: filepath.Join(t.TempDir(), "absent")}
	rttest.Fails(t, rttest.Err(absent.Dial(context.Background(), nil)), "no such file") // Dial of no socket
}
