package endpoint

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/wire/listen"
)

const (
	// handshakeTimeout bounds a TLS handshake on either side.
	handshakeTimeout = 10 * time.Second

	// socketMode lets the owner and the group of a socket file connect.
	socketMode = 0o660
)

// Listener accepts the connections of one endpoint.
type Listener struct {
	net.Listener
	endpoint     Endpoint
	lock         *os.File      // a socket file's lock
	certificates *certificates // the certificates of a tls/ endpoint
}

// Listen binds the endpoint. It replaces the socket file of a dead process, and refuses a socket file in use.
func (e Endpoint) Listen() (*Listener, error) {
	fail := func(err error) (*Listener, error) {
		return nil, fmt.Errorf("wire/zenoh: cannot listen on %s: %w", e, err)
	}
	l := &Listener{endpoint: e}
	var err error
	switch e.Protocol {
	case Unix:
		if l.lock, err = lockSocket(e.Address); err != nil {
			return fail(err)
		}
		if l.Listener, err = net.Listen("unix", e.Address); err == nil {
			err = os.Chmod(e.Address, socketMode)
		}
		if err != nil {
			l.Close()
			return fail(err)
		}
		return l, nil
	case TLS:
		l.certificates = &certificates{security: e.Security}
		if _, err := l.certificates.config(); err != nil {
			return nil, err
		}
	}
	if l.Listener, err = listen.TCP(e.Address); err != nil {
		return fail(err)
	}
	return l, nil
}

// lockSocket locks a socket file for this process with a lock file beside it, as the official implementation does, and
// removes the socket file of a dead process.
func lockSocket(path string) (lock *os.File, err error) {
	if lock, err = os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = child.Unlock(lock)
		}
	}()
	if err := child.Lock(lock); err != nil {
		return nil, fmt.Errorf("another process listens there (it holds %s.lock): stop it or choose another path", path)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lock, nil
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("the file exists and is no socket: choose another path")
	}
	return lock, os.Remove(path)
}

// Endpoint returns the listener's endpoint with the real port.
func (l *Listener) Endpoint() string { return l.endpoint.Protocol + "/" + l.Addr().String() }

// Close ends the listener. It removes its socket file, and then releases the lock.
func (l *Listener) Close() (err error) {
	if l.Listener != nil {
		err = l.Listener.Close()
	}
	if l.lock != nil {
		_ = child.Unlock(l.lock)
	}
	return err
}

// Secure does the TLS handshake on an accepted connection of a tls/ endpoint. The handshake ends at conn's deadline at
// the latest.
func (l *Listener) Secure(conn net.Conn) (net.Conn, error) {
	if l.certificates == nil {
		return conn, nil
	}
	cfg, err := l.certificates.config()
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	secure := tls.Server(&greeted{Conn: conn}, cfg)
	if err := secure.Handshake(); err != nil {
		if speaksNoTLS(err) {
			conn.Write(plainAlert) // by this alert a client of ours without TLS recognises a TLS listener
		}
		return nil, l.endpoint.Security.accepted(err, time.Now())
	}
	return secure, nil
}

// greeted is a connection whose first bytes must be those of a TLS handshake. crypto/tls checks only the first byte and
// then waits for the announced length. But Zenoh's first message may begin with the same byte as a TLS record.
type greeted struct {
	net.Conn
	seen int // number of first bytes seen
}

// firstBytes begin a handshake record of any version.
var firstBytes = [2]byte{0x16, 0x03}

// errNoTLS is the error of a connection whose first bytes are not TLS.
var errNoTLS = errors.New("its first bytes are not TLS's")

func (g *greeted) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	for i := 0; i < n && g.seen < len(firstBytes); i++ {
		if p[i] != firstBytes[g.seen] {
			return 0, errNoTLS
		}
		g.seen++
	}
	return n, err
}

// NetConn returns the underlying connection, like NetConn of crypto/tls.
func (g *greeted) NetConn() net.Conn { return g.Conn }

// speaksNoTLS reports whether a handshake failed because the other side does not use TLS.
func speaksNoTLS(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, errNoTLS) || errors.As(err, &record)
}

