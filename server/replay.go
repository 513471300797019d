package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"edgert/policy"
	"edgert/server/manifest"
	"edgert/wire"
)

// ErrNoCaptures marks a folder without captured requests.
var ErrNoCaptures = errors.New("no captured requests")

// Replayed is what a replay of captured requests found.
type Replayed struct {
	Dir         string       `json:"dir"`
	Bundle      string       `json:"bundle"`
	Requests    int          `json:"requests"`
	Exact       int          `json:"exact"` // the answer is the captured one, byte for byte
	Unreadable  int          `json:"unreadable"`
	Differences []Difference `json:"differences"`
}

// Difference is a request whose answer is another one now.
type Difference struct {
	File   string `json:"file"`
	Client string `json:"client_uuid"`
	Seq    uint64 `json:"seq_id"`
	Why    string `json:"why"`
}

// OK reports whether every captured request got its answer again.
func (r *Replayed) OK() bool { return r.Exact == r.Requests && r.Unreadable == 0 }

// Replay answers the requests captured in dir again, the oldest first, with the
// manifest's bundle and without a network, and compares the answers. They are
// the same to the byte on the same processor and ONNX Runtime: noise is a
// function of the request, and a chunk depends on nothing else.
func Replay(cfg manifest.Config, dir string) (r Replayed, err error) {
	if err := cfg.Check(); err != nil {
		return r, err
	}
	found, unreadable, err := readCaptures(dir)
	if err != nil {
		return r, err
	}
	loaded, err := Load(cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, loaded.Close()) }()
	r, err = replay(&loaded.Bundle.Meta, loaded.Bundle.SHA256, loaded.Model, cfg.Conditioning.Policy(), found)
	r.Dir, r.Bundle, r.Unreadable = dir, loaded.Bundle.Dir, r.Unreadable+len(unreadable)
	for _, torn := range unreadable {
		r.Differences = append(r.Differences, Difference{File: torn.file, Why: torn.why})
	}
	return r, err
}

// readCaptures reads all capture files of dir in the order of their requests.
func readCaptures(dir string) (found, unreadable []captured, err error) {
	names, err := filepath.Glob(filepath.Join(dir, capturePattern))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		c, err := readCapture(name)
		switch {
		case errors.Is(err, errEmpty):
		case err != nil:
			unreadable = append(unreadable, captured{file: name, why: err.Error()})
		default:
			found = append(found, c)
		}
	}
	if len(found)+len(unreadable) == 0 {
		return nil, nil, fmt.Errorf("%s: %w there (debug.capture_dir of a manifest makes a server keep them)", dir, ErrNoCaptures)
	}
	slices.SortFunc(found, func(a, b captured) int { return cmp.Compare(a.count, b.count) })
	return found, unreadable, nil
}

func replay(meta *policy.Meta, sha256 string, model Model, how policy.Conditioning, requests []captured) (r Replayed, err error) {
	caps := capabilities(meta, sha256, "", "", "")
	row, err := newRow(meta, model, &caps, how)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, row.close()) }()
	pasts := map[pastKey]*policy.History{}
	for i := range requests {
		c := &requests[i]
		r.Requests++
		key := pastKey{c.uuid, c.header.SessionEpoch}
		if pasts[key] == nil {
			pasts[key] = policy.NewHistory(meta.ChunkSize, meta.ActionDim)
		}
		if why := row.replay(c, sha256, pasts[key]); why != "" {
			r.Differences = append(r.Differences, Difference{c.file, c.uuid, c.header.SeqID, why})
		} else {
			r.Exact++
		}
	}
	return r, nil
}

// pastKey is one robot's session in a capture.
type pastKey struct {
	uuid  string
	epoch uint32
}

// replay answers one captured request again and says what is different, "" when
// nothing is. past holds the chunks that were replayed before it.
func (r *row) replay(c *captured, sha256 string, past *policy.History) (why string) {
	if c.sha256 != sha256 {
		return fmt.Sprintf("captured with bundle %.12s, this is %.12s", c.sha256, sha256)
	}
	session := newSession(c.uuid)
	session.rtc, session.noise, session.past = c.rtc, policy.NewNoiseKey(sha256, c.uuid), past
	got, text := r.run(session, c)
	want := c.outcome
	if want == unsent.String() { // of the link, not of the request
		want = answered.String()
	}
	switch {
	case got.String() != want:
		return fmt.Sprintf("outcome %s (%s), was %s (%s)", got, text, c.outcome, c.why)
	case got != answered:
		return ""
	}
	var was, is wire.ActionChunk
	if err := wire.ParseActionChunk(&was, c.reply); err != nil {
		return "the captured reply: " + err.Error()
	}
	r.answer(&is, &c.header)
	// What the moment made of the answer is not the request's.
	is.QueueWaitMs, is.InferenceMs, is.SupersededSeqs = was.QueueWaitMs, was.InferenceMs, was.SupersededSeqs
	is.ServerLoad, is.ServerID = was.ServerLoad, was.ServerID
	r.remember(session)
	if bytes.Equal(wire.AppendActionChunk(nil, &is), c.reply) {
		return ""
	}
	if r.past == pastMissed {
		return "it names rows of chunks that were answered before the first capture that is left"
	}
	return fmt.Sprintf("another chunk: largest difference %g of chunk_model, %g of chunk_robot",
		farthest(was.ChunkModel.Data, is.ChunkModel.Data), farthest(was.ChunkRobot.Data, is.ChunkRobot.Data))
}

// run is the worker's infer without a worker.
func (r *row) run(s *Session, c *captured) (o outcome, why string) {
	if _, err := r.fill(s, c.header.SeqID, c.observation); err != nil {
		return badObservation, err.Error()
	}
	if err := r.model.Run(1); err != nil {
		return inferenceFailed, err.Error()
	}
	if !r.model.Finite(0) {
		return notFinite, errNotFinite.Error()
	}
	return answered, ""
}

// farthest is the largest difference of two rows of numbers.
func farthest(a, b []float32) (d float32) {
	for i := range min(len(a), len(b)) {
		d = max(d, a[i]-b[i], b[i]-a[i])
	}
	return d
}

// Print writes the result for a person.
func (r *Replayed) Print(w io.Writer) error {
	for _, d := range r.Differences {
		if _, err := fmt.Fprintf(w, "%s: client %s, request %d: %s\n", d.File, orDash(d.Client), d.Seq, d.Why); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d captured requests: %d answered byte for byte as then, %d not, %d unreadable\n",
		r.Requests, r.Exact, r.Requests-r.Exact, r.Unreadable)
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
