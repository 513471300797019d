// Package page shows a running edge in a browser: its state, the last minute, the positions of the joints and the
// pictures of the cameras. The holder of the token of --http-token can operate the arm, as with edge-rt ctl
// (operate.go, token.go). Without a token, the only request that can move the arm is a new task from a browser on the
// robot itself.
//
// No request can delay the tick: the page shares no lock with the tick, a capture thread or the
// sender, and works on copies of pictures (capture.Preview). Go's collector is off while the arm
// runs. Connections and requests are therefore few (limit.go, webpage.Guard) and bounded (page.go,
// handlers.go), and a collection of their garbage starts just after a tick.
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

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/webpage"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/timeline"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
)

const (
	maxConnections     = 16                    // simultaneous connections; further ones wait in the kernel
	maxPerAddress      = 12                    // simultaneous connections of an address; further ones are closed
	dropInterval       = 2 * time.Millisecond  // pause after each connection that is closed for exceeding maxPerAddress
	dropBurst          = 4096                  // connections closed before the first pause; the kernel queues as many
	connectionInterval = 25 * time.Millisecond // shortest time between two connections, in the long run
	requestInterval    = 20 * time.Millisecond // shortest time between two requests of any clients, in the long run
	burst              = 16                    // simultaneous connections or requests
	maxHeaderBytes     = 4 << 10               // maximum size of a request's header; net/http permits as much again
	readTimeout        = 2 * time.Second       // longest time for the arrival of a request
	writeTimeout       = 5 * time.Second       // longest time for sending its answer
	idleTimeout        = 10 * time.Second      // longest time for which a connection without a request stays open
	shutdownTimeout    = 300 * time.Millisecond
	maxPictures        = 4 // pictures in transmission at the same time

	taskPath     = "/task"
	maxTaskBytes = wire.MaxTextBytes

	collectInterval = time.Second // interval between two checks of the heap
	collectBytes    = 16 << 20    // garbage that starts a collection, well below the limit of rt.HoldGC
	tickTimeout     = time.Second // longest wait for the end of a tick: the period of the slowest rate
	tickPoll        = time.Millisecond
)

//go:embed index.html
var source []byte

var index = timeline.Compose(source)

// Flags choose whether and where a run serves the page, and who may operate it.
type Flags struct {
	HTTP      string   `name:"http" help:"Serve a page with the live state and camera pictures, /status.json, /camera/NAME and /healthz; without a host only to this machine. Default: none." placeholder:"[HOST:]PORT"`
	HTTPToken string   `name:"http-token" help:"Give the page the buttons of edge-rt ctl, for visitors with the token in this file, which is made when it is missing; auto: a new token at each start, printed once." placeholder:"FILE|auto"`
	Metrics   string   `name:"metrics" help:"Serve /metrics for Prometheus, and /healthz; without a host only to this machine. Default: none." placeholder:"[HOST:]PORT"`
	HTTPName  []string `name:"http-name" help:"A name by which browsers, and Prometheus, may call this machine beside its own; repeat for more." placeholder:"NAME"`
}

// Check refuses flags that cannot work, and completes the addresses. log is the log of Open.
func (f *Flags) Check(log *slog.Logger) (err error) {
	for _, at := range []struct {
		flag  string
		value *string
	}{{"--metrics", &f.Metrics}, {"--http", &f.HTTP}} {
		if *at.value == "" {
			continue
		}
		if *at.value, err = address(*at.value); err != nil {
			return exit.Errorf(exit.Usage, "%s: %w", at.flag, err)
		}
	}
	switch {
	case f.HTTP == "" && f.HTTPToken != "":
		return exit.Errorf(exit.Usage, "--http-token is for the page of --http, which is not given")
	case f.HTTP == "" && f.Metrics == "" && len(f.HTTPName) > 0:
		return exit.Errorf(exit.Usage, "--http-name is for the page of --http or for --metrics: give one of them")
	case f.Metrics != "" && f.Metrics == f.HTTP:
		return exit.Errorf(exit.Usage, "--metrics and --http are both %s: the page of --http has /metrics, too",
			f.HTTP)
	}
	for _, name := range f.HTTPName {
		if name == "" || strings.ContainsAny(name, " /:@") {
			return exit.Errorf(exit.Usage, "--http-name is %q, want a name without port, such as robot.lan", name)
		}
	}
	if f.HTTPToken == tokenAuto && !log.Enabled(context.Background(), slog.LevelInfo) {
		return exit.Errorf(exit.Usage, "--http-token auto prints the token in the log, and --quiet leaves that out: "+
			"give a file instead, which is made when it is missing")
	}
	return nil
}

