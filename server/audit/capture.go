package audit

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/policy/safetensors"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	captureFormat   = "lean-server capture 1"
	capturePattern  = "request-*.safetensors"
	requestsWaiting = 16 // captures that may wait for the disk, each with an observation
	// tensorAlign is the alignment of the data in a safetensors file.
	tensorAlign = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNoCaptures marks a folder without captured requests.
var ErrNoCaptures = errors.New("no captured requests")

// errDeleted is the error of captures whose files were deleted.
var errDeleted = errors.New("the files of debug.capture_dir were deleted: start lean-server again")

// errEmpty marks a file into which the ring has not yet written a request.
var errEmpty = errors.New("empty")

// request is one request with its answer. Its buffers are reused.
type request struct {
	Record
	attachment, observation, reply []byte
}

// fits enlarges the buffers of a slot to the sizes of an observation and a reply, and reports whether the bound on
// memory allows it. It allocates only for a request that is larger than all earlier requests in that slot.
//
//go:noinline
func (w *Writer) fits(r *request, observation, reply int) bool {
	larger := max(0, observation-cap(r.observation)) + max(0, reply-cap(r.reply)) + max(0, observation+reply-w.largest)
	if larger == 0 {
		return true
	}
	if !w.memory.TakeSpare(memory.Captures, int64(larger)) {
		return false
	}
	if observation > cap(r.observation) {
		r.observation = make([]byte, 0, observation)
	}
	if reply > cap(r.reply) {
		r.reply = make([]byte, 0, reply)
	}
	w.largest = max(w.largest, observation+reply)
	return true
}

// fill copies a record into a slot, whose buffers Writer.fits has enlarged before.
//
//rt:noalloc
func (r *request) fill(record *Record, observation, reply []byte) {
	r.Record = *record
	r.observation, r.reply = append(r.observation[:0], observation...), append(r.reply[:0], reply...)
}

// Origin identifies the bundle, runtime and device that answered the requests of one run of a
// server.
type Origin struct {
	ModelSHA256 string
	Runtime     string // version of ONNX Runtime
	Device      string // device that computed the answers, in the form of policy.Device
}

// ring is the bounded ring of captured requests: request n is in file n mod max.
// The files stay open, so that a write allocates nothing. The count continues after a restart,
// so that each new request overwrites the oldest one.
//
// Owner: the writer's goroutine.
type ring struct {
	dir   *os.File // the folder, locked
	files []*os.File
	count uint64 // number of the next request
	text  []byte

	origin Origin // constant once the writer runs
}

// openRing opens the ring of max files in dir, and creates dir if necessary.
func openRing(dir string, max int) (*ring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	handle, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	g := &ring{dir: handle}
	if err := child.Lock(handle); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another lean-server captures there: %w", dir, err), g.close())
	}
	names, err := filepath.Glob(filepath.Join(dir, capturePattern))
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	for _, name := range names {
		if found, err := readCapture(name); err == nil && found.Count >= g.count {
			g.count = found.Count + 1
		}
	}
	for i := range max {
		file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("request-%05d.safetensors", i)),
			os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g.files = append(g.files, file)
	}
	return g, nil
}

// close closes all files, and removes the files without a request.
func (g *ring) close() (err error) {
	if g == nil {
		return nil
	}
	for _, file := range g.files {
		if info, statErr := file.Stat(); statErr == nil && info.Size() == 0 {
			err = errors.Join(err, os.Remove(file.Name()))
		}
		err = errors.Join(err, file.Close())
	}
	return errors.Join(err, child.Unlock(g.dir))
}

// write writes one request into its file, in one write, and then truncates the file. If the server dies before the
// truncation, the rest of an earlier, longer request makes the checksum fail.
func (g *ring) write(r *request, ts time.Time) error {
	file := g.files[g.count%uint64(len(g.files))]
	r.attachment = wire.AppendHeader(r.attachment[:0], r.Header)
	g.text = appendCapture(g.text[:0], r, &g.origin, g.count, ts)
	if deleted(file) {
		return errDeleted
	}
	if _, err := file.WriteAt(g.text, 0); err != nil {
		return err
	}
	if err := file.Truncate(int64(len(g.text))); err != nil {
		return err
	}
	g.count++
	return nil
}

