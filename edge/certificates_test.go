package edge

import (
	"crypto/x509"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

// Goal: a certificate that one of the two sides refuses ends the start with exit 3 and the cure. A
// certificate that is not valid now is awaited, because a clock may be wrong.
func TestARefusedCertificateEndsTheStart(t *testing.T) {
	rttest.RealTime(t)
	ours, theirs := endpointtest.New(t), endpointtest.New(t)
	good, goodKey := ours.Issue("server", "127.0.0.1")
	old, oldKey := ours.IssueAs("old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) },
		"127.0.0.1")
	cert, key := ours.Issue("arm")
	foreign, foreignKey := theirs.Issue("foreign")
	for _, tt := range []struct {
		name   string
		server endpoint.Security
		robot  TLS
		code   exit.Code
		says   string
	}{
		{"the server's, by this robot", endpoint.Security{ListenCertificate: good, ListenKey: goodKey},
			TLS{CA: theirs.CA}, exit.Config, "no trust at"},
		{"this robot's, by the server", endpoint.Security{
			RootCA:            ours.CA,
			ListenCertificate: good,
			ListenKey:         goodKey,
			MutualTLS:         true,
		}, TLS{CA: ours.CA, Cert: foreign, Key: foreignKey}, exit.Config, "refused our certificate"},
		{"the server's, which is over", endpoint.Security{ListenCertificate: old, ListenKey: oldKey},
			TLS{CA: ours.CA, Cert: cert, Key: key}, exit.Absent, "no trust at"},
	} {
		free := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		at := "tls/" + free.Addr().String()
		free.Close()
		server, err := zenoh.Open(t.Context(), zenoh.Config{Listen: []string{at}, TLS: tt.server})
		rttest.Do(t, err)
		t.Setenv("STATE_DIRECTORY", t.TempDir())
		offline := 20 * time.Second // time after which a start that waits for another certificate ends
		if tt.code == exit.Absent {
			offline = 2 * time.Second
		}
		began := time.Now()
		_, err = Open(t.Context(), Config{
			Bus:                     device.Sim,
			Robot:                   "so101",
			ID:                      "arm",
			Connect:                 []string{at},
			TLS:                     tt.robot,
			Schedule:                chunk.Config{Schedule: "drtc", Epsilon: chunk.DefaultEpsilon},
			CPU:                     rt.UnpinnedCPU,
			OnExit:                  "off",
			Fallback:                "hold",
			MaxActionAge:            time.Second,
			DegradedAfter:           time.Second,
			RequestTimeout:          time.Second,
			ReconnectInitialBackoff: 100 * time.Millisecond,
			ReconnectMaxBackoff:     time.Second,
			MaxOffline:              offline,
			Log:                     slog.New(slog.DiscardHandler),
		})
		took := time.Since(began)
		server.Close()
		if exit.Of(err) != tt.code || !rttest.Says(err, tt.says) || (tt.code == exit.Config) != (took < offline) {
			t.Errorf("%s: %v (code %d) after %v, want code %d and %q", tt.name, err, exit.Of(err), took, tt.code,
				tt.says)
		}
	}
}
