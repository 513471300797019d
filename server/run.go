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
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/front"
	robotclient "github.com/edge-rt/edge-rt/server/front/lerobot"
	"github.com/edge-rt/edge-rt/server/front/openpi"
	"github.com/edge-rt/edge-rt/server/lerobot"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/server/remote/policyserver"
	"github.com/edge-rt/edge-rt/server/remote/upstream"
	"github.com/edge-rt/edge-rt/server/rollout"
	"github.com/edge-rt/edge-rt/systemd/notify"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// servingBuffers is the number of buffers of a model that serves. One buffer is filled while the other runs.
const servingBuffers = 2

const (
	// routerTimeout is how long a server that only dials waits for its router before it exits. The supervisor then
	// starts it again, so that later attempts are less frequent.
	routerTimeout = 60 * time.Second
)

// ErrAbsent marks that no router answered in time.
var ErrAbsent = errors.New("server: no router answers")

// loaded is a policy that is ready to serve, with those parts of Deps that depend on the policy.
type loaded struct {
	Deps
	id          string         // id of the model if the manifest has no id
	where       string         // folder of the bundle or the checkpoint, or address of the server
	library     string         // file or address of the program that computes
	bundle      *policy.Bundle // nil: another program computes the policy
	tensorBytes int64          // bytes of inputs and outputs
	close       func() error
}

// Close closes the policy. No inference may use it any more.
func (l *loaded) Close() error { return l.close() }

// MaxBatch returns the largest batch.
func (l *loaded) MaxBatch() int { return l.Model.MaxBatch() }

// Run computes one batch.
func (l *loaded) Run(batch int) error { return l.Model.RunBuffer(0, batch) }

// load opens the manifest's policy with its runtime. If loading takes long, it calls show (unless that is nil) with the
// progress. When another program computes the policy, messages about the program go to log. The errors wrap the
// sentinel errors of packages policy and manifest.
func load(ctx context.Context, cfg *manifest.Config, log *slog.Logger, show func(text string)) (*loaded, error) {
	if show == nil {
		show = func(string) {}
	}
	if !cfg.Model.Remote() {
		return loadBundle(cfg, slowTests(func(text string) { show("self-test: " + text) }))
	}
	opened, err := openRemote(ctx, cfg, log, show)
	if err != nil {
		return nil, err
	}
	return loadRemote(cfg, opened)
}

// loadRemote returns a policy that another program computes.
func loadRemote(cfg *manifest.Config, opened *remote.Policy) (*loaded, error) {
	model, err := opened.Serve(cfg.MaxBatch, servingBuffers)
	if err != nil {
		return nil, errors.Join(err, opened.Runtime.Close())
	}
	if err := cfg.Exclude(opened.Exclusive); err != nil {
		return nil, errors.Join(err, model.Close())
	}
	device, err := policy.ParseDevice(opened.Device)
	return &loaded{
		Deps: Deps{
			Meta:      &opened.Meta,
			SHA256:    opened.SHA256,
			Model:     model,
			Clock:     rt.KernelClock(),
			Placement: policy.Placement{Device: device},
			ReadsTask: opened.ReadsTask,
			Runtime:   opened.Version,
		},
		id:          cmp.Or(opened.SourceRepo, opened.PolicyType),
		where:       opened.Where,
		library:     opened.Program,
		tensorBytes: model.TensorBytes(),
		close:       model.Close,
	}, err
}

// openRemote opens a policy that another program computes.
func openRemote(ctx context.Context, cfg *manifest.Config, log *slog.Logger,
	show func(text string)) (*remote.Policy, error) {
	switch cfg.Model.Runtime {
	case manifest.RuntimeLeRobot:
		return lerobot.Open(ctx, cfg, log, show)
	case manifest.RuntimeOpenPI, manifest.RuntimeGR00T:
		c, err := upstream.FromManifest(cfg, log)
		if err != nil {
			return nil, err
		}
		show("connecting to " + c.Shown())
		opened, err := upstream.Open(ctx, c)
		if errors.Is(err, upstream.ErrFit) {
			return nil, cfg.Errorf("model.inputs", "%s: %w", c.Shown(), err)
		}
		return opened, err
	case manifest.RuntimeLeRobotAsync:
		show("connecting to the policy_server at " + cfg.Model.URL.String())
		return policyserver.Open(ctx, cfg, log)
	default:
		return nil, cfg.Errorf("model.runtime", "model.runtime %s is not in this program", cfg.Model.Runtime)
	}
}

