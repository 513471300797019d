package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/capacity"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// Examine times checkInferences inferences. For a slow policy it times only as many as end within checkLimit, but at
// least checkLeast.
const (
	checkInferences = 20
	checkLeast      = 3
	checkLimit      = 5 * time.Second
)

// progressEvery is the longest time for which a check prints nothing. After it, the check prints a line that the work
// continues.
const progressEvery = 5 * time.Second

// Report describes the service of a manifest.
type Report struct {
	Prefix      string   `json:"prefix"`       // beginning of the server's keys
	Model       string   `json:"model"`        // id of the model
	Revision    string   `json:"revision"`     // revision of the model
	Bundle      string   `json:"bundle"`       // folder of the bundle
	SHA256      string   `json:"sha256"`       // digest of the bundle
	PolicyType  string   `json:"policy_type"`  // type of the policy
	FPS         float64  `json:"fps"`          // Hz, rate that the policy was trained at
	ChunkSize   int      `json:"chunk_size"`   // actions in a chunk
	ActionNames []string `json:"action_names"` // names of the actions
	StateNames  []string `json:"state_names"`  // names of the states
	Cameras     []string `json:"cameras"`      // NAME HxW, and the factor by which a JPEG may be larger
	RTC         string   `json:"rtc"`          // conditioning of chunks in the graph
	// largest delay, in steps, with which the trained prefix is used
	RTCMaxDelay int    `json:"rtc_max_delay"`
	PrefixEnd   int    `json:"prefix_end"`                // steps that can be conditioned
	Simulation  bool   `json:"simulation_only,omitempty"` // robots with a real arm refuse the bundle
	Tokenizer   string `json:"tokenizer,omitempty"`       // kind and longest task of a policy that reads its task
	MaxSessions int    `json:"max_sessions"`              // largest number of sessions at a time
	auto        bool
	// files of the bundle's folder that bundle.json does not list, the first ten; a folder ends
	// with a slash
	Unlisted    []string `json:"unlisted,omitempty"`
	UnlistedAll int      `json:"unlisted_count,omitempty"` // number of all unlisted files
	Warnings    []string `json:"warnings,omitempty"`       // certificates that end soon or have no name
	Mode        string   `json:"serving_mode"`             // serving_mode of the manifest
	Listen      []string `json:"listen"`                   // endpoints
	Connect     []string `json:"connect"`                  // endpoints
	// [protocol] address for its clients
	Fronts      map[string]string `json:"fronts,omitempty"`
	Health      string            `json:"health"`            // address of the health page
	Program     string            `json:"runtime"`           // model.runtime of the manifest
	Runtime     string            `json:"onnxruntime"`       // version of ONNX Runtime, or of another program
	Library     string            `json:"library"`           // file of the library
	Device      string            `json:"device"`            // device of the policy
	Instead     string            `json:"device_instead_of"` // why device is the CPU in place of another; else empty
	InferenceMs float64           `json:"inference_ms"`      // ms, median inference
	// timed inferences: 20; for a slow policy those that end within 5 s, at least 3
	Inferences int `json:"inferences"`
	// two answers to one observation are equal to the byte; absent: a bundle, whose golden sets were reproduced
	Deterministic *bool `json:"deterministic,omitempty"`
	// bytes, of all inputs, outputs and tensors between two graphs, in the host's memory
	TensorBytes int64 `json:"tensor_bytes"`

	Rollout  *RolloutCheck      `json:"rollout,omitempty"` // result for the block rollout
	Manifest []manifest.Setting `json:"manifest"`          // every key in effect
}

// RolloutCheck describes the new model of a roll-out, which is loaded in addition to the first model.
type RolloutCheck struct {
	Bundle      string  `json:"bundle"`       // folder of the bundle
	SHA256      string  `json:"sha256"`       // digest of the bundle
	Share       float64 `json:"share"`        // share, part of the robots that gets the new model
	InferenceMs float64 `json:"inference_ms"` // ms, median inference
	TensorBytes int64   `json:"tensor_bytes"` // bytes, like those of the first model
	ResidentMB  float64 `json:"resident_mb"`  // MiB, resident memory of the process with both models
}

