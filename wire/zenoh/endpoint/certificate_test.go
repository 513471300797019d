package endpoint

import (
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

func TestReadCertificate(t *testing.T) {
	ca := endpointtest.New(t)
	named, _ := ca.Issue("host", "arm-a", "arm-a-2", "127.0.0.1")
	plain, _ := ca.Issue("arm-b")
	for _, tt := range []struct {
		file, common string
		names        []string
	}{{named, "host", []string{"arm-a", "arm-a-2"}}, {plain, "arm-b", []string{"arm-b"}}} {
		c, err := ReadCertificate(tt.file)
		if err != nil || c.CommonName != tt.common || !slices.Equal(c.Names, tt.names) {
			t.Errorf("ReadCertificate = %+v, %v, want %q and %q", c, err, tt.common, tt.names)
		}
	}
	_, key := ca.Issue("arm-c")
	junk := rttest.WriteFile(t, t.TempDir(), "junk.pem",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	for _, file := range []string{key, junk, "/nowhere.pem"} {
		rttest.Fails(t, rttest.Err(ReadCertificate(file)), file)
	}
}

func TestEnding(t *testing.T) {
	ca := endpointtest.New(t)
	now := time.Now()
	soon, _ := ca.IssueUntil(now.Add(12*24*time.Hour+time.Hour), "soon")
	late, _ := ca.IssueUntil(now.Add(31*24*time.Hour), "late")
	over, _ := ca.IssueUntil(now.Add(-time.Hour), "over")
	open, openKey := ca.IssueUntil(now.Add(31*24*time.Hour), "open")
	rttest.Do(t, errors.Join(os.Chmod(openKey, 0o644), os.Chmod(filepath.Dir(openKey), 0o755)))
	for _, tt := range []struct {
		s    Security
		want []string
	}{
		{Security{ConnectCertificate: late}, nil},
		{Security{ConnectCertificate: "/nowhere.pem"}, nil},
		{Security{ConnectCertificate: soon, ListenCertificate: late}, []string{"soon.pem ends in 12 days"}},
		{Security{ListenCertificate: over, ConnectCertificate: soon},
			[]string{"soon.pem ends in 12 days", "over.pem ended on"}},
		{Security{ConnectCertificate: open, ConnectKey: openKey}, []string{"can read the private key " + openKey}},
		{Security{ListenCertificate: open, ListenKey: openKey}, []string{"can read the private key " + openKey}},
		{Security{RootCA: over}, []string{"over.pem ended on"}},
	} {
		got := tt.s.ending(now)
		if !slices.EqualFunc(got, tt.want, strings.Contains) {
			t.Errorf("%+v: %q, want %q", tt.s, got, tt.want)
		}
	}
	listening := Endpoint{Protocol: TLS, Security: Security{ListenCertificate: open, ListenKey: openKey}}.Listening(now)
	warns := func(f Finding) bool { return strings.Contains(f.Text, openKey) && !f.Refused }
	if !slices.ContainsFunc(listening, warns) {
		t.Errorf("a listener with a key that all can read: %v, want a warning", listening)
	}
}

func TestEnds(t *testing.T) {
	ca := endpointtest.New(t)
	end := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	cert, _ := ca.IssueUntil(end, "arm")
	s := Security{RootCA: "/nowhere.pem", ConnectCertificate: cert}
	got := map[string]time.Time{}
	s.Ends(func(file string, end time.Time) { got[file] = end })
	if len(got) != 1 || !got["connect"].Equal(end) {
		t.Errorf("%v, want the end of connect alone, %v", got, end)
	}
}

// The error for a file in DER, a binary format, contains the command that converts the file to PEM.
func TestDERIsNamed(t *testing.T) {
	cert, _ := endpointtest.New(t).Issue("arm")
	block, _ := pem.Decode(rttest.Must(os.ReadFile(cert))(t))
	rttest.Do(t, os.WriteFile(cert, block.Bytes, 0o600))
	rttest.Fails(t, rttest.Err(ReadCertificate(cert)), "-inform DER")
}
