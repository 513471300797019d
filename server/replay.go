package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

// Replayed is the result of a replay of captured requests.
type Replayed struct {
	Dir      string `json:"dir"`      // folder of the captures
	Bundle   string `json:"bundle"`   // folder of the bundle that answers now
	Requests int    `json:"requests"` // captures found
	Exact    int    `json:"exact"`    // answers that equal the captured ones byte for byte
	Within   int    `json:"within"`   // other answers whose values all differ by at most the tolerance
	// units of chunk_model, --tolerance; 0: only exact answers are accepted
	Tolerance   float64      `json:"tolerance"`
	Unreadable  int          `json:"unreadable"` // captures that are broken
	Others      []OtherModel `json:"other_bundles"`
	Differences []Difference `json:"differences"`
}

// OtherModel is a bundle that differs from the manifest's bundle and answered some of the captured requests. Replay
// does not compare the answers to these requests.
type OtherModel struct {
	SHA256   string `json:"sha256"`   // digest of the other bundle, which answered then
	Requests int    `json:"requests"` // captures of the other bundle, which are not compared
}

// ErrOtherBundle marks captures that were all answered by bundles other than the manifest's.
var ErrOtherBundle = errors.New("captured with another bundle")

// Difference is a request whose answer differs now.
type Difference struct {
	File   string `json:"file"`        // capture whose answer differs
	Client string `json:"client_uuid"` // robot of the capture
	Seq    uint64 `json:"seq_id"`      // number of the request
	Why    string `json:"why"`         // the difference
}

// otherBundle counts a request that another bundle has answered.
func (r *Replayed) otherBundle(sha256 string) {
	i := slices.IndexFunc(r.Others, func(o OtherModel) bool { return o.SHA256 == sha256 })
	if i < 0 {
		i, r.Others = len(r.Others), append(r.Others, OtherModel{SHA256: sha256})
	}
	r.Others[i].Requests++
}

// Otherwise returns how many of the compared requests now get an answer that differs by more than the tolerance.
func (r *Replayed) Otherwise() int {
	n := r.Requests - r.Exact - r.Within
	for _, o := range r.Others {
		n -= o.Requests
	}
	return n
}

// otherText lists the other bundles that answered.
func (r *Replayed) otherText() string {
	var list []string
	for _, o := range r.Others {
		list = append(list, fmt.Sprintf("%d with bundle %.12s", o.Requests, o.SHA256))
	}
	return strings.Join(list, ", ")
}

// OK reports whether every captured request got its answer again.
func (r *Replayed) OK() bool { return r.Exact+r.Within == r.Requests && r.Unreadable == 0 }