// Examine loads all parts that Run would load, golden sets included, and reports on them without joining the network.
// It calls show with a line about its progress where the work takes long.
func Examine(cfg manifest.Config, show func(text string)) (report Report, err error) {
	if err := errors.Join(cfg.Check(), cfg.CheckTransport()); err != nil {
		return report, err
	}
	warnings, err := checkCertificates(&cfg)
	if err != nil {
		return report, err
	}
	going := newProgress(show)
	defer going.end()
	model, err := load(context.Background(), &cfg, slog.New(slog.DiscardHandler), going.report)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	b, id := model.Meta, cmp.Or(cfg.Model.ID, model.id)
	prefix, err := cfg.Prefix(id)
	_, refused := model.accepts(&cfg)
	if err = cmp.Or(refused, err); err != nil {
		return report, err
	}
	limit, mode := cfg.Sessions()
	report = Report{
		Prefix:      prefix,
		Model:       id,
		Revision:    cfg.Model.Revision,
		Bundle:      model.where,
		SHA256:      model.SHA256,
		PolicyType:  b.PolicyType,
		FPS:         b.FPS,
		ChunkSize:   b.ChunkSize,
		ActionNames: b.ActionNames,
		StateNames:  b.StateNames,
		Simulation:  b.SimulationOnly,
		RTC:         b.RTC,
		RTCMaxDelay: b.RTCMaxDelay,
		PrefixEnd:   b.PrefixEnd,
		MaxSessions: limit,
		auto:        cfg.Auto(),
		Mode:        mode,
		Listen:      cfg.Listen(),
		Connect:     cfg.Zenoh.ConnectEndpoints,
		Fronts:      frontAddresses(&cfg),
		Health:      cfg.HealthAddress(),
	}
	for _, c := range b.Cameras {
		text := fmt.Sprintf("%s %dx%d", front.ImageName(c.Name), c.H, c.W)
		if k := c.Scale(); k > 1 {
			text += fmt.Sprintf(" or JPEG up to %d times that", k)
		}
		report.Cameras = append(report.Cameras, text)
	}
	if t := b.Tokenizer; t != nil {
		report.Tokenizer = fmt.Sprintf("%s, %d tokens", t.Kind, t.MaxLen)
	} else if model.ReadsTask {
		report.Tokenizer = "read by " + model.Runtime
	}
	report.Program = cmp.Or(cfg.Model.Runtime, manifest.RuntimeONNX)
	report.Runtime, report.Library = model.Runtime, model.library
	placement := model.Placement
	report.Device, report.Instead = placement.Device.String(), placement.Why()
	report.TensorBytes = model.tensorBytes
	if model.bundle != nil {
		report.Unlisted, report.UnlistedAll = model.bundle.Unlisted()
	}
	report.Warnings, report.Manifest = warnings, cfg.Settings()
	err = report.measure(&cfg, model, going.report)
	return report, err
}

// frontAddresses returns the addresses of the fronts that are on, by protocol.
func frontAddresses(cfg *manifest.Config) map[string]string {
	addresses := map[string]string{}
	for _, f := range frontsOf(cfg) {
		if f.address != "" {
			addresses[f.kind.String()] = f.address
		}
	}
	return addresses
}

// measure sets the inference times, and examines the new model of the block rollout, if there is one.
func (r *Report) measure(cfg *manifest.Config, model *loaded, show func(text string)) (err error) {
	if r.Deterministic, err = answersTwice(model, cfg.DefaultTask); err != nil {
		return err
	}
	r.InferenceMs, r.Inferences, err = medianMs(model.Model, rt.KernelClock(), show)
	if err == nil && cfg.Rollout.Model.RepoOrPath != "" {
		r.Rollout, err = examineNew(cfg, model, show)
	}
	return err
}

// loadNew loads the new model of the block rollout while the first model stays loaded, as a server does.
func loadNew(cfg *manifest.Config, first *loaded, show func(text string)) (model *loaded, err error) {
	with := cfg.NewModel(cfg)
	if model, err = load(context.Background(), &with, slog.New(slog.DiscardHandler), show); err != nil {
		return nil, err
	}
	if err = suits(&with, &first.Deps, model); err != nil {
		return nil, errors.Join(err, model.Close())
	}
	return model, nil
}

// examineNew reports on the new model of the block rollout.
func examineNew(cfg *manifest.Config, first *loaded, show func(text string)) (found *RolloutCheck, err error) {
	model, err := loadNew(cfg, first, show)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	found = &RolloutCheck{
		Bundle:      model.where,
		SHA256:      model.SHA256,
		Share:       cfg.Rollout.Share,
		TensorBytes: model.tensorBytes,
	}
	found.InferenceMs, _, err = medianMs(model.Model, rt.KernelClock(), show)
	found.ResidentMB = mib(rt.ResidentSize())
	return found, err
}

