// Package page is a running edge in a browser: how it goes, what the last minute was like,
// where the joints are and what the cameras see. Who has the token of --http-token operates
// it, as edge-rt ctl does (operate.go, token.go); without one a browser on the robot itself
// may give another task, and nothing else moves anything.
//
// No request can delay the tick: the page shares no lock with it, a capture thread or the
// sender, and gets copies of pictures (capture.Preview). Go's collector is off while the
// arm runs, so connections and requests are few (limit.go, webpage.Guard) and bounded (page.go,
// handlers.go), and their garbage is collected just after a tick.
package page

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edgert/edge/capture"
	"edgert/edge/timeline"
	"edgert/internal/bind"
	"edgert/internal/webpage"
	"edgert/rt"
	"edgert/wire"
)

const (
	maxConnections     = 16                    // at once; the next wait in the kernel
	maxPerAddress      = 12                    // of them; what one address has beyond is closed
	dropInterval       = 2 * time.Millisecond  // between two that are closed so
	connectionInterval = 25 * time.Millisecond // between two connections, in the long run
	requestInterval    = 20 * time.Millisecond // between two requests of all clients, in the long run
	burst              = 16                    // connections or requests at once
	maxHeaderBytes     = 4 << 10               // a request's header; net/http adds as much again
	readTimeout        = 2 * time.Second       // reading a request
	writeTimeout       = 5 * time.Second       // writing its answer
	idleTimeout        = 10 * time.Second      // a connection without a request
	shutdownTimeout    = 300 * time.Millisecond
	maxPictures        = 4 // being sent at once

	taskPath     = "/task"
	maxTaskBytes = wire.MaxTextBytes

	collectInterval = time.Second // between looks at the heap
	collectBytes    = 16 << 20    // garbage that is collected, well before the fuse of rt.HoldGC
	tickTimeout     = time.Second // for the end of a tick: the slowest rate's period
	tickPoll        = time.Millisecond
)

//go:embed index.html
var source []byte

var index = timeline.Compose(source)

// Config is one page.
type Config struct {
	Address string   // of Address
	Names   []string // by which this machine is called beside its own
	Token   string   // who shows it may operate; empty: nobody may
	Clock   rt.Clock
	Log     *slog.Logger
}

// Run is a running edge. Any goroutine may call its functions.
type Run struct {
	Status   func() any // becomes /status.json
	Buttons  []Button   // what Command takes
	Command  func(ctx context.Context, line string) Reply
	Timeline func(b []byte, since timeline.Since) []byte // appends /timeline.json; nil: there is none
	SetTask  func(context.Context, string) error
	Instance string                       // which run it is; another after a restart
	Healthy  func() (ok bool, why string) // whether ticks come
	Ticks    func() uint64                // so far
	Previews []*capture.Preview           // in the order of the command line
}

// Stats counts what requests have cost.
type Stats struct {
	Connections uint64 `json:"connections"`
	Requests    uint64 `json:"requests"`
	Pictures    uint64 `json:"pictures"`
	Refused     uint64 `json:"refused"`     // requests refused: another machine's name, no picture, no token
	Collections uint64 `json:"collections"` // by hand
	Dropped     uint64 `json:"dropped"`     // connections closed: their address had its share
	Commands    uint64 `json:"commands"`    // of who showed the token
	WrongTokens uint64 `json:"wrong_tokens"`
}

// Page answers browsers. It listens before the arm is opened: a port may be in use.
type Page struct {
	http     http.Server
	listener *limitedListener
	clock    rt.Clock
	log      *slog.Logger
	guard    *webpage.Guard
	gate     *gate // nil: nobody may operate
	run      atomic.Pointer[Run]
	buffers  chan []byte // memory of the pictures on their way; made by Watch
	done     chan struct{}
	running  sync.WaitGroup

	pictures, collections, commands, wrongTokens atomic.Uint64
}