// loadBundle opens ONNX Runtime and the manifest's bundle, and replays its golden sets; it calls progress after each
// inference.
func loadBundle(cfg *manifest.Config, progress func(policy.Test)) (*loaded, error) {
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
	if err != nil {
		return nil, err
	}
	version, library := policy.RuntimeVersion()
	return &loaded{
		Deps: Deps{
			Meta:       &bundle.Meta,
			SHA256:     bundle.SHA256,
			Model:      model,
			Tests:      model.Tests(),
			Text:       bundle.Text,
			Statistics: bundle.Statistics,
			Clock:      rt.KernelClock(),
			Placement:  model.Placement(),
			Runtime:    version,
		},
		id:          cmp.Or(bundle.SourceRepo, bundle.PolicyType),
		where:       bundle.Dir,
		library:     library,
		bundle:      bundle,
		tensorBytes: model.TensorBytes(),
		close:       model.Close,
	}, nil
}

// cacheDir returns the folder for data that can be built again: the manifest's, else the service
// manager's, else the user's.
func cacheDir(named string) string {
	user, _ := os.UserCacheDir() // empty after an error; then the temporary folder is used
	if user != "" {
		user = filepath.Join(user, "lean-server")
	}
	return cmp.Or(named, os.Getenv("CACHE_DIRECTORY"), os.Getenv("STATE_DIRECTORY"), user, os.TempDir())
}

// logPlacement logs the device that computes the policy. It logs a warning when that is not the manifest's device.
func logPlacement(log *slog.Logger, cfg *manifest.Config, p policy.Placement) {
	if p.Instead == nil {
		log.Info("device", "device", p.Device, "asked", cfg.Model.Device)
		return
	}
	log.Warn("THE POLICY RUNS ON THE CPU, not on a GPU", "asked", cfg.Model.Device, "fallback", cfg.Model.Fallback,
		"why", p.Why())
}

// The progress of the self-test is reported only if an inference takes slowTest or longer.
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

// loadUntil does the work of load. It returns nil without an error when ctx ended first. ONNX
// Runtime cannot be interrupted, so in that case loading continues until the process ends.
func loadUntil(ctx context.Context, cfg *manifest.Config, log *slog.Logger, show func(text string)) (*loaded, error) {
	type result struct {
		model *loaded
		err   error
	}
	done := make(chan result, 1)
	go func() {
		model, err := load(ctx, cfg, log, show)
		done <- result{model, err}
	}()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			return nil, nil
		}
		return r.model, r.err
	case <-ctx.Done():
		return nil, nil
	}
}

// Run serves the manifest until ctx is done: it loads the policy, joins the network, serves robots,
// and shuts down. summary.Service is empty when serving never began. log must not block, because
// the inference thread writes to it, too. missing counts the lines that log lost.
func Run(ctx context.Context, cfg manifest.Config, log *slog.Logger, missing LogMissing) (summary Summary, err error) {
	if err := errors.Join(cfg.Check(), cfg.CheckTransport()); err != nil {
		return summary, err
	}
	// A thread in ONNX Runtime or in the JPEG decoder occupies one of Go's processors. With two
	// processors more than cores, the receiving goroutines need not wait for such a thread.
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
	fronts, err := bind(&cfg, log)
	if err != nil {
		return summary, err
	}
	defer closeAll(fronts)
	audit, err := audit.Open(&cfg, rt.KernelClock(), log)
	if err != nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, audit.Close()) }()
	model, err := loadUntil(ctx, &cfg, log, func(text string) { showLoading(text, log, manager, pages) })
	if err != nil || model == nil {
		return summary, err
	}
	var inUse bool
	defer func() { err = errors.Join(err, closeModel(model, inUse)) }()
	logModel(log, &cfg, model)
	id := cmp.Or(cfg.Model.ID, model.id)
	prefix, err := cfg.Prefix(id)
	if err != nil {
		return summary, err
	}
	access, links := &acl.Service{Prefix: prefix, Routers: cfg.Routers}, new(Links)
	network, err := connect(ctx, cfg, access, links, log)
	if err != nil || network == nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	deps := model.Deps
	deps.Repo = id
	deps.Prefix = prefix
	deps.Network = network
	deps.Log = log
	deps.LogMissing = missing
	deps.Audit = audit
	deps.Access = access
	deps.Links = links
	deps.Fronts = fronts
	server, err := newRolling(cfg, deps)
	if err != nil {
		return summary, err
	}
	if pages != nil {
		pages.watch(server)
	}
	defer startNotifier(ctx, manager, server)()
	err = server.Serve(ctx)
	inUse = server.modelInUse
	return server.summary(), err
}

