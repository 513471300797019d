package endpoint

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// maxPEM is the largest size of a certificate or key file, in bytes.
const maxPEM = 1 << 20

// Security configures TLS by PEM files. A dialler reads the files for every connection; a listener reads them again
// when they have changed. So certificates may be renewed while the process runs.
type Security struct {
	// RootCA holds the authorities that vouch for the other side, and may hold their revocation lists.
	// When it is empty, a dialler trusts the system's authorities. A listener with MutualTLS requires it.
	RootCA string

	ConnectCertificate string // shown when dialling, leaf first; empty: no certificate
	ConnectKey         string
	ListenCertificate  string // shown when listening; required there
	ListenKey          string

	MutualTLS bool // listening: require a certificate that RootCA vouches for; dialling: show our certificate
	AnyName   bool // dialling: accept a certificate that does not name the host
}

// options maps the settings that an endpoint may have after '#' to their fields. Zenoh's options that contain the
// certificate or key itself (_base64, _raw) are missing, because they would put keys on command lines.
var options = map[string]func(s *Security, v string) error{
	"root_ca_certificate_file": func(s *Security, v string) error { s.RootCA = v; return nil },
	"connect_certificate_file": func(s *Security, v string) error { s.ConnectCertificate = v; return nil },
	"connect_private_key_file": func(s *Security, v string) error { s.ConnectKey = v; return nil },
	"listen_certificate_file":  func(s *Security, v string) error { s.ListenCertificate = v; return nil },
	"listen_private_key_file":  func(s *Security, v string) error { s.ListenKey = v; return nil },
	"enable_mtls":              func(s *Security, v string) error { return parseBool(v, &s.MutualTLS) },
	"verify_name_on_connect": func(s *Security, v string) error {
		var verify bool
		err := parseBool(v, &verify)
		s.AnyName = !verify
		return err
	},
}

func parseBool(text string, to *bool) error {
	if text != "true" && text != "false" {
		return fmt.Errorf("%q, want true or false", text)
	}
	*to = text == "true"
	return nil
}

// set applies settings of the form key=value;key=value.
func (s *Security) set(text string) error {
	for _, option := range strings.Split(text, ";") {
		key, value, ok := strings.Cut(option, "=")
		apply := options[key]
		if !ok || value == "" || apply == nil {
			return fmt.Errorf("option %q is not supported, want root_ca_certificate_file=…, "+
				"connect_certificate_file=…, "+
				"connect_private_key_file=…, listen_certificate_file=…, listen_private_key_file=…, enable_mtls=… or "+
				"verify_name_on_connect=…", option)
		}
		if err := apply(s, value); err != nil {
			return fmt.Errorf("option %s is %w", key, err)
		}
	}
	return nil
}

// baseConfig is the configuration that both sides share. Records have their full size from the start, because the
// receiver cannot use a batch before its last byte has arrived. Session tickets are off, because with a ticket a node
// could return without showing its certificate again.
func baseConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true, SessionTicketsDisabled: true}
}

// clientConfig returns the TLS configuration for dialling host.
func (s *Security) clientConfig(host string) (*tls.Config, error) {
	cfg := baseConfig()
	host, _, _ = strings.Cut(host, "%") // an IPv6 zone is local, so no certificate contains it
	cfg.ServerName = host
	trusted, err := readAuthorities(s.RootCA)
	if err != nil {
		return nil, err
	}
	cfg.RootCAs = trusted.pool()
	switch {
	case s.ConnectCertificate != "" || s.ConnectKey != "":
		pair, err := loadCertificate("connect", s.ConnectCertificate, s.ConnectKey)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	case s.MutualTLS:
		return nil, errors.New("wire/zenoh: mutual TLS is asked for without a certificate to show when dialling: " +
			"give its file and its key's")
	}
	cfg.VerifyConnection = trusted.verify
	if s.AnyName {
		// This switches Go's own checks off. VerifyConnection makes all of them except the check of the name.
		cfg.InsecureSkipVerify = true
		cfg.VerifyConnection = func(c tls.ConnectionState) (err error) {
			if c.VerifiedChains, err = chainsOf(c.PeerCertificates, cfg.RootCAs); err != nil {
				return err
			}
			return trusted.verify(c)
		}
	}
	return cfg, nil
}

