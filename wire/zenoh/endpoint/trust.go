package endpoint

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// AuthError is the error of a TLS handshake that one of the two sides refused.
type AuthError struct {
	Endpoint string
	Fix      string
	Err      error
	Dated    bool // a certificate is not valid at this time; renewing it, or setting the clock, cures that
}

func (a *AuthError) Error() string {
	return fmt.Sprintf("wire/zenoh: no trust at %s: %v (%s)", a.Endpoint, a.Err, a.Fix)
}

func (a *AuthError) Unwrap() error { return a.Err }

// PlainError is the error of a connection on which only one of the two sides uses TLS.
type PlainError struct {
	Endpoint string
	Fix      string
	Err      error
}

func (p *PlainError) Error() string {
	return fmt.Sprintf("wire/zenoh: no TLS with %s: %v (%s)", p.Endpoint, p.Err, p.Fix)
}

func (p *PlainError) Unwrap() error { return p.Err }

// The alerts by which the other side refuses a handshake. Source: RFC 8446, section 6.
const (
	alertHandshake   = 40
	alertBad         = 42
	alertUnsupported = 43
	alertRevoked     = 44
	alertExpired     = 45
	alertUnknown     = 46
	alertUnknownCA   = 48
	alertAccess      = 49
	alertVersion     = 70
	alertRequired    = 116
)

// alertOf returns the alert with which the other side has ended TLS. Go does not export the type of a received alert,
// so alertOf recognises the alert by its text.
func alertOf(err error) (alert tls.AlertError, ok bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}
	for _, known := range []tls.AlertError{
		alertHandshake, alertBad, alertUnsupported, alertRevoked, alertExpired, alertUnknown, alertUnknownCA,
		alertAccess, alertVersion, alertRequired,
	} {
		if op.Err.Error() == known.Error() {
			return known, true
		}
	}
	return 0, true
}

// who describes one end of a connection in the words that the errors use.
type who struct {
	whose string // the owner of the end in messages: "its" or "the client's"
	usage x509.ExtKeyUsage
	role  string // the purpose of the certificate, in words
	key   string // extendedKeyUsage, as openssl writes it
	roots string // file of the authorities that must vouch for this end; empty: the system's authorities
	renew string // the place where the certificate must be renewed, in messages
}

func (s *Security) server() who {
	return who{
		whose: "its",
		usage: x509.ExtKeyUsageServerAuth,
		role:  "servers",
		key:   "serverAuth",
		roots: s.RootCA,
		renew: "on the server",
	}
}

func (s *Security) client() who {
	return who{
		whose: "the client's",
		usage: x509.ExtKeyUsageClientAuth,
		role:  "clients",
		key:   "clientAuth",
		roots: s.RootCA,
		renew: "on the robot",
	}
}

// named returns a certificate's name for messages.
func named(c *x509.Certificate) string {
	switch {
	case c.Subject.CommonName != "":
		return fmt.Sprintf("%q", c.Subject.CommonName)
	case len(c.DNSNames) > 0:
		return fmt.Sprintf("%q", c.DNSNames[0])
	}
	return fmt.Sprintf("%q", c.Subject.String())
}

// issuer is the name of the authority that signed a certificate.
func issuer(c *x509.Certificate) string {
	if c.Issuer.CommonName != "" {
		return fmt.Sprintf("%q", c.Issuer.CommonName)
	}
	return fmt.Sprintf("%q", c.Issuer.String())
}

// hostsOf lists the host names and addresses for which a certificate is valid.
func hostsOf(c *x509.Certificate) string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no host at all (it has no subjectAltName, and its common name does not count)"
	}
	return strings.Join(names, ", ")
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// outside returns the cause and the cure if a certificate has ended or is not valid yet. For a valid certificate it
// returns false.
func outside(c *x509.Certificate, now time.Time, what, renew string) (cause error, fix string, is bool) {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("%s expired on %s, and this machine's clock says %s", what, date(c.NotAfter), date(now)),
			"have it renewed " + renew + "; where this machine's clock is wrong, set that: timedatectl shows it", true
	case now.Before(c.NotBefore):
		return fmt.Errorf("%s is not valid before %s, and this machine's clock says %s", what, date(c.NotBefore),
				date(now)),
			"this machine's clock is probably behind: set it, timedatectl shows whether it is synchronised; where it " +
				"is right, have the certificate made anew " + renew, true
	}
	return nil, "", false
}