// Address completes HOST:PORT, :PORT or PORT; the default host is loopback.
func Address(text string) (string, error) {
	host, port := "", text
	if strings.Contains(text, ":") {
		var err error
		if host, port, err = net.SplitHostPort(text); err != nil {
			return "", fmt.Errorf("%q is no address, want HOST:PORT or PORT, such as 127.0.0.1:8080", text)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q has the port %q, want 1 to 65535, such as 127.0.0.1:8080", text, port)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// Listen binds and answers; what it shows begins with Watch.
func Listen(cfg Config) (*Page, error) {
	listener, err := bind.TCP(cfg.Address)
	if err != nil {
		return nil, bind.Explain(err, "choose another port")
	}
	host, _, _ := net.SplitHostPort(cfg.Address)
	p := &Page{
		clock: cfg.Clock, log: cfg.Log, buffers: make(chan []byte, maxPictures), done: make(chan struct{}), listener: limitListener(listener, cfg.Clock),
		guard: webpage.NewGuard(cfg.Clock, requestInterval, burst, cfg.Log, "the name given to --http or --http-name", append(cfg.Names, host)...),
	}
	if cfg.Token != "" {
		p.gate = newGate(cfg.Token, cfg.Clock)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.index)
	mux.HandleFunc("GET /status.json", p.status)
	mux.HandleFunc("GET /timeline.json", p.timeline)
	mux.HandleFunc("GET /buttons.json", p.buttons)
	mux.HandleFunc("GET /healthz", p.healthz)
	mux.HandleFunc("GET /camera/{name...}", p.picture)
	mux.HandleFunc("PUT "+taskPath, p.setTask)
	mux.HandleFunc("POST "+commandPath, p.command)
	p.http = http.Server{
		Handler: p.guard.Check(mux, mayBring), MaxHeaderBytes: maxHeaderBytes, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		DisableGeneralOptionsHandler: true,                                                   // net/http would answer "OPTIONS *" by itself, past the guard, as fast as it is asked
		ErrorLog:                     slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn), // what clients do wrong is counted, and no log of ours
	}
	p.running.Go(func() { _ = p.http.Serve(p.listener) }) // ends with Close
	p.running.Go(p.collect)
	return p, nil
}

// URL is the page's address.
func (p *Page) URL() string { return "http://" + p.listener.Addr().String() + "/" }

// Watch shows run from now on. It allocates all that pictures need. Call it once.
func (p *Page) Watch(run Run) {
	room := 0
	for _, v := range run.Previews {
		room = max(room, v.MaxBytes())
	}
	for range maxPictures {
		p.buffers <- make([]byte, room)
	}
	p.run.Store(&run)
}

// Stats returns the counters as they stand.
func (p *Page) Stats() Stats {
	return Stats{
		Connections: p.listener.accepted.Load(), Requests: p.guard.Requests.Load(), Pictures: p.pictures.Load(),
		Refused: p.guard.Refused.Load(), Collections: p.collections.Load(),
		Dropped: p.listener.dropped.Load(), Commands: p.commands.Load(), WrongTokens: p.wrongTokens.Load(),
	}
}

// Close stops answering, after a moment for answers on their way; it may be called twice.
func (p *Page) Close() {
	select {
	case <-p.done:
		return
	default:
	}
	close(p.done)
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := p.http.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = p.http.Close()
	}
	p.running.Wait()
}

// mayBring is what a request may bring: a task and a command alone have a body.
func mayBring(r *http.Request) (limit int64, says string) {
	switch {
	case r.Method == http.MethodPut && r.URL.Path == taskPath:
		limit = maxTaskBytes
	case r.Method == http.MethodPost && r.URL.Path == commandPath:
		limit = maxCommandBytes
	}
	return limit, fmt.Sprintf("only a task and a command have one, of at most %d and %d", maxTaskBytes, maxCommandBytes)
}

// collect collects the garbage of requests until Close, for the collector is off.
func (p *Page) collect() {
	tick := time.NewTicker(collectInterval)
	defer tick.Stop()
	var last rt.HeapStat
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
		}
		heap, run := rt.ReadHeap(), p.run.Load()
		switch {
		case run == nil || heap.Cycles != last.Cycles: // not yet off, the fuse, or another collection
			last = heap
		case heap.Bytes-last.Bytes > collectBytes:
			afterTick(run)
			runtime.GC()
			p.collections.Add(1)
			last = rt.ReadHeap()
		}
	}
}

// afterTick waits for the end of a tick, when there is most time before the next.
func afterTick(run *Run) {
	before := run.Ticks()
	for waited := time.Duration(0); waited < tickTimeout && run.Ticks() == before; waited += tickPoll {
		time.Sleep(tickPoll)
	}
}
