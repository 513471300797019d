package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

// secured writes a manifest whose robots connect by TLS.
func secured(t *testing.T, cert, key, more string) (manifest string) {
	t.Helper()
	return writeManifest(t, demoBundle(t)+fmt.Sprintf("service: demo\nzenoh:\n  tls:\n    listen_certificate: %q\n"+
		"    listen_private_key: %q\n%s", cert, key, more))
}

// When its certificate expires, the server is no longer ready, and its pages report that. With renewed files, the
// server becomes ready again. It also reports a certificate and a key that do not match.
func TestCertificatesWhileServing(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	ca := endpointtest.New(t)
	folder := t.TempDir()
	cert, key := filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	put := func(fromCert, fromKey string) {
		t.Helper()
		for from, to := range map[string]string{fromCert: cert, fromKey: key} {
			text, err := os.ReadFile(from)
			if err == nil {
				err = errors.Join(os.WriteFile(to+".new", text, 0o600), os.Rename(to+".new", to))
			}
			rttest.Do(t, err)
		}
	}
	long := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(90 * 24 * time.Hour) }
	good, goodKey := ca.IssueAs("good", long, "127.0.0.1")
	// This certificate expires while the server serves.
	short, shortKey := ca.IssueUntil(time.Now().Add(8*time.Second), "short", "127.0.0.1")
	put(short, shortKey)
	r := start(t, "--listen", "tls/127.0.0.1:"+freePort(t), "--manifest", secured(t, cert, key, ""))
	r.awaitReady()
	until := func(what, page string, code int, words ...string) {
		t.Helper()
		got, text := 0, ""
		rttest.Eventually(t, what, func() bool {
			got, text = r.page(page)
			for _, w := range words {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return got == code
		})
	}
	until("not ready", "/readyz", http.StatusServiceUnavailable, `the certificate "short" of `+cert+" ended on ",
		"robots refuse this server")
	until("health that says so", "/healthz", http.StatusOK, "ok, but the certificate", "ended on")
	until("a page that says so", "/status.json", http.StatusOK, "ended on")
	put(good, goodKey)
	until("ready again", "/readyz", http.StatusOK)
	over, overKey := ca.IssueUntil(time.Now().Add(-time.Minute), "over", "127.0.0.1")
	put(over, overKey)
	until("an expired renewal", "/healthz", http.StatusOK, "have changed and are not used",
		`("over") is valid from `, `certificate ("good")`)
	other, _ := ca.IssueAs("other", long, "127.0.0.1")
	put(other, goodKey)
	until("a pair that does not match", "/healthz", http.StatusOK, "have changed and are not used",
		"private key does not match", `certificate ("good")`)
	if code, text := r.page("/readyz"); code != http.StatusOK {
		t.Errorf("readyz = %d, %s, want 200: the set before is in use", code, text)
	}
	r.end(syscall.SIGTERM)
	r.CheckSays("NO ROBOT CAN CONNECT|the certificates are in order again|are not used")
}

// check refuses certificates that no robot could use, with the date in its error, and warns of certificates that end
// soon.
func TestCheckReadsTheCertificates(t *testing.T) {
	stagetest.NeedsRuntime(t)
	ca := endpointtest.New(t)
	issue := func(name string, from, to time.Duration) (cert, key string) {
		return ca.IssueAs(name, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to)
		}, "127.0.0.1")
	}
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name     string
		from, to time.Duration
		code     int
		want     string
	}{
		{"over", -9 * day, -day, 3, `the certificate "over" of `},
		{"early", day, 9 * day, 3, "is not valid before "},
		{"soon", -day, 3*day + time.Hour, 0, "ends in 3 days, on "},
		{"late", -day, 90 * day, 0, ""},
	} {
		cert, key := issue(tt.name, tt.from, tt.to)
		code, stdout, stderr := leanServer(t, nil, "check", "--manifest",
			secured(t, cert, key, "  listen_endpoints: [\"tls/127.0.0.1:7447\"]\n"))
		if code != tt.code || !strings.Contains(stdout+stderr, tt.want) ||
			strings.Contains(stdout, "warning") != (tt.name == "soon") {
			t.Errorf("%s: check = %d, %s%s, want %d with %q", tt.name, code, stdout, stderr, tt.code, tt.want)
		}
	}
}
