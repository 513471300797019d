package interop

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
)

// identity returns the code blocks of a kind (sh, yaml) in the section "Identity" of docs/fleet.md.
func identity(kind string) (blocks []string) {
	page := string(rttest.OrPanic(os.ReadFile("../../../docs/fleet.md")))
	section := regexp.MustCompile(`(?s)\n## Identity\n.*?\n## `).FindString(page)
	for _, m := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// try is a run of a robot with a certificate, and the expected end of this run.
type try struct {
	id, cert, ca, host string // cert: the files of the certificate are PREFIX.pem and PREFIX.key
	code               int
	says               string // text that the robot's log must contain
}

// tries runs all robots at the same time.
func (f *fleet) tries(all ...try) {
	f.t.Helper()
	var runs []*program
	for _, x := range all {
		state := f.t.TempDir()
		runs = append(runs, f.start(filepath.Join(f.bin, "edge-rt"),
			[]string{"STATE_DIRECTORY=" + state, "HF_LEROBOT_CALIBRATION=" + state}, "--bus", "sim", "--camera",
			"top=sim",
			"--id", x.id, "--connect", "tls/"+x.host+":"+f.ports["gpu-box"], "--duration", "1s", "--max-offline", "2s",
			"--request-timeout", "1s", "--reconnect-initial-backoff", "100ms", "--tls-ca", x.ca, "--tls-cert",
			x.cert+".pem", "--tls-key", x.cert+".key"))
	}
	for i, x := range all {
		runs[i].cmd.Wait()
		if code := runs[i].cmd.ProcessState.ExitCode(); code != x.code || !strings.Contains(runs[i].String(), x.says) {
			f.t.Errorf("%s with %s: code %d, want %d and %q in\n%s", x.id, filepath.Base(x.cert), code, x.code, x.says,
				runs[i])
		}
	}
}

// Goal: the commands of docs/fleet.md make, renew and revoke certificates, and change the authority. The real programs
// accept and refuse robots accordingly, and a robot that streams meanwhile keeps its session.
func TestIdentity(t *testing.T) {
	if len(required) == 0 {
		t.Skip("make interop runs it")
	}
	t.Parallel()
	f := copyExample(t)
	page := identity("sh")
	do := func(n int) { f.run("sh", "-euc", page[n]) }
	do(0)
	at := sessiontest.FreeEndpoint(t)[len("tcp/"):]
	f.ports["gpu-box"] = at[strings.IndexByte(at, ':')+1:]
	manifest := rttest.ReadFile(t, filepath.Join(f.dir, "server.yaml"))
	manifest = manifest[:strings.Index(manifest, "clients:")]
	rttest.WriteFile(t, f.dir, "server.yaml", manifest+strings.Replace(identity("yaml")[0], "0.0.0.0:7447", at, 1))

	const hour = time.Hour
	foreign := endpointtest.Make(t, func(c *x509.Certificate) { c.Subject.CommonName = "foreign CA" })
	dated := endpointtest.Make(t, func(c *x509.Certificate) { c.Subject.CommonName = "dated CA" })
	issue := func(ca *endpointtest.Authority, from, to time.Duration) string {
		cert, _ := ca.IssueAs("arm-b", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to)
		})
		prefix := filepath.Join(t.TempDir(), "arm-b")
		for _, kind := range []string{".pem", ".key"} {
			rttest.Do(t, os.Rename(strings.TrimSuffix(cert, ".pem")+kind, prefix+kind))
		}
		return prefix
	}
	trusted := filepath.Join(f.dir, "certificates/trusted.pem")
	both := append(rttest.Must(os.ReadFile(trusted))(t), rttest.Must(os.ReadFile(dated.CA))(t)...)
	rttest.Do(t, os.WriteFile(trusted, both, 0o600))

	root, _ := filepath.Abs("../../..") // the program finds ONNX Runtime below this folder
	server := f.startIn(root, filepath.Join(f.bin, "lean-server"), nil, "--manifest",
		filepath.Join(f.dir, "server.yaml"), "--health-port", "0")
	rttest.Eventually(t, "the server", func() bool { return strings.Contains(server.String(), "serving") })
	streams := f.start(filepath.Join(f.bin, "edge-rt"), []string{"STATE_DIRECTORY=" + t.TempDir()}, "--bus", "sim",
		"--camera", "top=sim", "--id", "arm-a", "--connect", "tls/127.0.0.1:"+f.ports["gpu-box"], "--tls-ca",
		"certificates/ca.pem", "--tls-cert", "certificates/arm-a.pem", "--tls-key", "certificates/arm-a.key", "--json",
		"arm-a-as-arm-a.json")
	rttest.Eventually(t, "arm-a's session", func() bool { return strings.Contains(streams.String(), "session open") })

	const ca, armB, here = "certificates/ca.pem", "certificates/arm-b", "127.0.0.1"
	f.tries(
		try{"arm-b", armB, ca, here, 0, "session open"},
		try{"arm-c", armB, ca, here, 3, "names arm-b"},
		try{"arm-b", armB, ca, "localhost", 3, "and not for localhost"},
		try{"arm-b", armB, foreign.CA, here, 3, `was signed by "fleet CA"`},
		try{"arm-b", issue(foreign, -hour, hour), ca, here, 3, "refused our certificate"},
		try{"arm-b", issue(dated, -hour, -time.Minute), ca, here, 4, "expired on"},
		try{"arm-b", issue(dated, time.Minute, hour), ca, here, 4, "is not valid before"},
	)
	do(1)
	const serial = "openssl x509 -noout -serial"
	shown := f.run("sh", "-c", "openssl s_client -cert certificates/operator.pem -key certificates/operator.key "+
		"-connect "+at+" </dev/null 2>/dev/null | "+serial)
	rttest.Want(t, shown, f.run("sh", "-c", serial+" <certificates/gpu-box.pem"),
		"the certificate that the server shows after a renewal")
	rttest.WriteFile(t, f.dir, "certificates/gpu-box.pem", "broken")
	rttest.Eventually(t, "the broken file", func() bool { return strings.Contains(server.String(), "are not used") })
	f.tries(try{"arm-b", armB, ca, here, 0, "session open"})
	do(1)
	do(2)
	f.tries(
		try{"arm-b", armB, ca, here, 3, "may have been revoked"},
		try{"operator", "certificates/operator", ca, here, 3, "clients"},
	)
	f.ignoresLists(armB)
	do(3)
	f.tries(
		try{"arm-c", "certificates/arm-c", trusted, here, 0, "session open"},
		try{"arm-b", armB, trusted, here, 3, "may have been revoked"},
	)
	streams.cmd.Process.Signal(syscall.SIGINT)
	f.streamed("arm-a", streams)
	if !strings.Contains(server.String(), `was revoked by \"fleet CA\" on`) {
		t.Errorf("the server's log does not name the revocation:\n%s", server)
	}
}

// ignoresLists checks that the official router accepts a certificate that a list in its root CA file has revoked, as
// docs/fleet.md states.
func (f *fleet) ignoresLists(revoked string) {
	f.t.Helper()
	all, _ := versions()
	for old, new := range map[string]string{
		"certificates/ca.pem": "certificates/trusted.pem", "/router-1.": "/gpu-box.", "  access_control:\n": "",
	} {
		f.edit("tls.json5", old, new)
	}
	f.ports["router-1"] = sessiontest.FreeEndpoint(f.t)[len("tcp/127.0.0.1:"):]
	f.router(all[len(all)-1], "router-1", "tls.json5")
	file := filepath.Join(f.dir, revoked)
	ours(f.t, zenoh.Config{Connect: []string{"tls/127.0.0.1:" + f.ports["router-1"]}, TLS: endpoint.Security{
		RootCA: filepath.Join(f.dir, "certificates/ca.pem"), ConnectCertificate: file + ".pem",
		ConnectKey: file + ".key"}})
}
