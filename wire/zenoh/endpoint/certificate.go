package endpoint

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"time"
)

// Certificate is what the first certificate of a PEM file says.
type Certificate struct {
	CommonName string   // what an official router's access control knows it by
	Names      []string // what our listener knows it by, see CertificateNames
	Until      time.Time
}

// ReadCertificate reads one. It needs no key.
func ReadCertificate(path string) (c Certificate, err error) {
	text, err := readPEM(path)
	if err != nil {
		return c, err
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return c, fmt.Errorf("wire/zenoh: TLS certificate %s holds no certificate, want a PEM file", path)
		}
		if block.Type == "CERTIFICATE" {
			leaf, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return c, fmt.Errorf("wire/zenoh: TLS certificate %s: %w", path, err)
			}
			return Certificate{CommonName: leaf.Subject.CommonName, Names: namesOf(leaf), Until: leaf.NotAfter}, nil
		}
	}
}

// endsSoon is how long before its end a certificate is worth a warning.
const endsSoon = 30 * 24 * time.Hour

// Ending tells of each certificate that is at its end, in words. Files that cannot be
// read are left to those who need them.
func (s *Security) Ending() []string { return s.ending(time.Now()) }

func (s *Security) ending(now time.Time) (warnings []string) {
	for _, file := range []string{s.RootCA, s.ConnectCertificate, s.ListenCertificate} {
		if file == "" {
			continue
		}
		c, err := ReadCertificate(file)
		left := c.Until.Sub(now)
		switch {
		case err != nil || left > endsSoon:
		case left <= 0:
			warnings = append(warnings, fmt.Sprintf("the certificate %s ended on %s: nobody takes it any more, make a new one", file, c.Until.Format(time.DateOnly)))
		default:
			warnings = append(warnings, fmt.Sprintf("the certificate %s ends in %d days, on %s: make a new one before", file, int(left.Hours()/24), c.Until.Format(time.DateOnly)))
		}
	}
	return warnings
}

// CertificateNames are the names in the certificate that the other end of a
// connection has shown and that was verified: the DNS names of its subjectAltName,
// else its common name. certified is false without such a certificate.
func CertificateNames(conn net.Conn) (names []string, certified bool) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, false
	}
	state := secure.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return nil, false
	}
	return namesOf(state.VerifiedChains[0][0]), true
}

func namesOf(leaf *x509.Certificate) []string {
	switch {
	case len(leaf.DNSNames) > 0:
		return leaf.DNSNames
	case leaf.Subject.CommonName != "":
		return []string{leaf.Subject.CommonName}
	}
	return nil
}
