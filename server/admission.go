package server

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/policy/tokenizer"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/wire"
)

// fpsTolerance is the largest difference, in Hz, at which two rates still count as equal.
const fpsTolerance = 1e-6

// conditioningOff is the manifest's conditioning.mode of a server whose chunks never continue the previous one. Such a
// server must not announce RTC: a client of LeRobot's draft would replace its queue by chunks that do not continue the
// queue.
const conditioningOff = "off"

// refusedReason is the reason why a session was not opened.
type refusedReason uint8

const (
	refusedMalformed refusedReason = iota
	refusedSchema
	refusedClient
	refusedFull
	refusedActions
	refusedState
	refusedCameras
	refusedTask
	refusedFPS
	refusedDraining
	refusedInternal
	refusedTaken
	refusedQuota
	refusedMemory
	refusedModel
	numRefused
)

// refusals holds each reason's name and the milliseconds after which the robot may ask again; 0:
// never. A robot may ask again after "taken", because its own process from before a crash may still
// hold the name.
var refusals = [numRefused]struct {
	name       string
	retryAfter int
}{
	refusedMalformed: {"malformed", 0},
	refusedSchema:    {"schema", 0},
	refusedClient:    {"client", 0},
	refusedFull:      {"full", 1000},
	refusedActions:   {"actions", 0},
	refusedState:     {"state", 0},
	refusedCameras:   {"cameras", 0},
	refusedTask:      {"task", 0},
	refusedFPS:       {"fps", 0},
	refusedDraining:  {"draining", 1000},
	refusedInternal:  {"internal", 1000},
	refusedTaken:     {"taken", 500},
	refusedQuota:     {"quota", 1000},
	refusedMemory:    {"memory", 1000},
	refusedModel:     {"model", 200},
}

func (r refusedReason) String() string { return refusals[r].name }

// wire.MaxSteps and policy.MaxObserved both bound the observations that a policy takes together.
// These constants compile only when the two are equal.
const (
	_ = uint(wire.MaxSteps - policy.MaxObserved)
	_ = uint(policy.MaxObserved - wire.MaxSteps)
)

// capabilities returns a server's announcement of the bundle with metadata m.
func capabilities(m *policy.Meta, sha256, repo, revision, mode string) wire.Capabilities {
	c := wire.Capabilities{
		ModelRepo:           repo,
		ModelRevision:       revision,
		PolicyType:          m.PolicyType,
		ActionNames:         m.ActionNames,
		StateDim:            len(m.StateNames),
		ChunkSize:           m.ChunkSize,
		TrainedFPS:          m.FPS,
		SupportsRTC:         m.Guided() || m.Trained(),
		RTCExecutionHorizon: m.PrefixEnd,
		ServingMode:         mode,
		T:                   wire.ExtensionLevel,
		ModelSHA256:         sha256,
		ActionUnits:         m.ActionUnits,
		StateUnits:          m.StateUnits,
	}
	if n := m.Steps(); n > 1 {
		c.Steps = n
	}
	for _, cam := range m.Cameras {
		name := front.ImageName(cam.Name)
		c.ExpectedCameras = append(c.ExpectedCameras, name)
		c.CameraShapes = append(c.CameraShapes, wire.CameraShape{
			Name: name,
			H:    cam.H,
			W:    cam.W,
			C:    3,
		})
	}
	return c
}

// features returns the dictionary of the policy's inputs and outputs, as LeRobot's policies have it.
func features(m *policy.Meta, readsTask bool) (in, out []wire.Feature) {
	vector := func(name, kind string, names []string) wire.Feature {
		return wire.Feature{
			Name:  name,
			Type:  kind,
			Shape: []int{len(names)},
			DType: "float32",
			Names: names,
		}
	}
	in = append(in, vector("observation.state", "STATE", m.StateNames))
	for _, cam := range m.Cameras {
		in = append(in, wire.Feature{
			Name:  front.ImageName(cam.Name),
			Type:  "VISUAL",
			Shape: []int{3, cam.H, cam.W},
			DType: "uint8",
			Names: []string{"channels", "height", "width"},
		})
	}
	if readsTask {
		in = append(in, wire.Feature{
			Name:  "task",
			Type:  "LANGUAGE",
			Shape: []int{1},
			DType: "str",
			Names: []string{"task"},
		})
	}
	return in, []wire.Feature{vector("action", "ACTION", m.ActionNames)}
}

