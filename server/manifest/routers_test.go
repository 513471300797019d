package manifest

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The key routers is refused if no link has a certificate.
func TestRoutersNeedCertificates(t *testing.T) {
	c := Default()
	c.Routers = []string{"router-1"}
	rttest.FailsAs(t, c.CheckTransport(), ErrInvalid, "enable_mtls") // Routers is set and enable_mtls is not
}

// If two keys have the same port, the error names both keys. The system's error would blame another program.
func TestFrontsOnAPortOfAnotherKey(t *testing.T) {
	for _, tt := range []struct{ lerobot, openpi, says string }{
		{"127.0.0.1:8000", "0.0.0.0:8000", "fronts.openpi.listen is 0.0.0.0:8000, and fronts.lerobot.listen"},
		{"[::]:9100", "", "and health_port listens on this port, too (127.0.0.1:9100)"},
		{"", "127.0.0.1:7447", "fronts.openpi.listen is 127.0.0.1:7447, and zenoh.listen_endpoints listens on"},
		{"127.0.0.1:8000", "127.0.0.2:8000", ""},
		{"127.0.0.1:8000", "[::1]:8001", ""},
	} {
		c := Default()
		c.Fronts.LeRobot.Listen, c.Fronts.OpenPI.Listen = tt.lerobot, tt.openpi
		if err := c.CheckTransport(); err != nil != (tt.says != "") || err != nil && !rttest.Says(err, tt.says) {
			t.Errorf("%s and %s: %v, want %q", tt.lerobot, tt.openpi, err, tt.says)
		}
	}
	c := Default()
	c.Zenoh.ListenEndpoints = []string{"tcp/127.0.0.1:7447", "unixsock-stream/a", "tcp/0.0.0.0:7447"}
	rttest.FailsAs(t, c.CheckTransport(), ErrInvalid, "is 0.0.0.0:7447, and zenoh.listen_endpoints listens on")
}