// planBatch is the largest batch that Plan tries where the manifest sets no limit.
const planBatch = 8

// Plan measures the inference times on this machine, and returns how many robots of a fleet a
// server of this manifest feeds.
func Plan(cfg manifest.Config, fleet capacity.Fleet) (report *capacity.Report, err error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if !cfg.Model.Remote() { // another program has a limit of its own
		cfg.MaxBatch = cmp.Or(cfg.MaxBatch, planBatch)
	}
	model, err := load(context.Background(), &cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	if err := fleet.Check(model.Meta); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	took, err := capacity.Measure(model)
	if err == nil && cfg.Rollout.Model.RepoOrPath != "" {
		err = slowerOf(&cfg, model, took)
	}
	if err != nil {
		return nil, err
	}
	if report, err = capacity.New(capacity.Options{
		Fleet:     fleet,
		Meta:      model.Meta,
		Took:      took,
		Scheduler: cfg.Scheduler,
		Threads:   cfg.Threads,
	}); err != nil {
		return nil, err
	}
	report.Bundle, report.Device = model.where, model.Placement.Device.String()
	report.Runtime, report.Rollout = model.Runtime, cfg.Rollout.Model.RepoOrPath
	return report, nil
}

// slowerOf raises the durations in took, which are the first model's, to those of a roll-out's new model where these
// are longer.
func slowerOf(cfg *manifest.Config, first *loaded, took []capacity.Size) (err error) {
	model, err := loadNew(cfg, first, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	other, err := capacity.Measure(model)
	for i := range other {
		if other[i].Ms > took[i].Ms {
			took[i] = other[i]
		}
	}
	return err
}

func medianMs(m Model, clock rt.Clock, show func(text string)) (median float64, n int, err error) {
	h, begun := rt.NewHist(), clock.Now()
	for n < checkInferences && (n < checkLeast || clock.Now().Sub(begun) < checkLimit) {
		start := clock.Now()
		if err := m.RunBuffer(0, 1); err != nil {
			return 0, n, err
		}
		took := clock.Now().Sub(start)
		h.Record(took)
		if n++; took >= slowTest {
			show(fmt.Sprintf("measuring: inference %d took %.1f s", n, took.Seconds()))
		}
	}
	return ms(h.Quantile(0.5)), n, nil
}

// answersTwice gives one observation to the policy twice, each time as the first of a session, and reports whether the
// bytes of both answers are equal. It returns nil for a bundle, which has golden sets instead.
func answersTwice(p *loaded, task string) (same *bool, err error) {
	if p.bundle != nil {
		return nil, nil
	}
	var chunks [2][]float32
	for i := range chunks {
		noise := rand.New(rand.NewPCG(1, 2)) // the same noise for both answers
		for cam := range p.Meta.Cameras {
			image := p.Model.Image(0, cam)
			for k := range image {
				image[k] = byte(noise.Uint32())
			}
		}
		for k := range p.Model.State(0) {
			p.Model.State(0)[k] = noise.Float32()
		}
		p.Model.SetControls(0, policy.Controls{})
		if r, ok := p.Model.(requester); ok {
			r.SetRequest(0, policy.Request{Session: fmt.Sprintf("check-%d", i), Task: task, Seed: 1})
		}
		if err := p.Model.RunBuffer(0, 1); err != nil {
			return nil, err
		}
		chunks[i] = slices.Clone(p.Model.ChunkRobot(0))
		if !p.Model.Finite(0) {
			return nil, errDiverged
		}
	}
	equal := slices.Equal(chunks[0], chunks[1])
	return &equal, nil
}

// slowText returns a warning when computing a chunk takes longer than executing it, else "".
func (r *Report) slowText() string {
	lasts := float64(r.ChunkSize) / r.FPS * 1e3
	if r.InferenceMs < lasts {
		return ""
	}
	return fmt.Sprintf("\n             SLOW: the %d actions of a chunk last %.0f ms, so an arm moves in steps",
		r.ChunkSize, lasts)
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, `ok: would serve %s
  model      %s @ %s, type %s, %g Hz, chunks of %d actions
  %s %s
             sha256 %s%s%s%s
  actions    %s
  state      %s
  cameras    %s (height x width)
  prefix     rtc %s, trained up to %d steps, guided up to row %d
  task       %s
  sessions   %s, %s
  listen     %s
  connect    %s
%s  health     %s
  inference  %.2f ms (median of %d) on %s, %s%s
             %s
  tensors    %.1f MiB of inputs and outputs
%s%s%s`, r.Prefix, r.Model, r.Revision, r.PolicyType, r.FPS, r.ChunkSize, r.kind(), r.Bundle, r.SHA256,
		r.tested(), r.simulationText(),
		r.unlistedText(),
		strings.Join(r.ActionNames, ", "), strings.Join(r.StateNames, ", "), listText(r.Cameras), r.RTC, r.RTCMaxDelay,
		r.PrefixEnd, cmp.Or(r.Tokenizer, "not read"),
		r.sessionsText(), r.Mode, listText(r.Listen), listText(r.Connect), r.frontText(), cmp.Or(r.Health, "off"),
		r.InferenceMs,
		r.Inferences, r.deviceText(), r.runtimeText(), r.slowText(), r.Library, mib(r.TensorBytes), r.rolloutText(),
		r.warningText(),
		r.manifestText())
	return err
}

// runtimeText returns the name and version of the program that computes the policy.
func (r *Report) runtimeText() string {
	if r.Program == manifest.RuntimeONNX {
		return "ONNX Runtime " + r.Runtime
	}
	return r.Runtime
}

// kind returns the name of the policy's form, padded to the width of the report's first column.
func (r *Report) kind() string {
	if r.Program == manifest.RuntimeONNX {
		return "bundle    "
	}
	return "of        "
}

// tested returns the result of the policy's test: a bundle reproduced its golden sets, or another program's policy is
// or is not deterministic.
func (r *Report) tested() string {
	switch {
	case r.Deterministic == nil:
		return ", golden sets reproduced"
	case *r.Deterministic:
		return "\n             deterministic: one observation, given twice, gives the same bytes"
	}
	return "\n             NOT DETERMINISTIC: one observation, given twice, gives two chunks, so lean-server replay " +
		"needs a tolerance"
}

// manifestText lists the settings in effect with their origins.
func (r *Report) manifestText() string {
	var text strings.Builder
	text.WriteString("manifest in effect:\n")
	for _, s := range r.Manifest {
		fmt.Fprintf(&text, "  %-34s %-24s %s\n", s.Key, plain.Text(fmt.Sprint(s.Value)), s.From)
	}
	return text.String()
}

// simulationText returns a note that robots with a real arm refuse the bundle; "" if they accept it.
func (r *Report) simulationText() string {
	if !r.Simulation {
		return ""
	}
	return "\n             simulation_only: robots with a real arm refuse it"
}

// unlistedText names the files that are not part of the bundle; empty without such files.
func (r *Report) unlistedText() string {
	if r.UnlistedAll == 0 {
		return ""
	}
	more := ""
	if n := r.UnlistedAll - len(r.Unlisted); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("\n  beside it  %s%s: not listed in bundle.json, so not read and not in the digest",
		quotedNames(r.Unlisted), more)
}

// frontText lists the addresses for clients of foreign protocols; empty when no front is on.
func (r *Report) frontText() string {
	var text strings.Builder
	for _, protocol := range slices.Sorted(maps.Keys(r.Fronts)) {
		fmt.Fprintf(&text, "  %-10s %s\n", protocol, r.Fronts[protocol])
	}
	return text.String()
}

// rolloutText returns a text with the new model's folder, share, digest and times; "" without a roll-out.
func (r *Report) rolloutText() string {
	n := r.Rollout
	if n == nil {
		return ""
	}
	return fmt.Sprintf("  roll-out   %s for %g of the robots\n             sha256 %s, golden sets reproduced\n"+
		"             inference %.2f ms; %.0f MiB resident with both models\n", n.Bundle, n.Share, n.SHA256,
		n.InferenceMs, n.ResidentMB)
}

func (r *Report) warningText() string {
	var text strings.Builder
	for _, warning := range r.Warnings {
		fmt.Fprintf(&text, "  warning    %s\n", warning)
	}
	return text.String()
}

// checkCertificates returns warnings of certificates that will soon be invalid, and an error if no robot could connect.
func checkCertificates(cfg *manifest.Config) (warnings []string, err error) {
	transport := cfg.Transport()
	for _, f := range transport.Certificates(time.Now()) {
		if f.Refused {
			return nil, cfg.Errorf("zenoh.tls", "zenoh.tls: %s", f.Text)
		}
		warnings = append(warnings, f.Text)
	}
	return warnings, nil
}

// quotedNames lists file names; names with control characters for a terminal are quoted.
func quotedNames(names []string) string {
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = name
		if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
			shown[i] = quoted
		}
	}
	return strings.Join(shown, ", ")
}

