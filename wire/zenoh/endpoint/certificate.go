package endpoint

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Certificate describes the first certificate of a PEM file.
type Certificate struct {
	CommonName string   // name by which an official router's access control identifies it
	Names      []string // names by which our listener identifies it, see CertificateNames
	Until      time.Time
}

// ReadCertificate reads a certificate file. It needs no key.
func ReadCertificate(path string) (Certificate, error) {
	leaf, err := readLeaf(path)
	if err != nil {
		return Certificate{}, err
	}
	return Certificate{CommonName: leaf.Subject.CommonName, Names: namesOf(leaf), Until: leaf.NotAfter}, nil
}

// readLeaf reads the first certificate of a PEM file.
func readLeaf(path string) (*x509.Certificate, error) {
	text, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, fmt.Errorf("wire/zenoh: TLS certificate %s holds no certificate, want a PEM file", path)
		}
		if block.Type == "CERTIFICATE" {
			leaf, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("wire/zenoh: TLS certificate %s: %w", path, err)
			}
			return leaf, nil
		}
	}
}

// endsSoon is the time before a certificate's end at which warnings begin.
const endsSoon = 30 * 24 * time.Hour

// Finding is one present or coming fault of a certificate of ours.
type Finding struct {
	Text    string // constant as long as the fault does not change
	Refused bool   // the other side, or we, refuse links because of the fault
}

// judge returns a finding for a certificate that has ended, ends soon or is not valid yet.
func judge(c *x509.Certificate, file, effect string, now time.Time) []Finding {
	what := fmt.Sprintf("the certificate %s of %s", named(c), file)
	left := c.NotAfter.Sub(now)
	switch {
	case left <= 0:
		return []Finding{
			{fmt.Sprintf("%s ended on %s: %s; make a new one, or set this machine's clock where it is wrong "+
				"(timedatectl)", what, date(c.NotAfter), effect), true}}
	case now.Before(c.NotBefore):
		return []Finding{{fmt.Sprintf("%s is not valid before %s: %s; set this machine's clock where it is behind "+
			"(timedatectl), or make a new one", what, date(c.NotBefore), effect), true}}
	case left <= endsSoon:
		return []Finding{{fmt.Sprintf("%s ends in %s, on %s: make a new one before", what, days(left),
			date(c.NotAfter)), false}}
	}
	return nil
}

// openKey returns a finding for a private key that every user of this machine can read, because neither the file's mode
// nor the folder's prevents it.
func openKey(file string) []Finding {
	const others, enter = 0o004, 0o001
	key, err := os.Stat(file)
	folder, failed := os.Stat(filepath.Dir(file))
	if err != nil || failed != nil || key.Mode()&others == 0 || folder.Mode()&enter == 0 {
		return nil
	}
	return []Finding{{Text: fmt.Sprintf("every user of this machine can read the private key %s and pose as its "+
		"owner: chmod o-r %[1]s, and replace the key if others use this machine", file)}}
}

// days returns the time left as a text that seldom changes, because each text is logged once.
func days(left time.Duration) string {
	switch n := int(left.Hours() / 24); {
	case n >= 2:
		return fmt.Sprintf("%d days", n)
	case left >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(left.Hours()))
	}
	return "less than two hours"
}

// Ending lists, as sentences, the certificates whose validity has ended, ends soon, or has not begun, and the private
// keys that every user of this machine can read. It omits files that cannot be read, because Dial and Listen report
// them.
func (s *Security) Ending() []string { return s.ending(time.Now()) }

func (s *Security) ending(now time.Time) (warnings []string) {
	for _, f := range slices.Concat(s.DialFindings(now), s.fileFindings(s.ListenCertificate, "clients refuse it", now),
		openKey(s.ListenKey)) {
		warnings = append(warnings, f.Text)
	}
	return warnings
}

// Ends calls the function add with the end of the validity of each certificate file that is set and can be read: "ca"
// is the root CA, "connect" the certificate for dialling, "listen" the certificate for listening.
func (s *Security) Ends(add func(file string, end time.Time)) {
	for _, f := range []struct{ name, path string }{
		{"ca", s.RootCA}, {"connect", s.ConnectCertificate}, {"listen", s.ListenCertificate},
	} {
		if f.path == "" {
			continue
		}
		if c, err := ReadCertificate(f.path); err == nil {
			add(f.name, c.Until)
		}
	}
}

// DialFindings returns the findings for the root CA, and for the certificate and the key with which we dial.
func (s *Security) DialFindings(now time.Time) []Finding {
	return slices.Concat(s.fileFindings(s.RootCA, "no certificate that it signed is trusted", now),
		s.fileFindings(s.ConnectCertificate, "servers refuse it", now), openKey(s.ConnectKey))
}

func (s *Security) fileFindings(file, effect string, now time.Time) []Finding {
	if file == "" {
		return nil
	}
	c, err := readLeaf(file)
	if err != nil {
		return nil
	}
	return judge(c, file, effect, now)
}

// Listening lists the faults of the certificates that a listener at this endpoint would show.
func (e Endpoint) Listening(now time.Time) []Finding {
	if e.Protocol != TLS {
		return nil
	}
	return (&certificates{security: e.Security}).findings(now)
}

// Dialling lists the faults of the certificates used to dial this endpoint. Every attempt to dial reads their files
// again.
func (e Endpoint) Dialling(now time.Time) (found []Finding) {
	if e.Protocol != TLS {
		return nil
	}
	found = e.Security.DialFindings(now)
	if err := e.CheckDial(); err != nil {
		found = append(found, Finding{Text: fmt.Sprintf("%s can be dialled no more: %v", e, err)})
	}
	return found
}

// CertificateNames returns the names in the certificate that the other end of a connection has shown and that was
// verified: the DNS names of its subjectAltName or, without these, its common name. certified is false if there is no
// such certificate.
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