// refusal is a reason for the counters and a text for people.
type refusal struct {
	reason refusedReason
	text   string
}

// admission holds all inputs of the checks of an open.
type admission struct {
	caps       wire.Capabilities
	cameras    []policy.Camera // the policy's cameras, in the order of caps.CameraShapes
	cfg        *manifest.Config
	tasks      *taskReader
	observed   int // largest number of observations that the policy takes together
	meta       *policy.Meta
	limit      int // largest number of sessions
	active     int // sessions of other robots
	place      quota.Place
	own        quota.Place   // the place of the session that this open replaces; zero: there is no such session
	memory     *memory.Bound // the server's bound on memory
	promised   int64         // bytes promised to other robots
	asked      int           // bytes of one observation, from the sizes in the open
	open       *wire.SessionOpen
	warnings   []string
	downgraded bool  // RTC was requested and is not supported
	opened     *task // task of the session
}

// check runs the checks of LeRobot's server in its order and with its texts, and this server's own checks where LeRobot
// has no such check. It returns the refusal of the first check that fails. When none fails, it returns nil and
// a.warnings is complete.
//
// Source: LeRobot's remote-inference draft.
func (a *admission) check() *refusal {
	for _, c := range []struct {
		reason refusedReason
		check  func() string
	}{
		{refusedSchema, a.schema}, {refusedClient, a.identity}, {refusedFull, a.room}, {refusedActions, a.actions},
		{refusedState, a.state}, {refusedCameras, a.pictures}, {refusedTask, a.task}, {refusedFPS, a.rate},
	} {
		if text := c.check(); text != "" {
			a.warnings = nil
			return &refusal{c.reason, text}
		}
	}
	o := a.open
	if o.PolicyType != "" && a.caps.PolicyType != "" && o.PolicyType != a.caps.PolicyType {
		a.warn("client expected policy_type=%s, server runs %s", pyString(o.PolicyType), pyString(a.caps.PolicyType))
	}
	if a.tasks.reads && a.opened.text == "" {
		a.warn("this policy reads its task and got none yet: unless each observation has one, give --task, or " +
			"default_task in the manifest")
	}
	if n, sent := a.observed, max(o.Steps, 1); sent < n {
		a.warn("this policy takes %d observations, one control step apart, and this robot sends %d: the newest is "+
			"used for the missing ones", n, sent)
	}
	if a.downgraded = o.RTCEnabled && !a.caps.SupportsRTC; a.downgraded {
		a.warn("RTC requested but this server/policy does not support it — downgrading to chunk-append")
	}
	if a.downgraded && a.cfg.Conditioning.Mode == conditioningOff {
		a.warn("this server's manifest has conditioning.mode off: no chunk continues the one before")
	}
	return nil
}

func (a *admission) warn(format string, args ...any) {
	a.warnings = append(a.warnings, fmt.Sprintf(format, args...))
}

func (a *admission) schema() string {
	if v := a.open.SchemaVersion; v < wire.MinSchemaVersion || v > wire.SchemaVersion {
		return fmt.Sprintf("schema_version %d outside supported range [%d, %d]", v, wire.MinSchemaVersion,
			wire.SchemaVersion)
	}
	return ""
}

// identity returns the reason to refuse the client's name, or "" for a permitted name. LeRobot's server has no such
// check: it even admits a client whose name prevents the arrival of its observations.
func (a *admission) identity() string {
	if err := wire.CheckUUID(a.open.ClientUUID); err != nil {
		return err.Error()
	}
	if len(a.cfg.Clients) > 0 && !slices.Contains(a.cfg.Clients, a.open.ClientUUID) {
		return fmt.Sprintf("client %s is not on this server's list: add it to clients in the manifest and "+
			"restart lean-server", pyString(a.open.ClientUUID))
	}
	return ""
}