func (r *Report) sessionsText() string {
	if r.auto {
		return fmt.Sprintf("auto (as many as the server can feed, at most %d; lean-server plan computes the number)",
			r.MaxSessions)
	}
	return strconv.Itoa(r.MaxSessions)
}

func (r *Report) deviceText() string {
	if r.Instead == "" {
		return r.Device
	}
	return fmt.Sprintf("%s (INSTEAD of a GPU: %s)", r.Device, r.Instead)
}

func listText(list []string) string { return cmp.Or(strings.Join(list, ", "), "none") }

// progress prints the lines of a long piece of work. After progressEvery without a line it prints that the work
// continues, because one inference may take a minute.
type progress struct {
	begun time.Time

	mu    sync.Mutex // guards the fields below; held while a line is printed
	print func(text string)
	timer *time.Timer
}

func newProgress(show func(text string)) *progress {
	p := &progress{begun: time.Now(), print: show}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(progressEvery, func() {
		p.report(fmt.Sprintf("still at work after %.0f s: the policy is loaded, or computes a chunk",
			time.Since(p.begun).Seconds()))
	})
	return p
}

// report prints a line, unless end was called.
func (p *progress) report(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.print != nil {
		p.timer.Reset(progressEvery)
		p.print(text)
	}
}

// end prevents further lines.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.print = nil
}

