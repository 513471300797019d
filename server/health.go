package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"edgert/policy"
)

const (
	healthReadTimeout = 5 * time.Second
	healthStopTimeout = 300 * time.Millisecond
)

// Health is the HTTP side: /healthz says whether to restart the process,
// /readyz whether to send robots, /metrics how it goes. It listens before the
// policy is loaded, so that whoever watches sees it start.
type Health struct {
	http   http.Server
	listen net.Addr
	done   chan struct{} // closed when the HTTP server has ended
	server atomic.Pointer[Server]
}

// ListenHealth binds address; an error says who probably has it.
func ListenHealth(address string) (*Health, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("health_port: %w (another lean-server? choose a free port, or 0 for none)", err)
	}
	h := &Health{listen: listener.Addr(), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.registry(), promhttp.HandlerOpts{}))
	h.http = http.Server{Handler: mux, ReadHeaderTimeout: healthReadTimeout}
	go func() {
		defer close(h.done)
		_ = h.http.Serve(listener) // ends with Close
	}()
	return h, nil
}

// Address is where it listens, with the real port.
func (h *Health) Address() string { return h.listen.String() }

// Watch shows s from now on.
func (h *Health) Watch(s *Server) { h.server.Store(s) }

// Close stops answering, letting requests in hand end for a moment.
func (h *Health) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthStopTimeout)
	defer cancel()
	err := h.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.http.Close()
	}
	<-h.done
	return err
}

func (h *Health) healthz(w http.ResponseWriter, _ *http.Request) {
	s := h.server.Load()
	if s == nil || !s.warmed.Load() {
		answer(w, true, "starting")
		return
	}
	ok, why := s.worker.healthy()
	answer(w, ok, why)
}

func (h *Health) readyz(w http.ResponseWriter, _ *http.Request) {
	s := h.server.Load()
	if s == nil {
		answer(w, false, "loading the policy")
		return
	}
	ok, why := s.Ready()
	answer(w, ok, why)
}

func answer(w http.ResponseWriter, ok bool, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else if why == "" {
		why = "ok"
	}
	fmt.Fprintln(w, why)
}

// registry reads the counters when it is scraped; nothing is counted twice.
func (h *Health) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	read := func(value func(*Server) float64) func() float64 {
		return func() float64 {
			if s := h.server.Load(); s != nil {
				return value(s)
			}
			return 0
		}
	}
	counter := func(name, help string, labels prometheus.Labels, value func(*stats) uint64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "lean_server_" + name, Help: help, ConstLabels: labels},
			read(func(s *Server) float64 { return float64(value(s.stats)) })))
	}
	gauge := func(name, help string, value func(*Server) float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lean_server_" + name, Help: help}, read(value)))
	}
	counter("requests_total", "Observations answered with a chunk.", nil, func(s *stats) uint64 { return s.requests.Load() })
	for reason, value := range map[string]func(*stats) uint64{
		"bad_observation": func(s *stats) uint64 { return s.bad.Load() },
		"inference":       func(s *stats) uint64 { return s.failed.Load() },
		"not_finite":      func(s *stats) uint64 { return s.notFinite.Load() },
		"unsent":          func(s *stats) uint64 { return s.unsent.Load() },
	} {
		counter("errors_total", "Observations that had their turn and got no chunk.", prometheus.Labels{"reason": reason}, value)
	}
	for reason, value := range map[string]func(*stats) uint64{
		"superseded":      func(s *stats) uint64 { return s.superseded.Load() },
		"late":            func(s *stats) uint64 { return s.late.Load() },
		"unknown_session": func(s *stats) uint64 { return s.unknown.Load() },
		"malformed":       func(s *stats) uint64 { return s.malformed.Load() },
	} {
		counter("observations_dropped_total", "Observations that never had a turn.", prometheus.Labels{"reason": reason}, value)
	}
	for mode := policy.ModeFree; mode <= policy.ModeTrainedGuided; mode++ {
		counter("conditioning_total", "Chunks by what was done with the prefix.", prometheus.Labels{"mode": mode.String()},
			func(s *stats) uint64 { return s.modes[mode].Load() })
	}
	counter("sessions_opened_total", "Sessions opened.", nil, func(s *stats) uint64 { return s.opened.Load() })
	counter("sessions_closed_total", "Sessions closed.", nil, func(s *stats) uint64 { return s.closed.Load() })
	counter("sessions_refused_total", "Sessions refused.", nil, func(s *stats) uint64 { return s.refused.Load() })
	counter("events_silenced_total", "Events not sent because one was sent a moment ago.", nil, func(s *stats) uint64 { return s.silenced.Load() })
	counter("queries_lost_total", "Queries refused because too many were waiting.", nil, func(s *stats) uint64 { return s.lostQuery.Load() })
	gauge("active_sessions", "Sessions open now.", func(s *Server) float64 { return float64(len(s.sessions.all())) })
	gauge("max_sessions", "Sessions there is room for.", func(s *Server) float64 { return float64(s.limit) })
	gauge("draining", "1 while the server is leaving.", func(s *Server) float64 {
		if s.draining.Load() {
			return 1
		}
		return 0
	})
	return r
}
