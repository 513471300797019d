package endpoint

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// authorities is the content of a root CA file: the authorities that vouch for the other side, and
// their revocation lists, if any.
type authorities struct {
	roots   []*x509.Certificate
	revoked []revocations
}

// revocations is the list of one authority.
type revocations struct {
	by *x509.Certificate
	*x509.RevocationList
}

// readAuthorities reads a root CA file, which must contain at least one authority. Without a path it returns no
// authorities.
func readAuthorities(path string) (a authorities, err error) {
	if path == "" {
		return a, nil
	}
	bad := func(format string, args ...any) (authorities, error) {
		return authorities{}, fmt.Errorf("wire/zenoh: TLS root CA %s"+format, append([]any{path}, args...)...)
	}
	text, err := readPEM(path)
	if err != nil {
		return a, err
	}
	var lists []*x509.RevocationList
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return bad(": %w", err)
			}
			a.roots = append(a.roots, c)
		case "X509 CRL":
			list, err := x509.ParseRevocationList(block.Bytes)
			if err != nil {
				return bad(": its revocation list: %w (want version 2: openssl ca -gencrl with a crlnumber)", err)
			}
			lists = append(lists, list)
		}
	}
	if len(a.roots) == 0 {
		return bad(" holds no certificate, want a PEM file")
	}
	for _, list := range lists {
		by := a.signer(list)
		if by == nil {
			return bad(": no authority in it has signed its revocation list of %q: put the list of one of them there, "+
				"or that authority's certificate", list.Issuer.String())
		}
		a.revoked = append(a.revoked, revocations{by, list})
	}
	return a, nil
}

// signer returns the authority of a that signed the list, or nil when no authority of a did.
func (a *authorities) signer(list *x509.RevocationList) *x509.Certificate {
	for _, root := range a.roots {
		if list.CheckSignatureFrom(root) == nil {
			return root
		}
	}
	return nil
}

// pool returns the authorities for crypto/tls. Without a root CA file it returns nil, which means the system's
// authorities.
func (a *authorities) pool() *x509.CertPool {
	if len(a.roots) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	for _, root := range a.roots {
		pool.AddCert(root)
	}
	return pool
}

// verify refuses a connection when each of its verified chains contains a revoked certificate.
func (a *authorities) verify(c tls.ConnectionState) (err error) {
	for _, chain := range c.VerifiedChains {
		if err = a.revokedIn(chain); err == nil {
			return nil
		}
	}
	return err
}

func (a *authorities) revokedIn(chain []*x509.Certificate) error {
	for i, c := range chain[:len(chain)-1] {
		for _, list := range a.revoked {
			if !bytes.Equal(list.by.RawSubjectPublicKeyInfo, chain[i+1].RawSubjectPublicKeyInfo) {
				continue
			}
			for _, entry := range list.RevokedCertificateEntries {
				if entry.SerialNumber.Cmp(c.SerialNumber) == 0 {
					return &tls.CertificateVerificationError{
						UnverifiedCertificates: chain,
						Err:                    revokedError{c, entry.RevocationTime},
					}
				}
			}
		}
	}
	return nil
}

// findings lists the revocation lists that are out of date. These lists stay in use, because without a list every
// revoked certificate would be accepted.
func (a *authorities) findings(file string, now time.Time) (found []Finding) {
	for _, list := range a.revoked {
		if now.After(list.NextUpdate) {
			found = append(found, Finding{Text: fmt.Sprintf("the revocation list of %s in %s ended on %s: later "+
				"revocations are unknown here; make a new one", named(list.by), file, date(list.NextUpdate))})
		}
	}
	return found
}

// revokedError is the error for a certificate that its authority has revoked.
type revokedError struct {
	certificate *x509.Certificate
	at          time.Time
}

func (r revokedError) Error() string {
	return fmt.Sprintf("certificate %s was revoked by %s on %s", named(r.certificate), issuer(r.certificate),
		date(r.at))
}