// Open serves a page as the flags select, and logs its address. It returns nil without --http.
func Open(f Flags, clock rt.Clock, log *slog.Logger) (p *Page, err error) {
	if f.HTTP == "" {
		return nil, nil
	}
	token, made := "", false
	if f.HTTPToken != "" {
		if token, made, err = loadToken(f.HTTPToken); err != nil {
			return nil, exit.Errorf(exit.Config, "--http-token: %w", err)
		}
	}
	p, err = listenAt(config{
		Address: f.HTTP,
		Names:   f.HTTPName,
		Token:   token,
		Clock:   clock,
		Log:     log,
	})
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	at := []any{"at", p.url()}
	switch {
	case made: // logged once, with the token after #, which a browser never sends to a server
		at = append(at, "to_operate", p.url()+"#token="+token)
	case token != "":
		at = append(at, "to_operate", "with the token in "+f.HTTPToken)
	}
	log.Info("page", at...)
	return p, nil
}

// OpenMetrics serves the metrics as the flags select. It returns nil without --metrics.
func OpenMetrics(f Flags, clock rt.Clock, log *slog.Logger) (*Page, error) {
	if f.Metrics == "" {
		return nil, nil
	}
	p, err := listenAt(config{
		Address:     f.Metrics,
		Names:       f.HTTPName,
		MetricsOnly: true,
		Clock:       clock,
		Log:         log,
	})
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	log.Info("metrics", "at", p.url()+"metrics")
	return p, nil
}

// config configures a Page.
type config struct {
	Address string   // HOST:PORT, as address returns it
	Names   []string // further host names of this machine
	Token   string   // token for operating the arm; empty: the page only shows
	Clock   rt.Clock
	Log     *slog.Logger

	MetricsOnly bool // no page: only /metrics and /healthz
}

// Run is the running edge that the page shows. Any goroutine may call its functions.
type Run struct {
	Status   func() any // content of /status.json
	Panel    *operator.Panel
	Timeline func(b []byte, since timeline.Since) []byte // appends the lines of /timeline.json; nil: no timeline
	Jog      *leader.Jog                                 // nil: the page jogs no joint
	Instance string                                      // id of the run; it changes at a restart
	Healthy  func() (ok bool, why string)                // whether ticks run, and the reason if not
	Ticks    func() uint64                               // number of ticks so far
	Previews []*capture.Preview                          // previews in the order of the command line
	Metrics  http.Handler                                // handler of /metrics
}

// Stats counts requests and their costs.
type Stats struct {
	Connections uint64 `json:"connections"` // connections to the page
	Requests    uint64 `json:"requests"`    // requests for a page, a picture or a status
	Pictures    uint64 `json:"pictures"`    // pictures shown
	// refused requests, such as with another machine's name or without a token
	Refused     uint64 `json:"refused"`
	Collections uint64 `json:"collections"`  // garbage collections that the page started
	Dropped     uint64 `json:"dropped"`      // connections closed because their address had too many
	Commands    uint64 `json:"commands"`     // commands with the right token of --http-token
	WrongTokens uint64 `json:"wrong_tokens"` // requests with a wrong token
}

// Page answers browsers. It listens before the arm is opened, since the port may be in use.
type Page struct {
	http     http.Server
	listener *limitedListener
	clock    rt.Clock
	log      *slog.Logger
	guard    *webpage.Guard
	gate     *gate // nil: no operation
	run      atomic.Pointer[Run]
	buffers  chan []byte // memory for the pictures in transmission; made by Watch
	done     chan struct{}
	threads  sync.WaitGroup

	pictures, collections, commands, wrongTokens atomic.Uint64
}

