package manifest

import (
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Routers' names are refused where no link has a certificate.
func TestRoutersNeedCertificates(t *testing.T) {
	c := Default()
	c.Routers = []string{"router-1"}
	if err := c.CheckTransport(); !errors.Is(err, ErrInvalid) || !rttest.Says(err, "enable_mtls") {
		t.Errorf("routers without enable_mtls: %v, want a refusal that names enable_mtls", err)
	}
}
