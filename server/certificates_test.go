package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// shownNetwork is a network with certificates.
type shownNetwork struct {
	wire.Session
	found []endpoint.Finding
}

func (n *shownNetwork) Certificates(time.Time) []endpoint.Finding { return n.found }

// Each finding is logged once, when it begins. The server is not ready if no robot can connect because of a finding.
func TestCertificatesAreSaidAndMakeTheServerNotReady(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	soon, over := endpoint.Finding{Text: "gpu.pem ends in 3 days"},
		endpoint.Finding{Text: "gpu.pem ended", Refused: true}
	var c certificates
	network := &shownNetwork{}
	look := func(found ...endpoint.Finding) (lines string) {
		log.Reset()
		network.found = found
		c.check(network, time.Now(), logger)
		return log.String()
	}
	if ok, _ := c.usable(); !ok || c.texts() != nil {
		t.Error("a certificate counts as unusable before the first look")
	}
	rttest.Want(t, look(), "", "lines while nothing is wrong")
	if lines := look(soon); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "level=WARN") ||
		!strings.Contains(lines, soon.Text) {
		t.Errorf("an end in three days: %q", lines)
	}
	rttest.Want(t, look(soon), "", "warning of the second look")
	if ok, why := c.usable(); !ok || why != "" || len(c.texts()) != 1 {
		t.Errorf("usable = %v, %q; texts %q", ok, why, c.texts())
	}
	if lines := look(over); !strings.Contains(lines, "level=ERROR") ||
		!strings.Contains(lines, "NO ROBOT CAN CONNECT") || strings.Contains(lines, "3 days") {
		t.Errorf("over: %q", lines)
	}
	if ok, why := c.usable(); ok || why != over.Text {
		t.Errorf("usable = %v, %q, want not, and why", ok, why)
	}
	rttest.Contains(t, look(), "in order again")
	if ok, _ := c.usable(); !ok {
		t.Error("the certificate is not usable after the renewal")
	}
	c.check(nil, time.Now(), logger) // a network without certificates has no findings
}
