package edge

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// Goal: an Open that fails has not touched the arm. Where the arm may be held, no exit code makes the systemd unit
// switch its torque off.
func TestNotOpenedError(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		onExit     string
		end, aside error
		code       exit.Code
	}{
		{"hold", nil, nil, exit.Clean},
		{"hold", broken, nil, exit.Absent},
		{"hold", nil, broken, exit.Clean},
		{"hold", exit.With(exit.Config, broken), broken, exit.Config},
		{"hold", exit.With(exit.Fault, broken), nil, exit.Fault},
		{"park", broken, nil, exit.Failure},
		{"park", nil, broken, exit.Failure},
	} {
		err := NotOpenedError(tt.onExit, tt.end, tt.aside)
		if exit.Of(err) != tt.code || (err == nil) != (tt.end == nil && tt.aside == nil) {
			t.Errorf("NotOpenedError(%s, %v, %v) = %v (code %d), want code %d and all that is wrong", tt.onExit, tt.end,
				tt.aside, err, exit.Of(err), tt.code)
		}
	}
}

// Goal: if no server is found, the operator's next step fits the reason.
func TestFindServer(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&net.DNSError{Name: "gpu-bxo", Err: "no such host", IsNotFound: true}, "the name gpu-bxo"},
		{&net.DNSError{Name: "gpu-box", Err: "server misbehaving", IsTemporary: true}, "network"},
		{unix.EHOSTUNREACH, "network"},
		{unix.ECONNREFUSED, "start lean-server"},
	} {
		err := endpoint.Endpoint{Protocol: "tcp", Address: "x:7447"}.Unreachable(
			&net.OpError{Op: "dial", Err: tt.err})
		if got := findServer(err); !strings.Contains(got, tt.want) ||
			strings.Contains(got, "lean-server") != errors.Is(tt.err, unix.ECONNREFUSED) {
			t.Errorf("%v: %q, want %q", err, got, tt.want)
		}
	}
	rttest.Contains(t, findServer(errors.New("no lean-server answers")), "(lean-server acl) must name this robot")
}