// newRolling returns a server that carries out the roll-outs of its manifest.
func newRolling(cfg manifest.Config, d Deps) (*Server, error) {
	if cfg.File() == "" {
		return New(cfg, d)
	}
	next := &seconds{cfg: cfg, deps: d, load: func(ctx context.Context, cfg *manifest.Config) (*loaded, error) {
		return loadUntil(ctx, cfg, d.Log, func(text string) { d.Log.Info("roll-out: loading", "what", text) })
	}}
	d.Rollout = rollout.New(rollout.Config{
		Manifest: cfg,
		Open:     next.open,
		Clock:    d.Clock,
		Log:      d.Log,
	})
	first, err := New(cfg, d)
	next.first = first
	return first, err
}

// seconds opens, in the first server's process, a server for each roll-out's new model.
type seconds struct {
	// Constant once the first server serves.
	cfg   manifest.Config
	deps  Deps // parts of the first server
	first *Server
	// returns nil without an error when its context has ended
	load func(context.Context, *manifest.Config) (*loaded, error)
}

// second is the server of a new model, with the model.
type second struct {
	*Server
	model *loaded
	stop  context.CancelFunc
	done  chan struct{} // closed when the server has ended; then err is valid
	err   error
}

// SHA256 implements rollout.Second.
func (s *second) SHA256() string { return s.caps.ModelSHA256 }

// ServerID implements rollout.Second.
func (s *second) ServerID() string { return s.id }

// Robots implements rollout.Second.
func (s *second) Robots() int { return len(s.sessions.all()) }

// Done implements rollout.Second.
func (s *second) Done() <-chan struct{} { return s.done }

// Stop implements rollout.Second.
func (s *second) Stop() error {
	s.stop()
	<-s.done
	defer s.first.allowHeap(0)
	return errors.Join(s.err, closeModel(s.model, s.modelInUse))
}

// open loads a new model, checks it as at a start, and serves it if it has the same shapes as the first model.
func (f *seconds) open(ctx context.Context, read *manifest.Config) (rollout.Second, error) {
	cfg := f.cfg.NewModel(read)
	f.first.allowHeap(rt.Headroom)
	runtime.GOMAXPROCS(runtime.NumCPU() + 3) // see Run
	model, err := f.load(ctx, &cfg)
	if err == nil && model == nil {
		err = ctx.Err()
	}
	if err != nil {
		f.first.allowHeap(0)
		return nil, err
	}
	logPlacement(f.deps.Log, &cfg, model.Placement)
	s := &second{model: model, done: make(chan struct{})}
	if err = suits(&cfg, &f.deps, model); err == nil {
		deps := model.Deps
		deps.Repo, deps.Prefix = f.deps.Repo, f.deps.Prefix
		deps.Network, deps.Audit = f.deps.Network, f.deps.Audit
		deps.Log, deps.Rollout = f.deps.Log, f.first.rollout
		if s.Server, err = f.first.join(cfg, deps); err != nil {
			f.first.part()
		}
	}
	if err != nil {
		f.first.allowHeap(0)
		return nil, errors.Join(err, model.Close())
	}
	serving, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.done)
		s.err = s.Serve(serving)
	}()
	for !s.phase.serving.Load() {
		select {
		case <-s.done:
		case <-ctx.Done():
		case <-time.After(servingPoll):
			continue
		}
		return nil, errors.Join(ctx.Err(), s.Stop())
	}
	return s, nil
}

// servingPoll is the interval at which open checks whether a new model's server serves.
const servingPoll = 50 * time.Millisecond

