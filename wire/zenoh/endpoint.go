package zenoh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// address takes the host:port out of an endpoint of the form tcp/host:port.
// Metadata behind '?' and configuration behind '#' are refused, because none of
// it would be obeyed.
func address(endpoint string) (string, error) {
	scheme, addr, ok := strings.Cut(endpoint, "/")
	if !ok || scheme != "tcp" {
		return "", fmt.Errorf("wire/zenoh: endpoint %q, want tcp/host:port", endpoint)
	}
	if i := strings.IndexAny(addr, "?#"); i >= 0 {
		return "", fmt.Errorf("wire/zenoh: endpoint %q has options (%s), none are supported here", endpoint, addr[i:])
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return "", fmt.Errorf("wire/zenoh: endpoint %q, want tcp/host:port: %w", endpoint, err)
	}
	return addr, nil
}

// unreachable says that nobody answers at an endpoint, and why in the system's
// own words without the layers around them.
func unreachable(endpoint string, cause error) error {
	var sys *os.SyscallError
	var op *net.OpError
	switch {
	case errors.Is(cause, context.DeadlineExceeded), errors.Is(cause, os.ErrDeadlineExceeded):
		cause = errors.New("no answer in time")
	case errors.As(cause, &sys):
		cause = sys.Err
	case errors.As(cause, &op):
		cause = op.Err
	}
	return fmt.Errorf("wire/zenoh: nobody answers at %s: %w", endpoint, cause)
}
