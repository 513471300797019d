package stage

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestPeer(t *testing.T) {
	const echo = "while read line; do [ $line = die ] && { echo no more >&2; exit 3; }; [ $line = hang ] || echo " +
		"$line; done"
	start := func() *Peer {
		t.Helper()
		p, err := StartPeer(exec.Command("sh", "-c", echo))
		if err != nil {
			t.Skipf("no shell here: %v", err)
		}
		t.Cleanup(func() { p.End(t.Context()) })
		return p
	}
	p := start()
	for _, line := range []string{"one", "two"} {
		rttest.Want(t, string(rttest.Must(p.Ask(t.Context(), line, time.Minute))(t)), line, "Ask()")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	for _, tt := range []struct {
		p     *Peer
		ctx   context.Context
		line  string
		limit time.Duration
		says  string
	}{
		{p, ctx, "hang", time.Minute, "canceled"},
		{start(), t.Context(), "hang", 50 * time.Millisecond, "did not answer within 50ms"},
		{start(), t.Context(), "die", time.Minute, "no more"},
	} {
		rttest.Fails(t, rttest.Err(tt.p.Ask(tt.ctx, tt.line, tt.limit)), tt.says)
	}
}
