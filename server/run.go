package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/systemd/notify"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// servingBuffers is the number of a serving model's buffers: one is filled while the other runs.
const servingBuffers = 2

const (
	// routerTimeout is how long a server that only dials waits for its router before it exits and
	// leaves further attempts to the supervisor, which makes them slowly.
	routerTimeout = 60 * time.Second
)

// ErrAbsent marks that no router answered in time.
var ErrAbsent = errors.New("server: no router answers")

// load opens ONNX Runtime and the manifest's bundle, and replays its golden sets; progress, if not
// nil, is called with each inference. The errors wrap policy's sentinels.
func load(cfg manifest.Config, progress func(policy.Test)) (*policy.Model, error) {
	bundle, err := policy.LoadBundle(cfg.Model.RepoOrPath)
	if err != nil {
		return nil, cfg.BundleError(err)
	}
	if err := policy.OpenRuntime(cfg.Runtime, cfg.Model.Device); err != nil {
		return nil, err
	}
	m := cfg.Model
	model, err := bundle.Open(policy.Options{
		MaxBatch:     cfg.MaxBatch,
		Buffers:      servingBuffers,
		IntraThreads: cfg.Threads,
		Device:       m.Device,
		FallbackCPU:  m.Fallback == "cpu",
		DType:        m.Dtype,
		CacheDir:     cacheDir(m.CacheDir),
		Progress:     progress,
	})
	if errors.Is(err, policy.ErrNoProvider) {
		return nil, cfg.Errorf("model.device", "%w", err)
	}
	return model, err
}

// cacheDir returns the folder for data that can be built again: the manifest's, else the service
// manager's, else the user's.
func cacheDir(named string) string {
	user, _ := os.UserCacheDir() // empty on an error: then the temporary folder
	if user != "" {
		user = filepath.Join(user, "lean-server")
	}
	return cmp.Or(named, os.Getenv("CACHE_DIRECTORY"), os.Getenv("STATE_DIRECTORY"), user, os.TempDir())
}

// logPlacement logs the device that the policy computes on, as a warning when it is not the one of
// the manifest.
func logPlacement(log *slog.Logger, cfg *manifest.Config, p policy.Placement) {
	if p.Instead == nil {
		log.Info("device", "device", p.Device, "asked", cfg.Model.Device)
		return
	}
	log.Warn("THE POLICY RUNS ON THE CPU, not on a GPU", "asked", cfg.Model.Device, "fallback", cfg.Model.Fallback,
		"why", p.Why())
}

// slowTest is the duration from which an inference of the self-test is worth a line.
const slowTest = time.Second

// slowTests returns a callback that reports the progress of a slow self-test.
func slowTests(show func(text string)) func(policy.Test) {
	n := 0
	return func(t policy.Test) {
		if n++; t.Took >= slowTest {
			show(fmt.Sprintf("inference %d took %.1f s (%d at once)", n, t.Took.Seconds(), t.Rows))
		}
	}
}

// loadUntil is load; nil without an error means that ctx ended first. ONNX Runtime cannot be
// interrupted, so its work then ends with the process.
func loadUntil(ctx context.Context, cfg manifest.Config, log *slog.Logger) (*policy.Model, error) {
	type result struct {
		model *policy.Model
		err   error
	}
	done := make(chan result, 1)
	go func() {
		model, err := load(cfg, slowTests(func(text string) { log.Info("self-test", "what", text) }))
		done <- result{model, err}
	}()
	select {
	case r := <-done:
		return r.model, r.err
	case <-ctx.Done():
		return nil, nil
	}
}

