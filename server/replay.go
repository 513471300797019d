package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"edgert/policy"
	"edgert/policy/tokenizer"
	"edgert/server/audit"
	"edgert/server/manifest"
	"edgert/wire"
)

// Replayed is what a replay of captured requests found.
type Replayed struct {
	Dir         string       `json:"dir"`
	Bundle      string       `json:"bundle"`
	Requests    int          `json:"requests"`
	Exact       int          `json:"exact"` // the answer is the captured one, byte for byte
	Unreadable  int          `json:"unreadable"`
	Others      []OtherModel `json:"other_bundles"`
	Differences []Difference `json:"differences"`
}

// OtherModel is a bundle that answered some of the captured requests and is not the
// one that answers now: they are not compared.
type OtherModel struct {
	SHA256   string `json:"sha256"`
	Requests int    `json:"requests"`
}

// ErrOtherBundle marks captures of which none was answered by the manifest's bundle.
var ErrOtherBundle = errors.New("captured with another bundle")

// Difference is a request whose answer is another one now.
type Difference struct {
	File   string `json:"file"`
	Client string `json:"client_uuid"`
	Seq    uint64 `json:"seq_id"`
	Why    string `json:"why"`
}

// otherBundle counts a request that another bundle has answered.
func (r *Replayed) otherBundle(sha256 string) {
	i := slices.IndexFunc(r.Others, func(o OtherModel) bool { return o.SHA256 == sha256 })
	if i < 0 {
		i, r.Others = len(r.Others), append(r.Others, OtherModel{SHA256: sha256})
	}
	r.Others[i].Requests++
}

// Otherwise returns how many requests are answered in another way now.
func (r *Replayed) Otherwise() int {
	n := r.Requests - r.Exact
	for _, o := range r.Others {
		n -= o.Requests
	}
	return n
}

// otherText says in a word which bundles answered then.
func (r *Replayed) otherText() string {
	var list []string
	for _, o := range r.Others {
		list = append(list, fmt.Sprintf("%d with bundle %.12s", o.Requests, o.SHA256))
	}
	return strings.Join(list, ", ")
}

// OK reports whether every captured request got its answer again.
func (r *Replayed) OK() bool { return r.Exact == r.Requests && r.Unreadable == 0 }

// Replay answers the requests captured in dir again, the oldest first, without
// a network, and compares. Answers are the same to the byte on the same
// processor and ONNX Runtime, since noise is a function of the request.
func Replay(cfg manifest.Config, dir string) (r Replayed, err error) {
	if err := cfg.Check(); err != nil {
		return r, err
	}
	found, unreadable, err := audit.ReadCaptures(dir)
	if err != nil {
		return r, err
	}
	model, err := load(cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	b := model.Bundle()
	r, err = replay(&b.Meta, b.SHA256, model, b.Text, cfg.Conditioning.Policy(), found)
	if err == nil && len(r.Others) > 0 && r.Otherwise() == 0 && r.Exact == 0 && len(unreadable) == 0 {
		return r, fmt.Errorf("%s: %w: %s, and the manifest's %s is %.12s: give the manifest of the bundle that answered", dir, ErrOtherBundle, r.otherText(), b.Dir, b.SHA256)
	}
	r.Dir, r.Bundle, r.Unreadable = dir, b.Dir, r.Unreadable+len(unreadable)
	for _, damaged := range unreadable {
		r.Differences = append(r.Differences, Difference{File: damaged.File, Why: damaged.Why})
	}
	return r, err
}

func replay(meta *policy.Meta, sha256 string, model Model, text *tokenizer.Tokenizer, how policy.Conditioning, requests []audit.Capture) (r Replayed, err error) {
	caps := capabilities(meta, sha256, "", "", "")
	tensors, err := newTensors(meta, model, &caps, how, &taskReader{tokenizer: text})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, tensors.close()) }()
	histories, tasks := map[sessionKey]*policy.History{}, readTasks{}
	for i := range requests {
		c := &requests[i]
		r.Requests++
		if c.ModelSHA256 != sha256 {
			r.otherBundle(c.ModelSHA256)
			continue
		}
		key := sessionKey{c.ClientUUID, c.Header.SessionEpoch}
		if histories[key] == nil {
			histories[key] = policy.NewHistory(meta.ChunkSize, meta.ActionDim)
		}
		if why := tensors.replay(c, sha256, histories[key], tasks); why != "" {
			r.Differences = append(r.Differences, Difference{c.File, c.ClientUUID, c.Header.SeqID, why})
		} else {
			r.Exact++
		}
	}
	return r, nil
}

// sessionKey is one robot's session in a capture.
type sessionKey struct {
	uuid  string
	epoch uint32
}

// readTasks holds each task that a capture names, read once: at most one a request.
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

// replay answers one captured request again and says what is different, "" when
// nothing is. history holds the chunks that were replayed before it, tasks the tasks.
func (t *tensors) replay(c *audit.Capture, sha256 string, history *policy.History, tasks readTasks) (why string) {
	session := newSession(c.ClientUUID, nil)
	if opened, err := tasks.read(t.tasks, c.Task); err != nil {
		return err.Error()
	} else {
		session.opened = opened
	}
	session.rtc, session.noise, session.history = c.RTC, policy.NewNoiseKey(sha256, c.ClientUUID), history
	var text string
	got := audit.BadObservation
	f, err := t.fill(0, session, c.Header.SeqID, c.Observation)
	if err == nil {
		got, err = t.infer()
	}
	if err != nil {
		text = err.Error()
	}
	want := c.Outcome
	if want == audit.Unsent.String() { // the link failed, not the request
		want = audit.Answered.String()
	}
	switch {
	case got.String() != want:
		return fmt.Sprintf("outcome %s (%s), was %s (%s)", got, text, c.Outcome, c.Why)
	case got != audit.Answered:
		return ""
	}
	var was, is wire.ActionChunk
	if err := wire.ParseActionChunk(&was, c.Reply); err != nil {
		return "the captured reply: " + err.Error()
	}
	t.chunk(&is, 0, &c.Header, &f)
	// What the moment made of the answer is not the request's.
	is.QueueWaitMs, is.InferenceMs, is.SupersededSeqs = was.QueueWaitMs, was.InferenceMs, was.SupersededSeqs
	is.ServerLoad, is.ServerID, is.Nonce = was.ServerLoad, was.ServerID, was.Nonce
	t.remember(0, session, &f)
	if bytes.Equal(wire.AppendActionChunk(nil, &is), c.Reply) {
		return ""
	}
	if f.spans == spansMissing {
		return "it names rows of chunks that were answered before the first capture that is left"
	}
	return fmt.Sprintf("another chunk: largest difference %g of chunk_model, %g of chunk_robot",
		maxDifference(was.ChunkModel.Data, is.ChunkModel.Data), maxDifference(was.ChunkRobot.Data, is.ChunkRobot.Data))
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

func maxDifference(a, b []float32) (d float32) {
	for i := range min(len(a), len(b)) {
		d = max(d, a[i]-b[i], b[i]-a[i])
	}
	return d
}

// Print writes the result for a person.
func (r *Replayed) Print(w io.Writer) error {
	for _, d := range r.Differences {
		if _, err := fmt.Fprintf(w, "%s: client %s, request %d: %s\n", d.File, cmp.Or(d.Client, "-"), d.Seq, d.Why); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%d captured requests: %d answered byte for byte as then, %d not, %d unreadable", r.Requests, r.Exact, r.Otherwise(), r.Unreadable)
	if len(r.Others) > 0 {
		text += fmt.Sprintf("; not compared, of another bundle: %s", r.otherText())
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