// appendCapture appends r as a safetensors file: its tensors `header`, `observation` and `reply` are the bytes that
// crossed the wire, and its metadata holds all other fields.
//
//rt:noalloc
func appendCapture(dst []byte, r *request, origin *Origin, count uint64, ts time.Time) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // length of the header, filled in below
	dst = appendInt(dst, `{"__metadata__":{"format":"`+captureFormat+`","count":"`, int64(count))
	dst = append(dst, `","ts":"`...)
	dst = ts.AppendFormat(dst, timeLayout)
	dst = appendInt(dst, `","crc32c":"`, int64(checksum(r.attachment, r.observation, r.reply)))
	dst = append(dst, `","rtc":"`...)
	dst = strconv.AppendBool(dst, r.RTC)
	dst = appendInt(dst, `","batch":"`, int64(r.Batch))
	dst = appendInt(dst, `","row":"`, int64(r.Row))
	dst = appendControls(dst, &r.Controls)
	dst = appendField(dst, `","client_uuid":`, r.ClientUUID)
	dst = appendField(dst, `,"session_id":`, r.SessionID)
	dst = appendField(dst, `,"task":`, r.Task)
	dst = appendField(dst, `,"model_sha256":`, cmp.Or(r.Model, origin.ModelSHA256))
	dst = appendField(dst, `,"onnxruntime":`, origin.Runtime)
	dst = appendField(dst, `,"device":`, origin.Device)
	dst = appendField(dst, `,"outcome":`, r.Outcome.String())
	dst = appendField(dst, `,"why":`, r.Why)
	dst = append(dst, '}')
	at := 0
	dst, at = appendTensor(dst, `,"header":`, at, r.attachment)
	dst, at = appendTensor(dst, `,"observation":`, at, r.observation)
	dst, _ = appendTensor(dst, `,"reply":`, at, r.reply)
	dst = append(dst, '}')
	for (len(dst)-start)%tensorAlign != 0 {
		dst = append(dst, ' ')
	}
	binary.LittleEndian.PutUint64(dst[start:], uint64(len(dst)-start-8))
	dst = append(dst, r.attachment...)
	dst = append(dst, r.observation...)
	return append(dst, r.reply...)
}

// appendControls appends the conditioning of the chunk.
//
//rt:noalloc
func appendControls(dst []byte, c *policy.Controls) []byte {
	dst = append(append(dst, `","conditioning":"`...), c.Mode.String()...)
	dst = appendInt(dst, `","prefix_len":"`, int64(c.PrefixLen))
	dst = appendInt(dst, `","delay":"`, int64(c.Delay))
	dst = appendInt(dst, `","prefix_end":"`, int64(c.PrefixEnd))
	dst = strconv.AppendFloat(append(dst, `","beta":"`...), float64(c.Beta), 'g', -1, 32)
	dst = append(append(dst, `","schedule":"`...), c.Schedule.String()...)
	return strconv.AppendFloat(append(dst, `","sigma_d":"`...), float64(c.SigmaD), 'g', -1, 32)
}

// parseControls reads the output of appendControls. It returns nil for the captures of older servers, which did not
// record the conditioning.
func parseControls(meta map[string]string) (*policy.Controls, error) {
	name, ok := meta["conditioning"]
	if !ok {
		return nil, nil
	}
	var c policy.Controls
	var errs []error
	number := func(key string, to *int) {
		n, err := strconv.Atoi(meta[key])
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("%s is %q, want a count", key, meta[key]))
		}
		*to = n
	}
	weight := func(key string, to *float32) {
		v, err := strconv.ParseFloat(meta[key], 32)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, want a number", key, meta[key]))
		}
		*to = float32(v)
	}
	number("prefix_len", &c.PrefixLen)
	number("delay", &c.Delay)
	number("prefix_end", &c.PrefixEnd)
	weight("beta", &c.Beta)
	weight("sigma_d", &c.SigmaD)
	mode, err := policy.ParseMode(name)
	schedule := slices.Index(policy.ScheduleNames, meta["schedule"])
	if schedule < 0 {
		errs = append(errs, fmt.Errorf("schedule is %q, want one of %v", meta["schedule"], policy.ScheduleNames))
	}
	c.Mode, c.Schedule = mode, policy.Schedule(schedule)
	return &c, errors.Join(append(errs, err)...)
}

