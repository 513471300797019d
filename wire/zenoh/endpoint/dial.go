package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// connectTimeout is how long the system may try to connect before we begin anew:
// it repeats a lost SYN after 1, 3 and 7 seconds, too slow for a network that is
// back.
const connectTimeout = 3 * time.Second

// Dial connects, TLS handshake included. It ends early when ctx does. prepare,
// if not nil, gets the connection before TLS begins on it.
func (e Endpoint) Dial(ctx context.Context, prepare func(net.Conn)) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1, Timeout: connectTimeout}
	if e.Protocol == Unix {
		conn, err := d.DialContext(ctx, "unix", e.Address)
		return e.dialResult(conn, err, prepare)
	}
	var cfg *tls.Config
	if e.Protocol == TLS {
		host, _, _ := net.SplitHostPort(e.Address)
		var err error
		if cfg, err = e.Security.clientConfig(host); err != nil {
			return nil, err
		}
	}
	conn, err := d.DialContext(ctx, "tcp", e.Address)
	if conn, err = e.dialResult(conn, err, prepare); err != nil || cfg == nil {
		return conn, err
	}
	secure := tls.Client(conn, cfg)
	limited, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(limited); err != nil {
		conn.Close()
		return nil, e.tlsError(err)
	}
	return secure, nil
}

func (e Endpoint) dialResult(conn net.Conn, err error, prepare func(net.Conn)) (net.Conn, error) {
	if err != nil {
		return nil, e.Unreachable(err)
	}
	if prepare != nil {
		prepare(conn)
	}
	return conn, nil
}

// Unreachable says that nothing answers here, with the system's error without its
// wrappers.
func (e Endpoint) Unreachable(cause error) error {
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
	return fmt.Errorf("wire/zenoh: nobody answers at %s: %w", e, cause)
}

// AuthError is a TLS handshake that one of the two sides refused.
type AuthError struct {
	Endpoint string
	Fix      string
	Err      error
}

func (a *AuthError) Error() string {
	return fmt.Sprintf("wire/zenoh: no trust at %s: %v (%s)", a.Endpoint, a.Err, a.Fix)
}

func (a *AuthError) Unwrap() error { return a.Err }

// Refused turns the error of a first read into an AuthError if it is the other
// side's refusal of our certificate, which in TLS 1.3 arrives only then.
func (e Endpoint) Refused(err error) error {
	if e.Protocol != TLS || !isAlert(err) {
		return err
	}
	return &AuthError{e.String(), "it refused our certificate, or the lack of one: show one that its root CA vouches for", err}
}

// isAlert reports whether the other side ended TLS with an alert.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// tlsError says what to do about a TLS handshake that failed.
func (e Endpoint) tlsError(err error) error {
	var record tls.RecordHeaderError
	var name x509.HostnameError
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.As(err, &name):
		return &AuthError{e.String(), "dial the name that is in the certificate, have it made for this one (subjectAltName), or switch verify_name_on_connect off", err}
	case errors.As(err, &unverified):
		return &AuthError{e.String(), "give the root CA that signed its certificate", err}
	case isAlert(err):
		return e.Refused(err)
	case errors.As(err, &record):
		return &AuthError{e.String(), "it does not speak TLS: dial it as tcp/", errors.New("not a TLS record")}
	}
	return e.Unreachable(err)
}
