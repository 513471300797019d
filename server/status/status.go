// Package status is the server's HTTP server: pages for supervisors (/healthz, /readyz, /metrics)
// and a live page for people (/, /status.json), which changes nothing.
//
// No request can delay an inference: all values are read from atomics. The pages for people and
// /metrics have a limited rate of requests and bounded answers. The pages for supervisors accept
// any Host name. /healthz and /readyz cost little, so their rate is not limited. The number of
// connections is bounded.
package status

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/webpage"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire/listen"
)

const (
	// A connection may take readTimeout to send its request and writeTimeout to read the answer, and may be idle for
	// idleTimeout between two requests. An answer may take stopTimeout when the server stops.
	readTimeout  = 5 * time.Second
	writeTimeout = 10 * time.Second
	idleTimeout  = 5 * time.Second
	stopTimeout  = 300 * time.Millisecond

	maxHeaderBytes  = 4 << 10                // bytes of a request's header; net/http adds as much again
	requestInterval = 100 * time.Millisecond // mean time between two requests by people
	burst           = 32                     // requests by people in a burst
	scrapeInterval  = 20 * time.Millisecond  // shortest time between two requests of /metrics; an earlier request waits

	// most connections at a time; a new one then takes the place of an old one, so that old ones do not block a probe
	connectionsMax = 64
	logInterval    = time.Minute

	// DefaultRows is the number of sessions that the page shows unless a request names another number.
	DefaultRows = 50
	maxRows     = 1000
	findMax     = 64 // bytes of the search text
)

//go:embed index.html
var source []byte

var index = webpage.Compose(source)

// Query selects the sessions to show.
type Query struct {
	Sort string // one of the names in sorts
	Rows int    // largest number of rows
	Find string // part of a robot's name; "": all
}

// sorts are the names of the orders in which the page can list the sessions. Each order begins with the session that
// needs attention most.
var sorts = []string{"runway", "latency", "drops", "quiet", "name"}

// Config holds the sources of a Server. Any goroutine may call its functions.
type Config struct {
	Names []string // names of this machine, in addition to its own
	// handler of /metrics; the parameter dropped is the number of dropped connections
	Metrics func(dropped *atomic.Uint64) http.Handler
	Healthy func() (ok bool, why string)
	Ready   func() (ok bool, why string)
	Status  func(Query) any // returns the content of /status.json
	Clock   rt.Clock
	Log     *slog.Logger
}

// Server is the HTTP server.
type Server struct {
	cfg   Config
	http  http.Server
	done  chan struct{} // closed when the HTTP server has ended
	guard *webpage.Guard

	listener net.Listener
	dropped  atomic.Uint64 // number of dropped connections
	logged   time.Time     // time of the last log line about dropped connections; owner: the HTTP server
}

// Listen binds address and answers there until Close.
func Listen(address string, cfg Config) (*Server, error) {
	listener, err := listen.TCP(address)
	if err != nil {
		return nil, err
	}
	p := &Server{cfg: cfg, done: make(chan struct{})}
	p.listener = listen.Limit(listener, connectionsMax, p.drop)
	p.guard = webpage.NewGuard(cfg.Clock, requestInterval, burst, cfg.Log, "a host of listen_endpoints", cfg.Names...)
	people, mux := http.NewServeMux(), http.NewServeMux()
	people.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { webpage.Send(w, webpage.HTML, index) })
	people.HandleFunc("GET /status.json", p.status)
	watched := p.guard.Check(people, func(*http.Request) (int64, string) { return 0, "nothing here takes one" })
	mux.Handle("/{$}", watched)
	mux.Handle("/status.json", watched)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { respond(w, cfg.Healthy) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { respond(w, cfg.Ready) })
	scrapes := webpage.RateLimit{Clock: cfg.Clock, Interval: scrapeInterval, Burst: connectionsMax}
	values := cfg.Metrics(&p.dropped)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !scrapes.Wait() {
			p.guard.Refuse(w, http.StatusTooManyRequests, "%d requests wait: ask less often", connectionsMax)
			return
		}
		values.ServeHTTP(w, r)
	})
	p.http = http.Server{
		Handler:        mux,
		MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout:    readTimeout,
		WriteTimeout:   writeTimeout,
		IdleTimeout:    idleTimeout,
		ErrorLog:       slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	go func() {
		defer close(p.done)
		_ = p.http.Serve(p.listener) // returns when Close closes the listener
	}()
	return p, nil
}

// Addr returns the bound address.
func (p *Server) Addr() net.Addr { return p.listener.Addr() }

func (p *Server) drop(from net.Addr) {
	p.dropped.Add(1)
	if now := time.Now(); now.Sub(p.logged) >= logInterval {
		p.logged = now
		p.cfg.Log.Warn("too many connections to the health port: old ones are closed", "max", connectionsMax,
			"closed", p.dropped.Load(), "from", from.String())
	}
}

// Close stops the server. It waits at most stopTimeout for unfinished answers.
func (p *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := p.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = p.http.Close()
	}
	<-p.done
	return err
}

func respond(w http.ResponseWriter, ask func() (bool, string)) {
	ok, why := ask()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else if why == "" {
		why = "ok"
	}
	fmt.Fprintln(w, why)
}

func (p *Server) status(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r)
	if err != nil {
		p.guard.Refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(p.cfg.Status(q)); err != nil {
		p.guard.Refuse(w, http.StatusInternalServerError, "status: %v", err)
		return
	}
	webpage.Send(w, webpage.JSON, text.Bytes())
}

func parseQuery(r *http.Request) (q Query, err error) {
	values := r.URL.Query()
	q = Query{Sort: values.Get("sort"), Rows: DefaultRows, Find: values.Get("find")}
	if q.Sort == "" {
		q.Sort = sorts[0]
	}
	if !slices.Contains(sorts, q.Sort) {
		return q, fmt.Errorf("sort=%.40s: want %s", q.Sort, strings.Join(sorts, ", "))
	}
	if text := values.Get("rows"); text != "" {
		if q.Rows, err = strconv.Atoi(text); err != nil || q.Rows < 1 || q.Rows > maxRows {
			return q, fmt.Errorf("rows=%.40s: want 1 to %d", text, maxRows)
		}
	}
	if len(q.Find) > findMax {
		return q, fmt.Errorf("find has %d bytes, want at most %d", len(q.Find), findMax)
	}
	return q, nil
}