// Run serves the manifest until ctx is done: it loads, joins the network, serves and leaves. The
// summary's Service is empty when serving never began. The inference thread writes to log, too, so
// log must not block; missing counts the lines that log lost.
func Run(ctx context.Context, cfg manifest.Config, log *slog.Logger, missing LogMissing) (summary Summary, err error) {
	if err := errors.Join(cfg.Check(), cfg.CheckTransport()); err != nil {
		return summary, err
	}
	// each thread in ONNX Runtime and in JPEG holds one: the receiving goroutines must not queue
	// for them
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	manager, err := notify.Open()
	if err != nil {
		log.Warn("the server's state is not reported to the service manager", "why", err)
	}
	manager.Status("loading the policy")
	defer manager.Close()
	pages, err := openHealth(&cfg, log)
	if err != nil {
		return summary, err
	}
	if pages != nil {
		defer pages.Close()
	}
	if err := cfg.CheckListen(); err != nil {
		return summary, err
	}
	audit, err := audit.Open(&cfg, rt.KernelClock(), log)
	if err != nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, audit.Close()) }()
	model, err := loadUntil(ctx, cfg, log)
	if err != nil || model == nil {
		return summary, err
	}
	var inUse bool
	defer func() { err = errors.Join(err, closeModel(model, inUse)) }()
	bundle := model.Bundle()
	logModel(log, &cfg, model)
	id := modelID(&cfg, bundle)
	prefix, err := cfg.Prefix(id)
	if err != nil {
		return summary, err
	}
	access := &acl.Service{Prefix: prefix, Routers: cfg.Routers}
	links := new(Links)
	network, err := connect(ctx, cfg, access, links, log)
	if err != nil || network == nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	deps := depsOf(model)
	deps.Repo = id
	deps.Prefix = prefix
	deps.Network = network
	deps.Log = log
	deps.LogMissing = missing
	deps.Audit = audit
	deps.Access = access
	deps.Links = links
	server, err := New(cfg, deps)
	if err != nil {
		return summary, err
	}
	if pages != nil {
		pages.watch(server)
	}
	defer startNotifier(ctx, manager, server)()
	err = server.Serve(ctx)
	inUse = server.modelInUse
	return server.Summary(), err
}

// depsOf returns the part of Deps that a loaded policy has, and the kernel's clock.
func depsOf(model *policy.Model) Deps {
	bundle := model.Bundle()
	return Deps{
		Meta:      &bundle.Meta,
		SHA256:    bundle.SHA256,
		Model:     model,
		Tests:     model.Tests(),
		Text:      bundle.Text,
		Clock:     rt.KernelClock(),
		Placement: model.Placement(),
	}
}

// logModel logs the loaded policy, its placement and ONNX Runtime's version.
func logModel(log *slog.Logger, cfg *manifest.Config, model *policy.Model) {
	version, library := policy.RuntimeVersion()
	bundle := model.Bundle()
	logPlacement(log, cfg, model.Placement())
	log.Info("policy", "bundle", bundle.Dir, "type", bundle.PolicyType, "sha256", bundle.SHA256[:12],
		"onnxruntime", version, "library", library)
}

// openHealth opens the health pages; nil: the manifest has no port for them.
func openHealth(cfg *manifest.Config, log *slog.Logger) (*health, error) {
	address := cfg.HealthAddress()
	if address == "" {
		return nil, nil
	}
	pages, err := listenHealth(address, log, listenHosts(cfg)...)
	if err == nil {
		log.Info("health", "address", address)
	}
	return pages, err
}

// listenHosts returns the manifest's names of this machine: browsers may use them, too.
func listenHosts(cfg *manifest.Config) (names []string) {
	for _, e := range cfg.Listen() {
		_, address, _ := strings.Cut(e, "/")
		address, _, _ = strings.Cut(address, "#")
		if host, _, err := net.SplitHostPort(address); err == nil {
			names = append(names, host)
		}
	}
	return names
}

// closeModel closes a model unless an inference still uses it: closing would free the memory that
// ONNX Runtime works on, so such a model ends with the process.
func closeModel(model io.Closer, inUse bool) error {
	if inUse {
		return nil
	}
	return model.Close()
}

// connect joins the Zenoh network; nil without an error means that ctx ended first.
func connect(ctx context.Context, cfg manifest.Config, access *acl.Service, links *Links,
	log *slog.Logger) (wire.Session, error) {
	waiting, cancel := context.WithTimeout(ctx, routerTimeout)
	defer cancel()
	transport := cfg.Transport()
	transport.Rights = access.Rights
	// one message, so that lograte treats these lines as similar
	transport.Log = func(line string) { log.Info("link", "what", line) }
	transport.Links = func(e zenoh.LinkEvent) {
		if e.Up {
			links.Up.Add(1)
		} else {
			links.Down.Add(1)
		}
	}
	joined, err := network.Open(waiting, transport)
	switch {
	case err == nil:
		log.Info("network", "listen", cfg.Listen(), "connect", cfg.Zenoh.ConnectEndpoints)
		return joined, nil
	case ctx.Err() != nil:
		return nil, nil
	case waiting.Err() != nil:
		return nil, fmt.Errorf("%w: waited %v: %w", ErrAbsent, routerTimeout, err)
	}
	return nil, err
}

// modelID returns the name that a bundle is served under: the manifest's, else the bundle's source
// repository, else its policy type.
func modelID(cfg *manifest.Config, b *policy.Bundle) string {
	return cmp.Or(cfg.Model.ID, b.SourceRepo, b.PolicyType)
}