// address completes HOST:PORT, :PORT or PORT; the default host is loopback.
func address(text string) (string, error) {
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

// listenAt binds the address and answers requests. Until Watch it has no run to show.
func listenAt(cfg config) (*Page, error) {
	listener, err := listen.TCP(cfg.Address)
	if err != nil {
		return nil, listen.Explain(err, "choose another port")
	}
	host, _, _ := net.SplitHostPort(cfg.Address)
	p := &Page{
		clock:    cfg.Clock,
		log:      cfg.Log,
		buffers:  make(chan []byte, maxPictures),
		done:     make(chan struct{}),
		listener: limitListener(listener, cfg.Clock),
		guard: webpage.NewGuard(cfg.Clock, requestInterval, burst, cfg.Log,
			"the name given to --http or --http-name", append(cfg.Names, host)...),
	}
	if cfg.Token != "" {
		p.gate = newGate(cfg.Token, cfg.Clock)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", p.healthz)
	mux.HandleFunc("GET /metrics", p.running(metrics))
	if !cfg.MetricsOnly {
		mux.HandleFunc("GET /{$}", p.index)
		mux.HandleFunc("GET /status.json", p.running(p.status))
		mux.HandleFunc("GET /timeline.json", p.running(p.timeline))
		mux.HandleFunc("GET /buttons.json", p.buttons)
		mux.HandleFunc("GET /camera/{name...}", p.running(p.picture))
		mux.HandleFunc("PUT "+taskPath, p.running(p.setTask))
		mux.HandleFunc("POST "+commandPath, p.running(p.command))
		mux.HandleFunc("POST "+jogPath, p.running(p.jog))
	}
	p.http = http.Server{
		Handler:        p.guard.Check(mux, mayBring),
		MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout:    readTimeout,
		WriteTimeout:   writeTimeout,
		IdleTimeout:    idleTimeout,
		// net/http would answer "OPTIONS *" without the guard and its rate
		DisableGeneralOptionsHandler: true,
		// clients' errors are counted, not logged
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
	}
	p.threads.Go(func() { _ = p.http.Serve(p.listener) }) // Serve ends with Close
	p.threads.Go(p.collect)
	return p, nil
}

// Lines makes the record's thread keep the last minute of a run, and returns Run.Timeline. It returns nil if r is nil:
// then the arm has more joints than a record may have.
func Lines(r *record.Recorder, arm robot.Robot, period time.Duration, clock rt.Clock) func([]byte,
	timeline.Since) []byte {
	if r == nil {
		return nil
	}
	t := timeline.New(timeline.Config{
		Width:   timeline.LiveWidth,
		Columns: timeline.LiveColumns,
		Zero:    clock.Now(),
		Period:  period,
		Joints:  arm.ActionNames(),
		Units:   arm.Units(),
	})
	r.Visit(t.Visitor())
	return func(b []byte, since timeline.Since) []byte { return t.AppendJSON(b, since, clock.Now(), r.Wall()) }
}

// url returns the page's address.
func (p *Page) url() string { return "http://" + p.listener.Addr().String() + "/" }

// Watch makes the page show a run from now on, and allocates all memory for pictures. Call it once. If p is nil, it
// does nothing.
func (p *Page) Watch(run Run) {
	if p == nil {
		return
	}
	room := 0
	for _, v := range run.Previews {
		room = max(room, v.MaxBytes())
	}
	for range maxPictures {
		p.buffers <- make([]byte, room)
	}
	p.run.Store(&run)
}

// Stats returns the counters, nil without a page.
func (p *Page) Stats() *Stats {
	if p == nil {
		return nil
	}
	return &Stats{
		Connections: p.listener.accepted.Load(),
		Requests:    p.guard.Requests.Load(),
		Pictures:    p.pictures.Load(),
		Refused:     p.guard.Refused.Load(),
		Collections: p.collections.Load(),
		Dropped:     p.listener.dropped.Load(),
		Commands:    p.commands.Load(),
		WrongTokens: p.wrongTokens.Load(),
	}
}

// Close stops the page after a short time for the answers in transmission. It may be called twice.
func (p *Page) Close() {
	if p == nil {
		return
	}
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
	p.threads.Wait()
}

// mayBring returns the maximum length of a request's body, with a hint for errors: only a task, a command and a jog
// have a body.
func mayBring(r *http.Request) (limit int64, says string) {
	switch {
	case r.Method == http.MethodPut && r.URL.Path == taskPath:
		limit = maxTaskBytes
	case r.Method == http.MethodPost && (r.URL.Path == commandPath || r.URL.Path == jogPath):
		limit = maxCommandBytes
	}
	return limit, fmt.Sprintf("only a task and a command have one, of at most %d and %d", maxTaskBytes, maxCommandBytes)
}

// collect collects the garbage of requests until Close, since the collector is off.
func (p *Page) collect() {
	Collect(p.done, func() (uint64, bool) {
		if run := p.run.Load(); run != nil {
			return run.Ticks(), true
		}
		return 0, false
	}, &p.collections)
}

// Collect collects garbage until the channel done is closed: whenever there is much garbage, just after a tick. It
// counts the collections. The function ticks returns the number of ticks, and false before the run: until then Go's own
// collector is on.
func Collect(done <-chan struct{}, ticks func() (n uint64, runs bool), collections *atomic.Uint64) {
	tick := time.NewTicker(collectInterval)
	defer tick.Stop()
	var last rt.HeapStat
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		heap := rt.ReadHeap()
		_, runs := ticks()
		switch {
		// Go's collector is not off yet, or another collection has run, such as a collection that the memory limit
		// forced
		case !runs || heap.Cycles != last.Cycles:
			last = heap
		case heap.Bytes-last.Bytes > collectBytes:
			afterTick(ticks)
			runtime.GC()
			collections.Add(1)
			last = rt.ReadHeap()
		}
	}
}

// afterTick waits for the end of a tick, when the time to the next tick is longest.
func afterTick(ticks func() (n uint64, runs bool)) {
	before, _ := ticks()
	for waited := time.Duration(0); waited < tickTimeout; waited += tickPoll {
		if now, _ := ticks(); now != before {
			return
		}
		time.Sleep(tickPoll)
	}
}
