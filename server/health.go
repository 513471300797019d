package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	healthReadTimeout = 5 * time.Second
	healthStopTimeout = 300 * time.Millisecond
)

// health is the HTTP side: /healthz says whether to restart the process,
// /readyz whether to send robots, /metrics how it goes. It listens before the
// policy is loaded, so that a supervisor sees it start.
type health struct {
	http   http.Server
	listen net.Addr
	done   chan struct{} // closed when the HTTP server has ended
	server atomic.Pointer[Server]
}

// listenHealth binds address; an error says who probably has it.
func listenHealth(address string) (*health, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("health_port: %w (another lean-server? choose a free port, or 0 for none)", err)
	}
	h := &health{listen: listener.Addr(), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metricsOf(h.server.Load), promhttp.HandlerOpts{}))
	h.http = http.Server{Handler: mux, ReadHeaderTimeout: healthReadTimeout}
	go func() {
		defer close(h.done)
		_ = h.http.Serve(listener) // ends with Close
	}()
	return h, nil
}

func (h *health) watch(s *Server) { h.server.Store(s) }

func (h *health) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthStopTimeout)
	defer cancel()
	err := h.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.http.Close()
	}
	<-h.done
	return err
}

func (h *health) healthz(w http.ResponseWriter, _ *http.Request) {
	s := h.server.Load()
	if s == nil || !s.warmed.Load() {
		respond(w, true, "starting")
		return
	}
	ok, why := s.worker.healthy()
	respond(w, ok, why)
}

func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	s := h.server.Load()
	if s == nil {
		respond(w, false, "loading the policy")
		return
	}
	ok, why := s.Ready()
	respond(w, ok, why)
}

func respond(w http.ResponseWriter, ok bool, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else if why == "" {
		why = "ok"
	}
	fmt.Fprintln(w, why)
}