// RouterRules writes the access control of an official router for the manifest's service. In the rules, the manifest's
// clients are the robots, the certificate that the server dials with is the server's, and the manifest's routers have
// all rights. RouterRules needs neither private keys nor ONNX Runtime, and it needs the bundle only where the manifest
// has no model.id.
func RouterRules(cfg manifest.Config, w io.Writer) error {
	prefix, err := namedPrefix(&cfg)
	if err != nil {
		return err
	}
	fleet := acl.Fleet{Robots: cfg.Clients, Routers: cfg.Routers}
	if file := cfg.Zenoh.TLS.ConnectCertificate; file != "" {
		shown, err := endpoint.ReadCertificate(file)
		if err != nil {
			return cfg.Errorf("zenoh.tls.connect_certificate", "%w", err)
		}
		if shown.CommonName == "" {
			return cfg.Errorf("zenoh.tls.connect_certificate",
				"%s has no common name, and a router identifies a link by nothing else", file)
		}
		fleet.Servers = []string{shown.CommonName}
	}
	switch {
	case len(fleet.Robots) == 0:
		return cfg.Errorf("clients", "clients is empty: list the robots' ids, each the common name of its "+
			"certificate. A router's rules cannot express \"the robot that the certificate names\"")
	case len(fleet.Servers)+len(fleet.Routers) == 0:
		return cfg.Errorf("zenoh.tls", "no server could answer the robots: name the certificate that the server "+
			"shows to the router (zenoh.tls.connect_certificate), or list its common name under routers")
	}
	if err := (&acl.Service{Prefix: prefix}).RouterRules(w, fleet); err != nil {
		return cfg.Errorf("clients", "clients and routers: %w", err)
	}
	return nil
}

// namedPrefix returns the beginning of the service's keys.
func namedPrefix(cfg *manifest.Config) (string, error) {
	if cfg.Model.ID != "" {
		return cfg.Prefix(cfg.Model.ID)
	}
	if cfg.Model.Remote() {
		return "", cfg.Errorf("model.id",
			"model.id is required for the access rules beside model.runtime %s: robots see "+
				"the name of the policy in their keys", cfg.Model.Runtime)
	}
	bundle, err := policy.LoadBundle(cfg.Model.RepoOrPath)
	if err != nil {
		return "", cfg.BundleError(err)
	}
	return cfg.Prefix(cmp.Or(bundle.SourceRepo, bundle.PolicyType))
}