// plainAlert is an unencrypted TLS record with the fatal alert for an unsupported version.
var plainAlert = []byte{21, 3, 1, 0, 2, 2, alertVersion}

// Certificates first reads changed files. Then it lists the present and coming faults of the certificates that the
// listener shows and requires.
func (l *Listener) Certificates(now time.Time) []Finding {
	if l.certificates == nil {
		return nil
	}
	return l.certificates.findings(now)
}

// certificates are the certificates of a listener, which are read again when a file has changed. New files that are not
// usable do not replace usable certificates.
type certificates struct {
	security Security

	mu       sync.Mutex
	cfg      *tls.Config    // guarded by mu
	trusted  authorities    // the authorities that vouch for clients. Guarded by mu
	failed   error          // the reason why the newest files are not used. Guarded by mu
	versions [3]os.FileInfo // the newest files. Guarded by mu
}

func (k *certificates) config() (*tls.Config, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.read(time.Now())
}

// read does the work of the method config. Called with mu held. As long as the previous certificate is valid, read does
// not use a new certificate that has ended or is not valid yet.
func (k *certificates) read(at time.Time) (*tls.Config, error) {
	s := &k.security
	var now [3]os.FileInfo
	for i, path := range [...]string{s.ListenCertificate, s.ListenKey, s.RootCA} {
		now[i], _ = os.Stat(path) // serverConfig reports the error
	}
	if k.cfg != nil && slices.EqualFunc(now[:], k.versions[:], userfile.Unchanged) {
		return k.cfg, nil
	}
	cfg, err := s.serverConfig()
	if err != nil && k.cfg == nil {
		return nil, err
	}
	if err == nil && k.cfg != nil && !validAt(cfg.Certificates[0].Leaf, at) &&
		validAt(k.cfg.Certificates[0].Leaf, at) {
		leaf := cfg.Certificates[0].Leaf
		k.failed = fmt.Errorf("wire/zenoh: TLS certificate %s (%s) is valid from %s to %s only", s.ListenCertificate,
			named(leaf), date(leaf.NotBefore), date(leaf.NotAfter))
		return k.cfg, nil // the next call checks again
	}
	k.versions, k.failed = now, err
	if err == nil {
		k.cfg, k.trusted = cfg, authorities{}
		if s.MutualTLS {
			k.trusted, k.failed = readAuthorities(s.RootCA)
		}
	}
	return k.cfg, nil
}

// validAt reports whether a certificate is valid at the given time.
func validAt(c *x509.Certificate, at time.Time) bool {
	return !at.Before(c.NotBefore) && !at.After(c.NotAfter)
}

// findings does the work of Listener.Certificates.
func (k *certificates) findings(now time.Time) (found []Finding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	cfg, err := k.read(now)
	if err != nil {
		return []Finding{{Text: err.Error(), Refused: true}}
	}
	s := &k.security
	leaf := cfg.Certificates[0].Leaf
	found = append(found, judge(leaf, s.ListenCertificate, "robots refuse this server", now)...)
	if len(leaf.DNSNames) == 0 && len(leaf.IPAddresses) == 0 {
		found = append(found,
			Finding{Text: fmt.Sprintf("the certificate %s (%s) is for %s: robots that compare names refuse this server",
				s.ListenCertificate, named(leaf), hostsOf(leaf))})
	}
	usable := slices.ContainsFunc(k.trusted.roots, func(root *x509.Certificate) bool { return validAt(root, now) })
	for _, root := range k.trusted.roots {
		for _, f := range judge(root, s.RootCA, "it refuses the robots that this authority vouches for", now) {
			f.Refused = f.Refused && !usable // a robot of another authority is not refused
			found = append(found, f)
		}
	}
	found = append(found, k.trusted.findings(s.RootCA, now)...)
	found = append(found, openKey(s.ListenKey)...)
	if k.failed != nil {
		found = append(found, Finding{Text: fmt.Sprintf("the certificate's files have changed and are not used: %v; "+
			"the server goes on with the set before, whose certificate (%s) ends on %s: put a certificate, its key "+
			"and the root CA there that belong together", k.failed, named(leaf), date(leaf.NotAfter))})
	}
	return found
}
