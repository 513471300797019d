package server

import (
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/endpoint"
)

// certified is a network with certificates of its own.
type certified interface {
	Certificates(now time.Time) []endpoint.Finding
}

// certificates are the findings of the certificates by which robots reach the server.
type certificates struct {
	found atomic.Pointer[[]endpoint.Finding]
}

// look reads the findings and logs those that are new, and that all are gone.
//
// Owner: housekeeping.
func (c *certificates) look(network wire.Session, now time.Time, log *slog.Logger) {
	shown, ok := network.(certified)
	if !ok {
		return
	}
	before, found := c.all(), shown.Certificates(now)
	for _, f := range found {
		switch {
		case slices.Contains(before, f):
		case f.Refused:
			log.Error("NO ROBOT CAN CONNECT", "why", f.Text, "clock", now.UTC().Format(time.RFC3339))
		default:
			log.Warn("certificate", "why", f.Text)
		}
	}
	if len(before) > 0 && len(found) == 0 {
		log.Info("the certificates are in order again")
	}
	c.found.Store(&found)
}

// all are the findings of the last look.
//
// Owner: any goroutine.
func (c *certificates) all() []endpoint.Finding {
	if found := c.found.Load(); found != nil {
		return *found
	}
	return nil
}

// texts are all findings in words.
func (c *certificates) texts() (texts []string) {
	for _, f := range c.all() {
		texts = append(texts, f.Text)
	}
	return texts
}

// usable reports whether robots can connect, and why not.
func (c *certificates) usable() (ok bool, why string) {
	var texts []string
	for _, f := range c.all() {
		if f.Refused {
			texts = append(texts, f.Text)
		}
	}
	return len(texts) == 0, strings.Join(texts, "; ")
}