// unverified returns the cause and the cure if we refused the other side's certificate.
func (w who) unverified(chain []*x509.Certificate, err error, now time.Time) (cause error, fix string) {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var revoked revokedError
	if len(chain) == 0 {
		return err, "have " + w.whose + " certificate made anew"
	}
	leaf := chain[0]
	what := fmt.Sprintf("%s certificate %s", w.whose, named(leaf))
	switch {
	case errors.As(err, &name):
		return fmt.Errorf("%s is for %s and not for %s", what, hostsOf(leaf), name.Host),
			fmt.Sprintf("dial a name that is in the certificate, have it made for this one (subjectAltName), or "+
				"switch verify_name_on_connect off: tls/HOST:PORT#verify_name_on_connect=false dials %s all the same",
				name.Host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		if invalid.Cert != nil && !invalid.Cert.Equal(leaf) {
			what = fmt.Sprintf("the authority %s, which signed %s,", named(invalid.Cert), what)
			leaf, w.renew = invalid.Cert, "with all that it signed, and its file copied here"
		}
		if cause, fix, is := outside(leaf, now, what, w.renew); is {
			return cause, fix
		}
		return err, "have it renewed " + w.renew + ", or set this machine's clock: timedatectl shows it"
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Errorf("%s is not for %s: its extendedKeyUsage lacks %s", what, w.role, w.key),
			fmt.Sprintf("have one made %s with extendedKeyUsage %s", w.renew, w.key)
	case errors.As(err, &invalid) && invalid.Reason == x509.NotAuthorizedToSign:
		return fmt.Errorf("%s was signed by %s, which is no authority", what, issuer(leaf)),
			"have the authority's certificate made with basicConstraints CA:TRUE and keyUsage keyCertSign"
	case errors.As(err, &revoked):
		return fmt.Errorf("%s %w", w.whose, revoked),
			"if that machine is still trusted, have a new key and certificate made " + w.renew
	case errors.As(err, &unknown):
		return w.unknown(chain, err, now)
	}
	return fmt.Errorf("%s: %w", what, err), "have it made anew " + w.renew
}

// unknown returns the cause and the cure if no chain leads from a certificate to one of the roots.
func (w who) unknown(chain []*x509.Certificate, err error, now time.Time) (cause error, fix string) {
	leaf, last := chain[0], chain[len(chain)-1]
	what := fmt.Sprintf("%s certificate %s", w.whose, named(leaf))
	for _, c := range chain[1:] {
		if cause, fix, is := outside(c, now, fmt.Sprintf("the authority %s, which signed %s,", named(c), what),
			w.renew); is {
			return cause, fix
		}
	}
	where := "the system's authorities do not hold"
	if w.roots != "" {
		where = fmt.Sprintf("%s holds", w.roots)
	}
	held, failed := readAuthorities(w.roots)
	if w.roots != "" && failed != nil {
		return fmt.Errorf("%s cannot be checked: %w", what, failed), "put the file of the root CA back"
	}
	var names []string
	for _, root := range held.roots {
		if !bytes.Equal(root.RawSubject, last.RawIssuer) {
			names = append(names, named(root))
			continue
		}
		if cause, fix, is := outside(root, now, fmt.Sprintf("the root CA %s of %s, which signed %s,", named(root),
			w.roots, what), "and all that it signed"); is {
			return cause, fix
		}
		if failed := last.CheckSignatureFrom(root); failed != nil {
			return fmt.Errorf("%s was signed by another authority than the %s of %s, which has the same name (%w)",
					what, named(root), w.roots, failed),
				"give the root CA that signed its certificate: the authority was probably made anew, so copy its " +
					"file again"
		}
		return fmt.Errorf("%s: %w", what, err), "have it and its authority made anew"
	}
	if w.roots != "" {
		where += " " + strings.Join(names, ", ")
	} else {
		where += " it"
	}
	fix = "give the root CA that signed its certificate (--tls-ca, root_ca_certificate); where " + issuer(last) +
		" is an intermediate authority, its certificate belongs after the server's own in one file"
	if bytes.Equal(leaf.RawIssuer, leaf.RawSubject) {
		fix = "it signed itself: give the root CA that signed its certificate, here that certificate itself " +
			"(--tls-ca, root_ca_certificate)"
	}
	return fmt.Errorf("%s was signed by %s, and %s", what, issuer(last), where), fix
}

// shown returns why the other side may have refused our certificate, and the cure. The parameter file is empty when we
// show no certificate.
func shown(file string, w who, alert tls.AlertError, now time.Time) (cause, fix string) {
	if file == "" {
		return "we showed none", "give one that its root CA vouches for"
	}
	c, err := readLeaf(file)
	if err != nil {
		return err.Error(), "put the file back"
	}
	what := fmt.Sprintf("our certificate %s (%s)", file, named(c))
	if cause, fix, is := outside(c, now, what, "here"); is {
		return cause.Error(), fix
	}
	switch {
	case !allows(c, w.usage):
		return fmt.Sprintf("%s is not for %s: its extendedKeyUsage lacks %s", what, w.role, w.key),
			"have one made with extendedKeyUsage " + w.key
	case alert == alertExpired:
		return fmt.Sprintf("%s is valid from %s to %s, and this machine's clock says %s", what, date(c.NotBefore),
				date(c.NotAfter), date(now)),
			fmt.Sprintf("the authority %s has expired in its root_ca_certificate, or the clock of one of the two "+
				"machines is wrong: have the authority made anew with all that it signed, or set the clock", issuer(c))
	case alert == alertRevoked || alert == alertBad && w.usage == x509.ExtKeyUsageClientAuth: // sent by our listener
		return fmt.Sprintf("%s may have been revoked by %s", what, issuer(c)),
			"its log has the reason; if it was revoked, have a new one made"
	}
	return fmt.Sprintf("%s was signed by %s", what, issuer(c)),
		fmt.Sprintf("show one that its root CA vouches for, or add the certificate of %s to its root_ca_certificate",
			issuer(c))
}

const oldTLS = "it does not speak TLS 1.3, the only version that is spoken here: update it, or have it allow 1.3"

// Refused turns a TLS alert of the other side into an AuthError: it has refused our certificate, or requires one, or
// does not support TLS 1.3. In TLS 1.3 the refusal of a certificate arrives with the first read after our handshake.
func (e Endpoint) Refused(err error) error {
	alert, ok := alertOf(err)
	if e.Protocol != TLS || !ok {
		return err
	}
	switch alert {
	case alertVersion, alertHandshake:
		return &AuthError{Endpoint: e.String(), Fix: oldTLS, Err: err}
	}
	cause, fix := shown(e.Security.ConnectCertificate, e.Security.client(), alert, time.Now())
	if alert == alertRequired && e.Security.ConnectCertificate == "" {
		fix = "it wants one: --tls-cert FILE --tls-key FILE, or connect_certificate and connect_private_key, signed " +
			"by an authority of its root_ca_certificate"
	}
	return &AuthError{
		Endpoint: e.String(),
		Fix:      fmt.Sprintf("it refused our certificate, or the lack of one; %s: %s", cause, fix),
		Err:      err,
		Dated:    alert == alertExpired,
	}
}

// tlsError turns the error of a TLS handshake in which we dialled into an error with the cause and the remedy.
func (e Endpoint) tlsError(err error, now time.Time) error {
	var record tls.RecordHeaderError
	var unverified *tls.CertificateVerificationError
	_, alerted := alertOf(err)
	switch {
	case errors.As(err, &unverified):
		cause, fix := e.Security.server().unverified(unverified.UnverifiedCertificates, unverified.Err, now)
		invalid := x509.CertificateInvalidError{}
		return &AuthError{
			Endpoint: e.String(),
			Fix:      fix,
			Err:      cause,
			Dated:    errors.As(unverified.Err, &invalid) && invalid.Reason == x509.Expired,
		}
	case alerted:
		return e.Refused(err)
	case errors.As(err, &record):
		return &PlainError{e.String(), "it does not speak TLS: dial it as tcp/" + e.Address,
			errors.New("its answer is not a TLS record")}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return &PlainError{e.String(), "where it listens on tcp/, dial it as tcp/" + e.Address +
			"; otherwise its log says why", errors.New("it ended the connection in the handshake")}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &PlainError{e.String(),
			"it took the connection, so the address is right; where it listens on tcp/, dial it as tcp/" + e.Address,
			errors.New("it did not answer in the handshake")}
	case strings.Contains(err.Error(), "unsupported protocol version"):
		return &AuthError{Endpoint: e.String(), Fix: oldTLS, Err: err}
	}
	return e.Unreachable(err)
}

// accepted turns the error of a TLS handshake with a node that dialled us into an error with the cause and the remedy.
func (s *Security) accepted(err error, now time.Time) error {
	var unverified *tls.CertificateVerificationError
	alert, alerted := alertOf(err)
	switch {
	case speaksNoTLS(err):
		return errors.New("wire/zenoh: it speaks no TLS, and this endpoint is tls/: it must dial tls/HOST:PORT, with " +
			"the root CA (edge-rt --tls-ca)")
	case errors.As(err, &unverified):
		cause, fix := s.client().unverified(unverified.UnverifiedCertificates, unverified.Err, now)
		return fmt.Errorf("wire/zenoh: TLS: %w (%s)", cause, fix)
	case strings.Contains(err.Error(), "client didn't provide a certificate"):
		return fmt.Errorf("wire/zenoh: TLS: it shows no certificate, or has none of the authorities in %s, and "+
			"enable_mtls demands one (edge-rt --tls-cert FILE --tls-key FILE)", s.RootCA)
	case alerted && alert != alertVersion && alert != alertHandshake:
		cause, fix := shown(s.ListenCertificate, s.server(), alert, now)
		if strings.HasPrefix(fix, "show one") {
			fix = "it needs the root CA of this certificate (edge-rt --tls-ca), and must dial a name that the " +
				"certificate has"
		}
		return fmt.Errorf("wire/zenoh: TLS: it refuses our certificate: %w; %s (%s)", err, cause, fix)
	case errors.Is(err, io.EOF):
		return errors.New("wire/zenoh: TLS: it ended the connection before it began TLS")
	case strings.Contains(err.Error(), "unsupported versions"):
		return fmt.Errorf("wire/zenoh: TLS: %w (it does not speak TLS 1.3, the only version that is spoken here)", err)
	}
	return fmt.Errorf("wire/zenoh: TLS handshake: %w", err)
}
