// Package endpointtest makes certificates for tests of TLS.
package endpointtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates and writes them into a temporary folder of the test.
type Authority struct {
	CA string // file of the authority's own certificate

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	return Make(t, func(*x509.Certificate) {})
}

// Make does the same as New, but calls change on the authority's certificate before it is signed.
func Make(t testing.TB, change func(*x509.Certificate)) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test CA"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	change(template)
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	a.check(err)
	a.cert, err = x509.ParseCertificate(der)
	a.check(err)
	a.CA = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *Authority) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	return key
}

func (a *Authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	a.check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// Issue signs a certificate for a common name, valid for both sides, and returns the files of the
// certificate and its key. hosts are the host names and addresses for which the certificate is valid.
func (a *Authority) Issue(name string, hosts ...string) (cert, key string) {
	a.t.Helper()
	return a.IssueUntil(time.Now().Add(time.Hour), name, hosts...)
}

// IssueUntil does the same as Issue for a certificate whose validity ends at the given time.
func (a *Authority) IssueUntil(end time.Time, name string, hosts ...string) (cert, key string) {
	a.t.Helper()
	return a.IssueAs(name, func(c *x509.Certificate) { c.NotAfter = end }, hosts...)
}

// IssueAs does the same as Issue, but calls change on the certificate before it is signed.
func (a *Authority) IssueAs(name string, change func(*x509.Certificate), hosts ...string) (cert, key string) {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	a.check(err)
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-2 * time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	change(template)
	k := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	a.check(err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	a.check(err)
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", raw)
}

// Revoke writes a root CA file with the authority and a list that revokes the given certificates and is valid until the
// given time.
func (a *Authority) Revoke(end time.Time, certs ...string) (ca string) {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: end}
	for _, file := range certs {
		text, err := os.ReadFile(file)
		a.check(err)
		block, _ := pem.Decode(text)
		c, err := x509.ParseCertificate(block.Bytes)
		a.check(err)
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	a.check(err)
	ca = a.write("revoked.pem", "X509 CRL", der)
	text, err := os.ReadFile(ca)
	a.check(err)
	own, err := os.ReadFile(a.CA)
	a.check(err)
	a.check(os.WriteFile(ca, append(own, text...), 0o600))
	return ca
}
