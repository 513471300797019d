package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/wire/zenoh"
)

// routerPatience is how long a server that only dials waits for its router
// before it gives up and lets the supervisor try again slowly.
const routerPatience = 60 * time.Second

// ErrAbsent marks that no router answered in time.
var ErrAbsent = errors.New("server: no router answers")

// Loaded is a policy that is ready to be served.
type Loaded struct {
	Bundle *policy.Bundle
	Model  *policy.Model
}

// Load opens ONNX Runtime and the manifest's bundle, and replays its golden
// sets. The errors wrap policy's sentinels.
func Load(cfg Config) (*Loaded, error) {
	bundle, err := policy.LoadBundle(cfg.Model.RepoOrPath)
	if err != nil {
		return nil, cfg.wrong("model.repo_or_path", "%w", err)
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

// Run serves the manifest until ctx is done: load, join the network, serve,
// leave. The summary is valid also beside an error.
func Run(ctx context.Context, cfg Config, log *slog.Logger) (summary Summary, err error) {
	if err := cfg.Check(); err != nil {
		return summary, err
	}
	var health *Health
	if address := cfg.HealthAddress(); address != "" {
		if health, err = ListenHealth(address); err != nil {
			return summary, err
		}
		defer health.Close()
		log.Info("health", "address", address)
	}
	loaded, err := Load(cfg)
	if err != nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, loaded.Close()) }()
	version, library := policy.RuntimeVersion()
	log.Info("policy", "bundle", loaded.Bundle.Dir, "type", loaded.Bundle.PolicyType, "sha256", loaded.Bundle.SHA256[:12], "onnxruntime", version, "library", library)

	waiting, cancel := context.WithTimeout(ctx, routerPatience)
	defer cancel()
	network, err := zenoh.Open(waiting, zenoh.Config{
		Connect: cfg.Zenoh.ConnectEndpoints, Listen: cfg.Listen(),
		Log: func(line string) { log.Info(line) },
	})
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return summary, nil // told to stop while waiting
		case waiting.Err() != nil:
			return summary, fmt.Errorf("%w: waited %v: %w", ErrAbsent, routerPatience, err)
		}
		return summary, err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	server, err := New(cfg, Deps{
		Meta: &loaded.Bundle.Meta, SHA256: loaded.Bundle.SHA256, Repo: modelID(loaded.Bundle),
		Model: loaded.Model, Network: network, Clock: rt.KernelClock(), Log: log,
	})
	if err != nil {
		return summary, err
	}
	if health != nil {
		health.Watch(server)
	}
	err = server.Serve(ctx)
	return server.Summary(), err
}
