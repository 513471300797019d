package endpoint

import (
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

// Goal: either side refuses a certificate that its authority has revoked, also when the revocation list is out of date.
// It refuses no other certificate.
func TestRevokedCertificates(t *testing.T) {
	ca, now := endpointtest.New(t), time.Now()
	server, serverKey := ca.Issue("server", "127.0.0.1")
	good, goodKey := ca.Issue("good")
	stolen, stolenKey := ca.Issue("stolen")
	listen := Security{ListenCertificate: server, ListenKey: serverKey, RootCA: ca.Revoke(now.Add(time.Hour), stolen),
		MutualTLS: true}
	robot := func(cert, key string) Security {
		return Security{RootCA: ca.CA, ConnectCertificate: cert, ConnectKey: key}
	}
	other := robot(good, goodKey)
	listenOver := listen
	listenOver.RootCA = copied(t, ca.Revoke(now.Add(-time.Minute), stolen))
	other.RootCA = copied(t, ca.Revoke(now.Add(time.Hour), server))
	unnamed := other
	unnamed.AnyName = true
	listen.RootCA = ca.Revoke(now.Add(time.Hour), stolen)
	for _, tt := range []struct {
		name              string
		listen, dial      Security
		accepted, dialled string
	}{
		{"not in the list", listen, robot(good, goodKey), "", ""},
		{"the client's", listen, robot(stolen, stolenKey),
			`the client's certificate "stolen" was revoked by "test CA" on`,
			`stolen.pem ("stolen") may have been revoked by "test CA"`},
		{"the list is over", listenOver, robot(stolen, stolenKey), `"stolen" was revoked by "test CA" on`,
			"may have been"},
		{"the server's", listen, other, "it refuses our certificate",
			`its certificate "server" was revoked by "test CA" on`},
		{"the server's, name unchecked", listen, unnamed, "it refuses", `"server" was revoked by "test CA" on`},
	} {
		accepted, dialled := exchange(t, Endpoint{TLS, "127.0.0.1:0", tt.listen}, Endpoint{TLS, "127.0.0.1:0", tt.dial})
		for side, got := range map[string][2]any{"accepted": {accepted, tt.accepted},
			"dialled": {dialled, tt.dialled}} {
			err, _ := got[0].(error)
			want, _ := got[1].(string)
			if (err == nil) != (want == "") || err != nil && !rttest.Says(err, want) {
				t.Errorf("%s: %s with %v, want %q", tt.name, side, err, want)
			}
		}
	}
	l := rttest.Must(Endpoint{TLS, "127.0.0.1:0", listenOver}.Listen())(t)
	defer l.Close()
	said := ""
	for _, f := range l.Certificates(now) {
		said += f.Text
	}
	want := `the revocation list of "test CA" in ` + listenOver.RootCA + " ended on "
	if !strings.Contains(said, want) {
		t.Errorf("Certificates = %s, want %q", said, want)
	}
}

// Goal: a root CA file with a revocation list of an authority that is not in the file is refused, because such a list
// would revoke nothing.
func TestListOfAnotherAuthority(t *testing.T) {
	ours, theirs := endpointtest.New(t), endpointtest.Make(t, func(c *x509.Certificate) {
		c.Subject.CommonName = "other"
	})
	text := rttest.ReadFile(t, theirs.Revoke(time.Now().Add(time.Hour)))
	mixed := copied(t, ours.CA)
	rttest.Do(t, os.WriteFile(mixed, []byte(text[strings.Index(text, "-----BEGIN X509"):]+
		rttest.ReadFile(t, ours.CA)), 0o600))
	for file, want := range map[string]string{
		mixed: `no authority in it has signed its revocation list of "CN=other"`,
		copiedText(t, "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"): "openssl ca -gencrl",
	} {
		_, err := readAuthorities(file)
		rttest.Fails(t, err, want)
	}
}

func copied(t *testing.T, from string) string {
	t.Helper()
	return copiedText(t, rttest.ReadFile(t, from))
}

func copiedText(t *testing.T, text string) (path string) {
	t.Helper()
	path = rttest.WriteFile(t, t.TempDir(), "ca.pem", text)
	return path
}