func (a *admission) room() string {
	if a.active >= a.limit {
		return fmt.Sprintf("server full: %d/%d sessions active", a.active, a.limit)
	}
	return ""
}

func (a *admission) actions() string {
	if len(a.caps.ActionNames) > 0 && !slices.Equal(a.caps.ActionNames, a.open.ActionNames) {
		return fmt.Sprintf("action feature names/order mismatch — refusing to map chunk columns to motors.\n  "+
			"server: %s\n  client: %s",
			pyList(a.caps.ActionNames), pyList(a.open.ActionNames))
	}
	return errorText(wire.CheckUnits("action_units", a.caps.ActionUnits, a.open.ActionUnits))
}

func (a *admission) state() string {
	server, client := a.caps.StateDim, a.open.StateDim
	if server != 0 && client != 0 && server != client {
		return fmt.Sprintf("state dim mismatch: server=%d, client=%d", server, client)
	}
	return errorText(wire.CheckUnits("state_units", a.caps.StateUnits, a.open.StateUnits))
}

func (a *admission) pictures() string {
	var missing []string
	for _, name := range a.caps.ExpectedCameras {
		if !slices.Contains(a.open.CameraNames, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Sprintf("missing camera features %s (client provides %s; resolution may differ — names may not)",
			pyList(missing), pyList(slices.Sorted(slices.Values(a.open.CameraNames))))
	}
	if text := a.tooLarge(); text != "" {
		return text
	}
	if err := wire.CheckCameraShapes(a.caps.CameraShapes, a.decoded()); err != nil {
		return err.Error()
	}
	a.warnOfShapes()
	return errorText(wire.CheckRaw(a.raw(), min(max(a.open.Steps, 1), max(a.observed, 1))))
}

// raw returns the cameras whose pictures travel raw and whose size is known. The size is from the client's open or,
// if the open has none, from the policy.
func (a *admission) raw() (shapes []wire.CameraShape) {
	for _, known := range [][]wire.CameraShape{a.open.CameraShapes, a.caps.CameraShapes} {
		for _, shape := range known {
			if slices.Contains(a.open.RawImages, shape.Name) && shapeOf(shapes, shape.Name) == nil {
				shapes = append(shapes, shape)
			}
		}
	}
	return shapes
}

// shapeOf returns the shape of the camera called name, or nil when shapes has no such camera.
func shapeOf(shapes []wire.CameraShape, name string) *wire.CameraShape {
	for i := range shapes {
		if shapes[i].Name == name {
			return &shapes[i]
		}
	}
	return nil
}

// tooLarge returns an error text for the first camera whose JPEG is too large to be scaled; "" when there is no such
// camera.
func (a *admission) tooLarge() string {
	for i, view := range a.cameras {
		want := a.caps.CameraShapes[i]
		from := shapeOf(a.open.CameraShapes, want.Name)
		if from == nil || view.ExactSize || slices.Contains(a.open.RawImages, want.Name) {
			continue
		}
		if (from.W != want.W || from.H != want.H) && !jpeg.CanFit(from.W, from.H) &&
			jpeg.Shrink(from.W, from.H, want.W, want.H, view.Scale()) == 0 {
			return fmt.Sprintf("camera %s: a JPEG of %dx%d (width x height) is too large: a picture that is scaled "+
				"to %dx%d has at most %d pixels (2560x1600) and sides of %d: have the camera send smaller pictures",
				want.Name, from.W, from.H, want.W, want.H, jpeg.MaxFitPixels, jpeg.MaxFitSide)
		}
	}
	return ""
}

// decoded returns the client's cameras with the sizes of their decoded pictures. If the server can scale a camera's
// pictures, and the bundle allows it, their size is the policy's.
func (a *admission) decoded() []wire.CameraShape {
	client := slices.Clone(a.open.CameraShapes)
	for i, view := range a.cameras {
		want := a.caps.CameraShapes[i]
		from := shapeOf(client, want.Name)
		if from == nil || from.C != want.C {
			continue
		}
		if jpeg.Shrink(from.W, from.H, want.W, want.H, view.Scale()) > 0 ||
			!view.ExactSize && (slices.Contains(a.open.RawImages, want.Name) || jpeg.CanFit(from.W, from.H)) {
			from.W, from.H = want.W, want.H
		}
	}
	return client
}

// warnOfShapes warns of pictures that are squeezed into another aspect ratio.
func (a *admission) warnOfShapes() {
	for _, want := range a.caps.CameraShapes {
		if from := shapeOf(a.open.CameraShapes, want.Name); from != nil && !sameShape(from.W, from.H, want.W, want.H) {
			a.warn("camera %s: pictures of %dx%d are squeezed to %dx%d (width x height), another shape than the "+
				"policy was trained with: crop them to %s",
				want.Name, from.W, from.H, want.W, want.H, crop(from.W, from.H, want.W, want.H))
		}
	}
}

// shapeTolerance is the largest relative difference of the aspect ratios of two pictures of the
// same shape: both 1366x768 and 426x240 are taken as 16:9.
const shapeTolerance = 0.01

//rt:noalloc
func sameShape(fromW, fromH, w, h int) bool {
	is, want := float64(fromW)*float64(h), float64(w)*float64(fromH)
	return math.Abs(is-want) <= shapeTolerance*want
}

// crop returns the size, as "WxH", of the largest part of a fromW x fromH picture that has the aspect ratio of w x h.
func crop(fromW, fromH, w, h int) string {
	return fmt.Sprintf("%dx%d", min(fromW, max(1, fromH*w/h)), min(fromH, max(1, fromW*h/w)))
}

func (a *admission) task() string {
	var err error
	a.opened, err = a.tasks.read(cmp.Or(a.open.Task, a.cfg.DefaultTask))
	return errorText(err)
}

func (a *admission) rate() string {
	client, trained := a.open.FPS, a.caps.TrainedFPS
	if client == 0 || trained == 0 || math.Abs(client-trained) <= fpsTolerance {
		return ""
	}
	text := fmt.Sprintf("client fps=%s != trained fps=%s", pyG(client), pyG(trained))
	if a.cfg.StrictFPS {
		return text + " (strict_fps=true)"
	}
	a.warn("%s", text)
	return ""
}

// share runs the checks that protect the robots from each other: one link or host must not take all sessions, and the
// memory of the server must hold the observations of each admitted robot, whatever the other robots send.
func (a *admission) share() *refusal {
	if text := a.place.Refuse(a.own); text != "" {
		return &refusal{refusedQuota, text}
	}
	if text := a.need(); text != "" {
		return &refusal{refusedMemory, text}
	}
	return nil
}

func (a *admission) need() string {
	need, limit := sessionNeed(a.meta, a.asked), a.memory.Promisable()
	if a.promised+need <= limit {
		return ""
	}
	return fmt.Sprintf("no memory: this robot needs %s (its session, and %d observations of %s, reckoned from its "+
		"cameras), and %s of %s are promised to others; %v: open at another server, send JPEG or smaller pictures, "+
		"or raise memory in the server's manifest",
		memory.Size(need), observationsHeld, memory.Size(a.asked), memory.Size(a.promised), memory.Size(limit),
		a.memory)
}

const (
	// sessionBytes is the memory of a session without the chunks that it remembers: its tasks with
	// their tokens, its keys, and the transport's state for these keys.
	sessionBytes = 64 << 10
	// observationsHeld is how many observations of a robot are in memory together: the arriving
	// one, the waiting one and the one in work.
	observationsHeld = 3
	// stateBytes is the memory of an observation without pictures and prefixes.
	stateBytes = 16 << 10
)

// sessionMemory returns the bytes that the server needs for a robot that does not send.
func sessionMemory(m *policy.Meta) int64 {
	return sessionBytes + policy.HistoryBytes(m.ChunkSize, m.ActionDim)
}

// sessionNeed returns the bytes that are promised to a robot; asked is the size of one of its
// observations.
func sessionNeed(m *policy.Meta, asked int) int64 {
	return sessionMemory(m) + observationsHeld*int64(asked)
}

// observationBytes returns the size of one of a robot's observations, computed from its open. It counts three bytes
// for each pixel of a raw picture, and one for each pixel of a JPEG, because only a JPEG of noise is larger. A camera
// of unknown size counts as the policy's largest camera.
func observationBytes(m *policy.Meta, caps *wire.Capabilities, o *wire.SessionOpen) int {
	largest := 0
	for _, c := range caps.CameraShapes {
		largest = max(largest, c.H*c.W)
	}
	pictures := 0
	for _, name := range o.CameraNames {
		pixels := largest
		for _, known := range [][]wire.CameraShape{caps.CameraShapes, o.CameraShapes} {
			if shape := shapeOf(known, name); shape != nil {
				pixels = shape.H * shape.W
			}
		}
		if slices.Contains(o.RawImages, name) {
			pixels *= 3
		}
		pictures += pixels
	}
	prefixes := 2 * 4 * m.ChunkSize * m.ActionDim
	return min(max(1, o.Steps)*pictures+prefixes+stateBytes, observationLimit(m))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// pyString, pyList and pyG print as Python's repr and %g do, because LeRobot's clients and tests compare these texts.
func pyString(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	s = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s)
	if quote == "'" {
		s = strings.ReplaceAll(s, "'", `\'`)
	}
	return quote + s + quote
}

func pyList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = pyString(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func pyG(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }

// task is a robot's instruction, in the form that the policy reads.
//
// Constant.
type task struct {
	text   string
	prompt *tokenizer.Prompt // nil: the policy does not read its task
}

// taskReader makes tasks from robots' texts. Constant after New.
type taskReader struct {
	reads     bool                 // chunks depend on the task
	tokenizer *tokenizer.Tokenizer // nil: the policy does not read its task, or reads it as text
	pinned    string               // the only text that is allowed; empty: any
}

func newTaskReader(cfg *manifest.Config, t *tokenizer.Tokenizer, text bool) *taskReader {
	r := &taskReader{tokenizer: t, reads: t != nil || text}
	if cfg.PinTask {
		r.pinned = cfg.DefaultTask
	}
	return r
}

// read checks a text and tokenises it, once per task. Its allocations are proportional to the text,
// which has at most wire.MaxTextBytes.
//
//go:noinline
func (r *taskReader) read(text string) (*task, error) {
	if r.pinned != "" && text != r.pinned {
		return nil, fmt.Errorf("task is pinned to %s on this server, got %s", pyString(r.pinned), pyString(text))
	}
	if r.tokenizer == nil {
		return &task{text: text}, nil
	}
	prompt, err := r.tokenizer.Prompt(text)
	if err != nil {
		return nil, fmt.Errorf("%w, got %s", err, pyString(fmt.Sprintf("%.80s", text)))
	}
	return &task{text, prompt}, nil
}

const (
	// observationSlack is the most bytes of an observation without its pictures, such as state and
	// names.
	observationSlack = 1 << 20
	// The pictures of an observation may have pictureAllowance times the bytes of the policy's pictures, because a
	// robot may send cameras that the policy does not use, and pictures that the server scales down.
	pictureAllowance = 4
)

// observationMax returns the size, in bytes, of the largest observation for which memory is planned.
func observationMax(m *policy.Meta) int {
	n := observationSlack
	for _, c := range m.Cameras {
		n += max(pictureAllowance, c.Scale()*c.Scale()) * c.Bytes() * m.Steps()
	}
	return min(n, wire.MaxMessageBytes)
}

// observationLimit returns the size, in bytes, of the largest observation that is accepted. If a camera's pictures may
// have any size, the limit is at least wire.MaxCarriedBytes, the largest message that a link carries, because
// observations wait in the memory that the link has for messages.
func observationLimit(m *policy.Meta) int {
	n := observationMax(m)
	if slices.ContainsFunc(m.Cameras, func(c policy.Camera) bool { return !c.ExactSize }) {
		n = max(n, wire.MaxCarriedBytes)
	}
	return n
}