// suits refuses a new model that the robots of the first model could not use, and a model whose digest is not the
// digest that the manifest demands.
func suits(cfg *manifest.Config, first *Deps, model *loaded) error {
	refuse := func(format string, args ...any) error { return cfg.Errorf("rollout.model", format, args...) }
	switch want := cfg.Rollout.Model.SHA256; {
	case !strings.HasPrefix(model.SHA256, want):
		return refuse("%s has sha256 %s, want one that begins with %s (rollout.model.sha256): it is another bundle, "+
			"or another export", model.where, model.SHA256, want)
	case model.SHA256 == first.SHA256:
		return refuse("%s has sha256 %.12s, as the model that is served: name another bundle", model.where,
			model.SHA256)
	case model.Meta.SimulationOnly && !first.Meta.SimulationOnly:
		return refuse("%s is simulation_only and the served model is not: the run of each robot with a real arm would "+
			"end when the robot gets it", model.where)
	}
	old, is := first.Meta, model.Meta
	for _, c := range []struct {
		of      string
		old, is any
	}{
		{"actions", old.ActionNames, is.ActionNames}, {"units of the actions", old.ActionUnits, is.ActionUnits},
		{"joints of the state", old.StateNames, is.StateNames}, {"units of the state", old.StateUnits, is.StateUnits},
		{"cameras", old.Cameras, is.Cameras}, {"rate", old.FPS, is.FPS},
		{"actions in a chunk", old.ChunkSize, is.ChunkSize}, {"prefix_end", old.PrefixEnd, is.PrefixEnd},
		{"observations", old.Steps(), is.Steps()},
	} {
		if !reflect.DeepEqual(c.old, c.is) {
			return refuse("%s: its %s are %v, want those of the served model, %v: robots cannot change to it within a "+
				"run, so serve it as another service", model.where, c.of, c.is, c.old)
		}
	}
	return nil
}

// showLoading reports the progress of loading the policy, which may take minutes.
func showLoading(text string, log *slog.Logger, manager *notify.Notifier, pages *health) {
	log.Info("loading", "what", text)
	manager.Status("loading the policy: " + text)
	manager.Extend(warmUpMargin)
	pages.loads(text)
}

// frontsOf returns the protocols of foreign clients.
func frontsOf(cfg *manifest.Config) []frontOf {
	return []frontOf{
		{front.LeRobot, cfg.Fronts.LeRobot.Listen, robotclient.Listen},
		{front.OpenPI, cfg.Fronts.OpenPI.Listen, func(address string, _ *slog.Logger) (front.Front, error) {
			return openpi.Open(address, &cfg.Fronts.OpenPI)
		}},
	}
}

// frontOf opens a front at its address in the manifest. An empty address means that the front is
// off.
type frontOf struct {
	kind    front.Kind
	address string
	open    func(address string, log *slog.Logger) (front.Front, error)
}

// bind binds the addresses of the fronts and checks the endpoints. Run calls it before it loads the policy, which takes
// seconds.
func bind(cfg *manifest.Config, log *slog.Logger) (fronts []front.Front, err error) {
	if err := cfg.CheckListen(); err != nil {
		return nil, err
	}
	for _, f := range frontsOf(cfg) {
		if f.address == "" {
			continue
		}
		opened, err := f.open(f.address, log)
		if err != nil {
			closeAll(fronts)
			return nil, fmt.Errorf("fronts.%v.listen: %w", f.kind, listen.Explain(err, "choose another address"))
		}
		log.Info("front", "protocol", f.kind.String(), "listen", f.address)
		fronts = append(fronts, opened)
	}
	return fronts, nil
}

// closeAll closes fronts. For fronts that have served, this has no effect, because they are closed already.
func closeAll(fronts []front.Front) {
	for _, f := range fronts {
		_ = f.Close() // the process goes on without this front, or ends
	}
}

// logModel logs the loaded policy, its placement and the program that computes it.
func logModel(log *slog.Logger, cfg *manifest.Config, model *loaded) {
	logPlacement(log, cfg, model.Placement)
	program := cmp.Or(cfg.Model.Runtime, manifest.RuntimeONNX)
	if !cfg.Model.Remote() {
		program = "onnxruntime"
	}
	log.Info("policy", "bundle", model.where, "type", model.Meta.PolicyType, "sha256", model.SHA256[:12],
		program, model.Runtime, "library", model.library)
}

// openHealth opens the health pages, and returns nil when the manifest has no port for them.
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

// listenHosts returns those names of this machine that are in the manifest's endpoints. Browsers may use them, too.
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

// closeModel closes a model unless an inference still uses it. In that case closing would free memory that ONNX Runtime
// uses, so the model stays open until the process ends.
func closeModel(model io.Closer, inUse bool) error {
	if inUse {
		return nil
	}
	return model.Close()
}

// connect joins the Zenoh network. It returns a nil session and no error when ctx ended first.
func connect(ctx context.Context, cfg manifest.Config, access *acl.Service, links *Links,
	log *slog.Logger) (wire.Session, error) {
	waiting, cancel := context.WithTimeout(ctx, routerTimeout)
	defer cancel()
	transport := cfg.Transport()
	transport.Rights = access.Rights
	// All these lines have the same message, so that terminal.Limiter counts them as similar.
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
