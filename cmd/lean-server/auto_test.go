package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// A real server with max_sessions: auto admits as many robots as it announces. This number follows the server's
// measurements, and a refusal contains the measurement.
func TestAutoWithTheDemoPolicy(t *testing.T) {
	rttest.RealTime(t)
	r, network, prefix := serve(t, "--quiet", "--manifest", writeManifest(t,
		demoBundle(t)+"max_sessions: auto\nsessions_per_link: 1000\nsessions_per_host: 1000\n"))
	replies, err := network.Get(t.Context(), wire.StatusKey(prefix), nil, patience)
	var s wire.Status
	if err != nil || len(replies) != 1 || wire.Parse(&s, replies[0].Payload) != nil || s.MaxSessions < 1 {
		t.Fatalf("status: %v, %v, %+v", replies, err, s)
	}
	var ack wire.SessionAck
	n, began := 0, time.Now()
	for ; n <= 1000; n++ {
		if ack = openSession(t, network, prefix, demoOpen(t, fmt.Sprintf("arm-%04d", n))); !ack.Accepted {
			break
		}
	}
	t.Logf("announced %d, let in %d, %v each; %s", s.MaxSessions, n, time.Since(began)/time.Duration(n+1), ack.Error)
	if n < 1 || n > 3*s.MaxSessions || 3*n < s.MaxSessions || !ack.Temporary() || ack.RetryAfterMs == 0 ||
		ack.MaxSessions < n || ack.ServerLoad <= 0 ||
		!strings.HasPrefix(ack.Error, "server full: ") || !strings.Contains(ack.Error, " ms here)") {
		t.Errorf("announced %d, let in %d, then %+v", s.MaxSessions, n, ack)
	}
	if s := r.stop(syscall.SIGTERM); s.Refusals["full"] != 1 || s.Sessions.Opened != uint64(n) {
		t.Errorf("summary: %+v, %v", s.Sessions, s.Refusals)
	}
}