func chainsOf(shown []*x509.Certificate, roots *x509.CertPool) ([][]*x509.Certificate, error) {
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	chains, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	if err != nil {
		return nil, &tls.CertificateVerificationError{UnverifiedCertificates: shown, Err: err}
	}
	return chains, nil
}

// serverConfig returns the TLS configuration for accepted connections.
func (s *Security) serverConfig() (*tls.Config, error) {
	if s.ListenCertificate == "" && s.ListenKey == "" {
		return nil, errors.New("wire/zenoh: listening on tls/ without a certificate to show: give its file and its " +
			"key's")
	}
	pair, err := loadCertificate("listen", s.ListenCertificate, s.ListenKey)
	if err != nil {
		return nil, err
	}
	w := s.server()
	if leaf := pair.Leaf; !allows(leaf, w.usage) {
		return nil, fmt.Errorf("wire/zenoh: TLS certificate %s (%s) is not for %s: its extendedKeyUsage lacks %s, so "+
			"every client refuses it; have one made with it",
			s.ListenCertificate, named(leaf), w.role, w.key)
	}
	cfg := baseConfig()
	cfg.Certificates = []tls.Certificate{pair}
	if s.MutualTLS {
		if s.RootCA == "" {
			return nil, errors.New("wire/zenoh: mutual TLS is asked for without the authorities that vouch for those " +
				"who dial: give the root CA's file")
		}
		trusted, err := readAuthorities(s.RootCA)
		if err != nil {
			return nil, err
		}
		cfg.ClientCAs, cfg.VerifyConnection = trusted.pool(), trusted.verify
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}

// allows reports whether a certificate may be used for a purpose. A certificate without extendedKeyUsage may be used
// for every purpose.
func allows(c *x509.Certificate, usage x509.ExtKeyUsage) bool {
	return len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, usage) ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// loadCertificate loads a certificate and its key; side is the common prefix of the names of the two options.
func loadCertificate(side, certificate, key string) (tls.Certificate, error) {
	if certificate == "" || key == "" {
		return tls.Certificate{}, fmt.Errorf("wire/zenoh: TLS %s certificate %q with key %q: they go together", side,
			certificate, key)
	}
	certPEM, err := readPEM(certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := readPEM(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	p, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return p, fmt.Errorf("wire/zenoh: TLS certificate %s with key %s: %w (want PEM files, the leaf certificate "+
			"first, and the key that belongs to it)",
			certificate, key, err)
	}
	return p, nil
}

// readPEM reads a file and refuses damaged PEM blocks. encoding/pem would skip a damaged block, such as a revocation
// list, without an error.
func readPEM(path string) ([]byte, error) {
	text, err := userfile.Read(path, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("wire/zenoh: TLS: %w", err)
	}
	const sequence = "\x30" // begins each file in DER
	if clean, err := userfile.Text(text); err == nil {
		text = clean
	} else if !bytes.HasPrefix(text, []byte(sequence)) {
		return nil, fmt.Errorf("wire/zenoh: TLS: %s: %w", path, err)
	}
	begun, whole := bytes.Count(text, []byte("-----BEGIN ")), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if whole++; block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
			return nil, fmt.Errorf("wire/zenoh: TLS: the key %s needs a passphrase, want one without: "+
				"openssl pkey -in OLD -out NEW", path)
		}
	}
	switch {
	case begun == 0:
		return nil, fmt.Errorf("wire/zenoh: TLS: %s holds no certificate or key in PEM (-----BEGIN …): of DER, "+
			"openssl x509 (a key: openssl pkey) -inform DER -in OLD -out NEW makes it", path)
	case whole < begun:
		return nil, fmt.Errorf("wire/zenoh: TLS: %s: %d of its %d PEM blocks are damaged: make or copy it anew, with "+
			"-----BEGIN … and -----END … on lines of their own", path, begun-whole, begun)
	}
	return text, nil
}
