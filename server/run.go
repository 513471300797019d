package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"edgert/internal/network"
	"edgert/internal/notify"
	"edgert/policy"
	"edgert/rt"
	"edgert/server/manifest"
	"edgert/wire"
)

const (
	// routerPatience is how long a server that only dials waits for its router
	// before it gives up and lets the supervisor try again slowly.
	routerPatience = 60 * time.Second

	checkInferences = 20
)

// ErrAbsent marks that no router answered in time.
var ErrAbsent = errors.New("server: no router answers")

// Loaded is a policy that is ready to be served.
type Loaded struct {
	Bundle *policy.Bundle
	Model  *policy.Model
}

// Load opens ONNX Runtime and the manifest's bundle, and replays its golden
// sets. The errors wrap policy's sentinels.
func Load(cfg manifest.Config) (*Loaded, error) {
	bundle, err := policy.LoadBundle(cfg.Model.RepoOrPath)
	if err != nil {
		return nil, cfg.Errorf("model.repo_or_path", "%w", err)
	}
	if err := policy.OpenRuntime(cfg.Runtime); err != nil {
		return nil, err
	}
	model, err := bundle.Open(policy.Options{MaxBatch: cfg.MaxBatch, IntraThreads: 1})
	if err != nil {
		return nil, err
	}
	return &Loaded{bundle, model}, nil
}

// Close frees the model.
func (l *Loaded) Close() error { return l.Model.Close() }

// loadUntil is Load; nil without an error means that ctx ended first. ONNX
// Runtime cannot be interrupted, so what it is doing then ends with the process.
func loadUntil(ctx context.Context, cfg manifest.Config) (*Loaded, error) {
	type result struct {
		loaded *Loaded
		err    error
	}
	done := make(chan result, 1)
	go func() {
		loaded, err := Load(cfg)
		done <- result{loaded, err}
	}()
	select {
	case r := <-done:
		return r.loaded, r.err
	case <-ctx.Done():
		return nil, nil
	}
}

// Run serves the manifest until ctx is done: load, join the network, serve,
// leave. The summary's Service is empty when it did not come to serving.
func Run(ctx context.Context, cfg manifest.Config, log *slog.Logger) (summary Summary, err error) {
	if err := errors.Join(cfg.Check(), cfg.CheckTransport()); err != nil {
		return summary, err
	}
	manager, err := notify.Open()
	if err != nil {
		log.Warn("the service manager is not told how the server is", "why", err)
	}
	manager.Status("loading the policy")
	defer manager.Close()
	var health *Health
	if address := cfg.HealthAddress(); address != "" {
		if health, err = ListenHealth(address); err != nil {
			return summary, err
		}
		defer health.Close()
		log.Info("health", "address", address)
	}
	if err := cfg.CheckListen(); err != nil {
		return summary, err
	}
	journal, err := openJournal(&cfg, rt.KernelClock(), log)
	if err != nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, journal.close()) }()
	loaded, err := loadUntil(ctx, cfg)
	if err != nil || loaded == nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, loaded.Close()) }()
	version, library := policy.RuntimeVersion()
	log.Info("policy", "bundle", loaded.Bundle.Dir, "type", loaded.Bundle.PolicyType,
		"sha256", loaded.Bundle.SHA256[:12], "onnxruntime", version, "library", library)
	network, err := enter(ctx, cfg, log)
	if err != nil || network == nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	server, err := New(cfg, Deps{
		Meta: &loaded.Bundle.Meta, SHA256: loaded.Bundle.SHA256, Repo: loaded.modelID(&cfg),
		Model: loaded.Model, Network: network, Clock: rt.KernelClock(), Log: log, journal: journal,
	})
	if err != nil {
		return summary, err
	}
	if health != nil {
		health.Watch(server)
	}
	defer startNotifier(ctx, manager, server)()
	err = server.Serve(ctx)
	return server.Summary(), err
}

// enter joins the Zenoh network; nil without an error means that ctx ended
// first.
func enter(ctx context.Context, cfg manifest.Config, log *slog.Logger) (wire.Session, error) {
	waiting, cancel := context.WithTimeout(ctx, routerPatience)
	defer cancel()
	transport := cfg.Transport()
	transport.Log = func(line string) { log.Info(line) }
	joined, err := network.Open(waiting, transport)
	switch {
	case err == nil:
		log.Info("network", "listen", cfg.Listen(), "connect", cfg.Zenoh.ConnectEndpoints)
		return joined, nil
	case ctx.Err() != nil:
		return nil, nil
	case waiting.Err() != nil:
		return nil, fmt.Errorf("%w: waited %v: %w", ErrAbsent, routerPatience, err)
	}
	return nil, err
}