//rt:noalloc
func appendTensor(dst []byte, key string, at int, data []byte) (out []byte, end int) {
	dst = appendInt(append(dst, key...), `{"dtype":"U8","shape":[`, int64(len(data)))
	dst = appendInt(dst, `],"data_offsets":[`, int64(at))
	dst = appendInt(dst, ",", int64(at+len(data)))
	return append(dst, `]}`...), at + len(data)
}

// Capture is a captured request and its answer, read again.
type Capture struct {
	File        string
	Count       uint64 // number of earlier requests captured in this folder
	Header      wire.Header
	Observation []byte
	Reply       []byte // empty when Outcome is neither ok nor unsent
	ClientUUID  string
	Origin
	Batch, Row int              // size of the request's batch (0: no batch, or unknown), and its row in the batch
	Controls   *policy.Controls // conditioning of the chunk; nil: unknown
	Outcome    string
	Why        string // defect of a file that could not be read
	RTC        bool
	Task       string // the task from which the chunk was computed
}

// ReadCaptures reads all capture files of dir in the order of their requests. A file that it cannot read becomes an
// element of unreadable, in which only File and Why are set.
func ReadCaptures(dir string) (captures, unreadable []Capture, err error) {
	names, err := filepath.Glob(filepath.Join(dir, capturePattern))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		c, err := readCapture(name)
		switch {
		case errors.Is(err, errEmpty):
		case err != nil:
			unreadable = append(unreadable, Capture{File: name, Why: err.Error()})
		default:
			captures = append(captures, c)
		}
	}
	if len(captures)+len(unreadable) == 0 {
		return nil, nil, fmt.Errorf("%s: %w there (debug.capture_dir of a manifest makes a server keep them)", dir,
			ErrNoCaptures)
	}
	slices.SortFunc(captures, func(a, b Capture) int { return cmp.Compare(a.Count, b.Count) })
	return captures, unreadable, nil
}

// readCapture reads a capture file. The error for an empty file wraps errEmpty.
func readCapture(path string) (c Capture, err error) {
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
		return c, err
	case len(data) == 0:
		return c, fmt.Errorf("%s: %w", path, errEmpty)
	}
	if c, err = parseCapture(data); err != nil {
		return c, fmt.Errorf("%s: not a complete capture file: %w", path, err)
	}
	c.File = path
	return c, nil
}

func parseCapture(data []byte) (c Capture, err error) {
	meta, tensors, err := safetensors.Parse(data)
	if err != nil {
		return c, err
	}
	if meta["format"] != captureFormat {
		return c, fmt.Errorf("format %q, want %q", meta["format"], captureFormat)
	}
	header := tensors["header"].Data
	observation := tensors["observation"].Data
	reply := tensors["reply"].Data
	if sum := strconv.FormatUint(uint64(checksum(header, observation, reply)), 10); sum != meta["crc32c"] {
		return c, fmt.Errorf("crc32c is %s, want %s", sum, meta["crc32c"])
	}
	c = Capture{
		Observation: observation,
		Reply:       reply,
		ClientUUID:  meta["client_uuid"],
		Origin:      Origin{meta["model_sha256"], meta["onnxruntime"], meta["device"]},
		Outcome:     meta["outcome"],
		Why:         meta["why"],
		RTC:         meta["rtc"] == "true",
		Task:        meta["task"],
	}
	if c.Count, err = strconv.ParseUint(meta["count"], 10, 64); err != nil {
		return c, fmt.Errorf("count: %w", err)
	}
	c.Batch, _ = strconv.Atoi(meta["batch"]) // captures of older servers have no batch
	c.Row, _ = strconv.Atoi(meta["row"])
	if c.Controls, err = parseControls(meta); err != nil {
		return c, err
	}
	c.Header, err = wire.ParseHeader(header)
	return c, err
}

//rt:noalloc
func checksum(header, observation, reply []byte) uint32 {
	return crc32.Update(crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, observation), castagnoli, reply)
}