// Replay answers the requests captured in dir again, oldest first and each alone, without a network, and compares the
// answers. On the same processor and ONNX Runtime, the answers are equal to the byte, because noise is a function of
// the request. For an answer from a batch this holds only where the bundle guarantees it. Otherwise tolerance is the
// largest accepted difference of a value, in the units of chunk_model. With 0 only exact answers are accepted.
func Replay(cfg manifest.Config, dir string, tolerance float64) (r Replayed, err error) {
	if err := cfg.Check(); err != nil {
		return r, err
	}
	found, unreadable, err := audit.ReadCaptures(dir)
	if err != nil {
		return r, err
	}
	cfg.MaxBatch, cfg.BatchWindowMS = 1, 0
	model, err := load(context.Background(), &cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	with := &replaying{
		origin:       origin(model.SHA256, model.Runtime, model.Placement),
		meta:         model.Meta,
		conditioning: cfg.Conditioning.Policy(),
		tolerance:    tolerance,
	}
	r, err = with.replay(model, found)
	if err == nil && len(r.Others) > 0 && r.Otherwise() == 0 && r.Exact+r.Within == 0 && len(unreadable) == 0 {
		return r, fmt.Errorf(
			"%s: %w: %s, and the manifest's %s is %.12s: give the manifest of the bundle that answered", dir,
			ErrOtherBundle, r.otherText(), model.where, model.SHA256)
	}
	r.Dir = dir
	r.Bundle = model.where
	r.Unreadable = r.Unreadable + len(unreadable)
	for _, damaged := range unreadable {
		r.Differences = append(r.Differences, Difference{File: damaged.File, Why: damaged.Why})
	}
	return r, err
}

// replaying holds the parts that answer requests again.
type replaying struct {
	origin       audit.Origin
	meta         *policy.Meta
	conditioning policy.Conditioning // conditioning for captures that do not record it
	tolerance    float64
	tensors      *tensors
	tasks        readTasks
}

func (p *replaying) replay(model *loaded, requests []audit.Capture) (r Replayed, err error) {
	caps := capabilities(p.meta, p.origin.ModelSHA256, "", "", "")
	if p.tensors, err = newTensors(p.meta, model.Model, &caps, p.conditioning,
		&taskReader{tokenizer: model.Text, reads: model.Text != nil || model.ReadsTask}); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.tensors.close()) }()
	histories := map[sessionKey]*policy.History{} // chunks of the requests that were answered again
	p.tasks, r.Tolerance = readTasks{}, p.tolerance
	for i := range requests {
		c := &requests[i]
		r.Requests++
		if c.ModelSHA256 != p.origin.ModelSHA256 {
			r.otherBundle(c.ModelSHA256)
			continue
		}
		key := sessionKey{c.ClientUUID, c.Header.SessionEpoch}
		if histories[key] == nil {
			histories[key] = policy.NewHistory(p.meta.ChunkSize, p.meta.ActionDim)
		}
		switch exact, why := p.one(c, histories[key]); {
		case why != "":
			r.Differences = append(r.Differences, Difference{c.File, c.ClientUUID, c.Header.SeqID, why})
		case exact:
			r.Exact++
		default:
			r.Within++
		}
	}
	return r, nil
}

// sessionKey identifies one robot's session in the captures.
type sessionKey struct {
	uuid  string
	epoch uint32
}

// readTasks holds the tasks named in captures, so that each is tokenised only once.
type readTasks map[string]*task

func (m readTasks) read(reader *taskReader, text string) (*task, error) {
	if known := m[text]; known != nil {
		return known, nil
	}
	read, err := reader.read(text)
	if err == nil {
		m[text] = read
	}
	return read, err
}

// one answers one captured request again. The result exact reports that the answer equals the captured answer. The
// result why describes the difference, and is "" when the answers are equal or differ within the tolerance.
func (p *replaying) one(c *audit.Capture, history *policy.History) (exact bool, why string) {
	t, session := p.tensors, newSession(c.ClientUUID, nil, 0)
	opened, err := p.tasks.read(t.tasks, c.Task)
	if err != nil {
		return false, err.Error()
	}
	session.opened = opened
	session.rtc = c.RTC
	session.noise = policy.NewNoiseKey(c.ModelSHA256, c.ClientUUID)
	session.history = history
	var text string
	got := audit.BadObservation
	f, err := t.fill(0, session, c.Header.SeqID, c.Observation)
	if err == nil {
		t.inform(0, session, &f, &c.Header)
		if c.Controls != nil {
			t.model.SetControls(0, *c.Controls)
		}
		got, err = t.infer()
	}
	if err != nil {
		text = err.Error()
	}
	want := c.Outcome
	if want == audit.Unsent.String() { // the link failed after the chunk had been computed
		want = audit.Answered.String()
	}
	switch {
	case got.String() != want:
		return false, fmt.Sprintf("outcome %s (%s), was %s (%s)", got, text, c.Outcome, c.Why)
	case got != audit.Answered:
		return true, ""
	}
	var was, is wire.ActionChunk
	if err := wire.ParseActionChunk(&was, c.Reply); err != nil {
		return false, "the captured reply: " + err.Error()
	}
	t.chunk(&is, 0, &c.Header, &f)
	// These values do not depend on the request, but on the moment of the answer.
	is.QueueWaitMs = was.QueueWaitMs
	is.InferenceMs = was.InferenceMs
	is.SupersededSeqs = was.SupersededSeqs
	is.ServerLoad = was.ServerLoad
	is.ServerID = was.ServerID
	is.Nonce = was.Nonce
	t.remember(0, session, &f)
	if bytes.Equal(wire.AppendActionChunk(nil, &is), c.Reply) {
		return true, ""
	}
	if f.spans == spansMissing {
		return false, "it names rows of chunks from before the oldest capture"
	}
	return false, p.compare(&was, &is, c)
}