// modelID is the name that a bundle is served under: the manifest's, else what
// the bundle says it was made from.
func (l *Loaded) modelID(cfg *manifest.Config) string {
	switch {
	case cfg.Model.ID != "":
		return cfg.Model.ID
	case l.Bundle.SourceRepo != "":
		return l.Bundle.SourceRepo
	}
	return l.Bundle.PolicyType
}

// Report is what a manifest would serve.
type Report struct {
	Prefix      string   `json:"prefix"`
	Model       string   `json:"model"`
	Revision    string   `json:"revision"`
	Bundle      string   `json:"bundle"`
	SHA256      string   `json:"sha256"`
	PolicyType  string   `json:"policy_type"`
	FPS         float64  `json:"fps"`
	ChunkSize   int      `json:"chunk_size"`
	ActionNames []string `json:"action_names"`
	StateNames  []string `json:"state_names"`
	Cameras     []string `json:"cameras"` // NAME HxW, and by how much JPEG may be larger
	RTC         string   `json:"rtc"`
	RTCMaxDelay int      `json:"rtc_max_delay"`
	PrefixEnd   int      `json:"prefix_end"`
	MaxSessions int      `json:"max_sessions"`
	Mode        string   `json:"serving_mode"`
	Listen      []string `json:"listen"`
	Connect     []string `json:"connect"`
	Health      string   `json:"health"`
	Runtime     string   `json:"onnxruntime"`
	Library     string   `json:"library"`
	InferenceMs float64  `json:"inference_ms"` // median of a few
}

// Examine loads everything that Run would, golden sets included, and reports
// it without joining the network.
func Examine(cfg manifest.Config) (report Report, err error) {
	if err := errors.Join(cfg.Check(), cfg.CheckTransport()); err != nil {
		return report, err
	}
	loaded, err := Load(cfg)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, loaded.Close()) }()
	prefix, err := cfg.Prefix(loaded.modelID(&cfg))
	if err != nil {
		return report, err
	}
	b := loaded.Bundle
	limit, mode := cfg.Sessions()
	report = Report{
		Prefix: prefix, Model: loaded.modelID(&cfg), Revision: cfg.Model.Revision, Bundle: b.Dir, SHA256: b.SHA256, PolicyType: b.PolicyType,
		FPS: b.FPS, ChunkSize: b.ChunkSize, ActionNames: b.ActionNames, StateNames: b.StateNames,
		RTC: b.RTC, RTCMaxDelay: b.RTCMaxDelay, PrefixEnd: b.PrefixEnd, MaxSessions: limit, Mode: mode,
		Listen: cfg.Listen(), Connect: cfg.Zenoh.ConnectEndpoints, Health: cfg.HealthAddress(),
	}
	for _, c := range b.Cameras {
		text := fmt.Sprintf("%s %dx%d", wireCamera(c.Name), c.H, c.W)
		if k := c.Scale(); k > 1 {
			text += fmt.Sprintf(" or JPEG up to %d times that", k)
		}
		report.Cameras = append(report.Cameras, text)
	}
	report.Runtime, report.Library = policy.RuntimeVersion()
	report.InferenceMs, err = loaded.median()
	return report, err
}

// median times a few inferences, in milliseconds.
func (l *Loaded) median() (float64, error) {
	clock, h := rt.KernelClock(), rt.NewHist()
	for range checkInferences {
		start := clock.Now()
		if err := l.Model.Run(1); err != nil {
			return 0, err
		}
		h.Record(clock.Now().Sub(start))
	}
	return ms(h.Quantile(0.5)), nil
}

// Print writes the report for a person.
func (r *Report) Print(w io.Writer) error {
	health := r.Health
	if health == "" {
		health = "off"
	}
	_, err := fmt.Fprintf(w, `ok: would serve %s
  model      %s @ %s, type %s, %g Hz, chunks of %d actions
  bundle     %s
             sha256 %s, golden sets reproduced
  actions    %s
  state      %s
  cameras    %s (height x width)
  prefix     rtc %s, trained up to %d steps, guided up to row %d
  sessions   %d, %s
  listen     %s
  connect    %s
  health     %s
  inference  %.2f ms (median of %d), ONNX Runtime %s
             %s
`, r.Prefix, r.Model, r.Revision, r.PolicyType, r.FPS, r.ChunkSize, r.Bundle, r.SHA256,
		strings.Join(r.ActionNames, ", "), strings.Join(r.StateNames, ", "), orNone(r.Cameras), r.RTC, r.RTCMaxDelay, r.PrefixEnd,
		r.MaxSessions, r.Mode, orNone(r.Listen), orNone(r.Connect), health, r.InferenceMs, checkInferences, r.Runtime, r.Library)
	return err
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
