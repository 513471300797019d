// Package webpage is the common part of the programs' pages for a browser: which requests are
// permitted, at which rate, and the style.
//
// A page has no password. Guard answers only requests to this machine's own names: a foreign site
// could point its own name at this machine, and its page could then read the answers.
package webpage

import (
	"bytes"
	_ "embed"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

var (
	//go:embed base.css
	baseCSS []byte
	//go:embed base.js
	baseJS []byte
)

// Compose replaces the comments in a page that name base.css and base.js, one of each, by these common parts.
func Compose(page []byte) []byte {
	return Insert(Insert(page, "/* base.css */", baseCSS), "/* base.js */", baseJS)
}

// Insert replaces a mark, which the page must contain once, by a text.
func Insert(page []byte, mark string, text []byte) []byte {
	if bytes.Count(page, []byte(mark)) != 1 {
		panic("webpage: a page without " + mark)
	}
	return bytes.Replace(page, []byte(mark), bytes.TrimSpace(text), 1)
}

// Header values that all answers share.
var (
	noStore       = []string{"no-store"}
	noSniff       = []string{"nosniff"}
	sameOrigin    = []string{"same-origin"}
	contentPolicy = []string{"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src " +
		"'self'; img-src blob: data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}
)

// Types of answers.
var (
	HTML = []string{"text/html; charset=utf-8"}
	JSON = []string{"application/json"}
	JPEG = []string{"image/jpeg"}
)

// Send answers with text of a type.
func Send(w http.ResponseWriter, kind []string, text []byte) {
	w.Header()["Content-Type"] = kind
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text)
}

// Guard permits requests at a limited rate. It refuses requests to a foreign name, and requests
// from another site's page.
type Guard struct {
	// Constant after NewGuard.
	names []string
	hint  string
	log   *slog.Logger

	Rate RateLimit // limit for all requests together

	// Atomic.
	Requests, Refused atomic.Uint64
}

// NewGuard returns a guard that permits requests to the machine's own names and to those in the parameter names. The
// parameter hint is the flag by which a user adds a name.
func NewGuard(clock rt.Clock, interval time.Duration, burst int, log *slog.Logger, hint string,
	names ...string) *Guard {
	g := &Guard{
		Rate:  RateLimit{Clock: clock, Interval: interval, Burst: burst},
		log:   log,
		hint:  hint,
		names: append(names, "localhost"),
	}
	if name, err := os.Hostname(); err == nil {
		g.names = append(g.names, name, name+".local")
	}
	return g
}

// Check calls the handler next for permitted requests. For a request with a body, the function body returns the largest
// permitted size in bytes, and the text of the refusal of a larger body.
func (g *Guard) Check(next http.Handler, body func(*http.Request) (limit int64, says string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if why := recover(); why != nil {
				g.log.Warn("page: a request failed", "path", r.URL.Path, "panic", why)
				panic(http.ErrAbortHandler)
			}
		}()
		g.Requests.Add(1)
		due := g.Rate.Wait()
		h := w.Header()
		h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
		h["Content-Security-Policy"], h["Cross-Origin-Resource-Policy"] = contentPolicy, sameOrigin
		limit, says := int64(0), ""
		if r.ContentLength != 0 {
			limit, says = body(r)
		}
		switch {
		case !due:
			g.Refuse(w, http.StatusTooManyRequests, "%d requests wait: ask less often", g.Rate.Burst)
		case !g.knownHost(r.Host):
			g.Refuse(w, http.StatusMisdirectedRequest,
				"this machine is not called %q: use its address, its host name, or %s", r.Host, g.hint)
		case crossSite(r.Header):
			g.Refuse(w, http.StatusForbidden, "another site's page asks for this: open it by itself")
		case r.ContentLength != 0 && (limit == 0 || r.ContentLength > limit):
			h.Set("Connection", "close")
			g.Refuse(w, http.StatusRequestEntityTooLarge, "a request with a body of %d bytes: %s", r.ContentLength,
				says)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Refuse answers with a reason, and counts the refusal.
func (g *Guard) Refuse(w http.ResponseWriter, code int, format string, args ...any) {
	g.Refused.Add(1)
	http.Error(w, fmt.Sprintf(format, args...), code)
}

// knownHost reports whether host names this machine.
func (g *Guard) knownHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	for _, own := range g.names {
		if strings.EqualFold(name, own) {
			return true
		}
	}
	return false
}

// crossSite reports whether another site's page makes the request. Browsers send the header only to
// addresses that they trust, such as loopback.
func crossSite(h http.Header) bool {
	site := h.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && h.Get("Sec-Fetch-Dest") != "document"
}

// RateLimit permits one call per Interval, and after a pause up to Burst calls at once. Up to Burst calls may wait.
type RateLimit struct {
	Clock    rt.Clock
	Interval time.Duration
	Burst    int

	mu   sync.Mutex
	next rt.Instant // guarded by mu; when the next call would be due without a burst
}

// Wait waits until the call is due and returns true. If too many calls wait already, it returns false at once. Without
// this bound the number of waiting calls could grow, since a client can close its connection while its call waits.
func (p *RateLimit) Wait() bool {
	p.mu.Lock()
	now, window := p.Clock.Now(), time.Duration(p.Burst)*p.Interval
	next := max(p.next, now.Add(-window)).Add(p.Interval)
	due := next.Sub(now)
	if due <= window {
		p.next = next
	}
	p.mu.Unlock()
	if due > window {
		return false
	}
	time.Sleep(due)
	return true
}
