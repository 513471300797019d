// Package listen opens TCP listeners on exactly the requested addresses, and explains why an address
// is not available.
package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// privileged is the first port that every user may listen on.
const privileged = 1024

// TCP listens on host:port. With an IPv4 address it listens on IPv4 only, whereas Go's network "tcp" would make 0.0.0.0
// listen on IPv6, too. With an empty host or [::] it listens on both.
func TCP(address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1} // the connections' server sets its own limits
	return config.Listen(context.Background(), network(address), address)
}

// network returns Go's network for an address host:port.
func network(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err == nil && net.ParseIP(host).To4() != nil {
		return "tcp4"
	}
	return "tcp"
}

// cure returns the reason why the system refuses to listen on an address, with a remedy. It returns "" for an error
// without a known remedy. The parameter other is a text on how to choose another port.
func cure(err error, other string) string {
	var unknown *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("another program listens there, which ss -ltnp shows: end it, or %s", other)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address: ip address lists those that it has, and 0.0.0.0 is all of IPv4"
	case errors.Is(err, os.ErrPermission):
		return fmt.Sprintf("ports below %d are root's: %s", privileged, other)
	case errors.As(err, &unknown):
		return "no host has that name: write an address of this machine, or 0.0.0.0 for all of IPv4"
	}
	return ""
}

// Explain adds the text of cure to an error, in parentheses.
func Explain(err error, other string) error {
	if cure := cure(err, other); cure != "" {
		return fmt.Errorf("%w (%s)", err, cure)
	}
	return err
}
