package server

import (
	"io"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// RouterRules writes the access control of an official router for the manifest's service: its
// clients are robots, the certificate that it dials with is the server, and its routers have all
// rights. It needs neither keys nor ONNX Runtime, and the bundle only where the manifest has no
// model.id.
func RouterRules(cfg manifest.Config, w io.Writer) error {
	prefix, err := namedPrefix(&cfg)
	if err != nil {
		return err
	}
	fleet := acl.Fleet{Robots: cfg.Clients, Routers: cfg.Routers}
	if file := cfg.Zenoh.TLS.ConnectCertificate; file != "" {
		shown, err := endpoint.ReadCertificate(file)
		if err != nil {
			return cfg.Errorf("zenoh.tls.connect_certificate", "%w", err)
		}
		if shown.CommonName == "" {
			return cfg.Errorf("zenoh.tls.connect_certificate",
				"%s has no common name, and a router identifies a link by nothing else", file)
		}
		fleet.Servers = []string{shown.CommonName}
	}
	switch {
	case len(fleet.Robots) == 0:
		return cfg.Errorf("clients", "clients is empty: list the robots' ids, each the common name of its "+
			"certificate. A router's rules cannot express \"the robot that the certificate names\"")
	case len(fleet.Servers)+len(fleet.Routers) == 0:
		return cfg.Errorf("zenoh.tls", "no server could answer the robots: name the certificate that the server "+
			"shows to the router (zenoh.tls.connect_certificate), or list its common name under routers")
	}
	if err := (&acl.Service{Prefix: prefix}).RouterRules(w, fleet); err != nil {
		return cfg.Errorf("clients", "clients and routers: %w", err)
	}
	return nil
}

// namedPrefix returns the beginning of the service's keys.
func namedPrefix(cfg *manifest.Config) (string, error) {
	if cfg.Model.ID != "" {
		return cfg.Prefix(cfg.Model.ID)
	}
	bundle, err := policy.LoadBundle(cfg.Model.RepoOrPath)
	if err != nil {
		return "", cfg.BundleError(err)
	}
	return cfg.Prefix(modelID(cfg, bundle))
}