// compare returns a text about the differences between the captured chunk (was) and the present chunk (is). It
// returns "" when only values differ, all within the tolerance.
func (p *replaying) compare(was, is *wire.ActionChunk, c *audit.Capture) (why string) {
	inModel, inRobot := maxDifference(was.ChunkModel.Data, is.ChunkModel.Data),
		maxDifference(was.ChunkRobot.Data, is.ChunkRobot.Data)
	numbers := *is // compare all other values with equal matrices
	numbers.ChunkModel, numbers.ChunkRobot = was.ChunkModel, was.ChunkRobot
	if p.tolerance > 0 && float64(inModel) <= p.tolerance && float64(inRobot) <= p.tolerance*p.scale() &&
		is.ChunkModel.Rows == was.ChunkModel.Rows && is.ChunkModel.Cols == was.ChunkModel.Cols &&
		bytes.Equal(wire.AppendActionChunk(nil, &numbers), c.Reply) {
		return ""
	}
	why = fmt.Sprintf("another chunk: largest difference %g of chunk_model, %g of chunk_robot", inModel, inRobot)
	if c.Batch > 0 && (c.Batch > 1 || c.Origin != p.origin) {
		why += fmt.Sprintf(" (captured in a batch of %d with ONNX Runtime %s on %s, this is alone with %s on %s)",
			c.Batch, c.Runtime, c.Device, p.origin.Runtime, p.origin.Device)
	}
	return why
}

// scale returns the ratio of robot units to model units, from the tolerances of the bundle's golden
// sets.
func (p *replaying) scale() float64 {
	if tol := p.meta.GoldenTol; tol.ChunkModel > 0 && tol.ChunkRobot > 0 {
		return tol.ChunkRobot / tol.ChunkModel
	}
	return 1
}

func (t *tensors) infer() (audit.Outcome, error) {
	if err := t.model.RunBuffer(0, 1); err != nil {
		return audit.InferenceFailed, err
	}
	if !t.model.Finite(0) {
		return audit.NotFinite, errNotFinite
	}
	return audit.Answered, nil
}

// maxDifference returns the largest absolute difference of two values; NaN where a value is NaN.
func maxDifference(a, b []float32) (d float32) {
	for i := range min(len(a), len(b)) {
		d = max(d, a[i]-b[i], b[i]-a[i])
	}
	return d
}

// Print writes the result for a person.
func (r *Replayed) Print(w io.Writer) error {
	for _, d := range r.Differences {
		if _, err := fmt.Fprintf(w, "%s: client %s, request %d: %s\n", d.File, cmp.Or(d.Client, "-"), d.Seq,
			d.Why); err != nil {
			return err
		}
	}
	within := ""
	if r.Tolerance > 0 {
		within = fmt.Sprintf(", %d within %g of it", r.Within, r.Tolerance)
	}
	text := fmt.Sprintf("%d captured requests: %d answered byte for byte as then%s, %d not, %d unreadable", r.Requests,
		r.Exact, within, r.Otherwise(), r.Unreadable)
	if len(r.Others) > 0 {
		text += fmt.Sprintf("; not compared, of another bundle: %s", r.otherText())
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
