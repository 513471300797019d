package server

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"edgert/wire"
)

const (
	captureFormat  = "lean-server capture 1"
	capturePattern = "request-*.safetensors"
	shotsWaiting   = 16 // captures that may wait for the disk, each with an observation
	// alignment of the data in a safetensors file.
	tensorAlign = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errTorn  = errors.New("not a whole capture file")
	errEmpty = errors.New("empty: the ring did not get that far")
)

// shot is one request as it came and what it got. Its buffers are reused.
type shot struct {
	turn
	attachment, body, reply []byte
}

// fill copies a turn in. It allocates only when something is larger than all
// before it in this slot.
//
//go:noinline
//rt:noalloc
func (s *shot) fill(t *turn, body, reply []byte) {
	s.turn = *t
	if cap(s.body) < len(body) {
		s.body = make([]byte, 0, roomFor(len(body))) //rt:allow grows to the largest observation, then never again
	}
	if cap(s.reply) < len(reply) {
		s.reply = make([]byte, 0, roomFor(len(reply))) //rt:allow grows to the size of a chunk, then never again
	}
	s.body, s.reply = append(s.body[:0], body...), append(s.reply[:0], reply...)
}

// captures is the bounded ring of captured requests: file count mod max holds
// the count-th request. The files stay open, so that writing one allocates
// nothing, and go on where the last run ended, so that a restart does not
// overwrite what led to it.
//
// Owner: the journal's goroutine.
type captures struct {
	dir   *os.File // locked
	files []*os.File
	count uint64 // of the next request
	text  []byte

	sha256 string // of the bundle; set before the worker runs
}

// openCaptures opens the ring of max files in dir, which it makes.
func openCaptures(dir string, max int) (*captures, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	handle, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	c := &captures{dir: handle}
	if err := syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another lean-server captures there: %w", dir, err), c.close())
	}
	names, err := filepath.Glob(filepath.Join(dir, capturePattern))
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	for _, name := range names {
		if found, err := readCapture(name); err == nil && found.count >= c.count {
			c.count = found.count + 1
		}
	}
	for i := range max {
		file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("request-%05d.safetensors", i)), os.O_WRONLY|os.O_CREATE, 0o640)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.files = append(c.files, file)
	}
	return c, nil
}

// close removes the files that were never written and closes the others.
func (c *captures) close() (err error) {
	if c == nil {
		return nil
	}
	for _, file := range c.files {
		if info, statErr := file.Stat(); statErr == nil && info.Size() == 0 {
			err = errors.Join(err, os.Remove(file.Name()))
		}
		err = errors.Join(err, file.Close())
	}
	return errors.Join(err, c.dir.Close())
}

// write puts one request into its file, in one write, and then cuts the file.
// What is left of an earlier request meanwhile does not pass the checksum.
func (c *captures) write(s *shot, ts time.Time) error {
	file := c.files[c.count%uint64(len(c.files))]
	s.attachment = wire.AppendHeader(s.attachment[:0], s.header)
	c.text = appendCapture(c.text[:0], s, c.sha256, c.count, ts)
	if _, err := file.WriteAt(c.text, 0); err != nil {
		return err
	}
	if err := file.Truncate(int64(len(c.text))); err != nil {
		return err
	}
	c.count++
	return nil
}

// appendCapture appends s as a safetensors file: `header`, `observation` and
// `reply` are bytes as they crossed the wire, the metadata says the rest.
//
//rt:noalloc
func appendCapture(dst []byte, s *shot, sha256 string, count uint64, ts time.Time) []byte {
	sum := crc32.Update(crc32.Update(crc32.Checksum(s.attachment, castagnoli), castagnoli, s.body), castagnoli, s.reply)
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // the header's length, below
	dst = append(dst, `{"__metadata__":{"format":"`+captureFormat+`","count":"`...)
	dst = strconv.AppendUint(dst, count, 10)
	dst = append(dst, `","ts":"`...)
	dst = ts.AppendFormat(dst, auditTime)
	dst = append(dst, `","crc32c":"`...)
	dst = strconv.AppendUint(dst, uint64(sum), 10)
	dst = append(dst, `","rtc":"`...)
	dst = strconv.AppendBool(dst, s.session.rtc)
	dst = appendField(dst, `","client_uuid":`, s.session.uuid)
	dst = appendField(dst, `,"session_id":`, s.session.id)
	dst = appendField(dst, `,"task":`, s.session.task)
	dst = appendField(dst, `,"model_sha256":`, sha256)
	dst = appendField(dst, `,"outcome":`, s.outcome.String())
	dst = appendField(dst, `,"why":`, s.why)
	dst = append(dst, '}')
	at := 0
	dst, at = appendTensor(dst, `,"header":`, at, s.attachment)
	dst, at = appendTensor(dst, `,"observation":`, at, s.body)
	dst, _ = appendTensor(dst, `,"reply":`, at, s.reply)
	dst = append(dst, '}')
	for (len(dst)-start)%tensorAlign != 0 {
		dst = append(dst, ' ')
	}
	binary.LittleEndian.PutUint64(dst[start:], uint64(len(dst)-start-8))
	dst = append(dst, s.attachment...)
	dst = append(dst, s.body...)
	return append(dst, s.reply...)
}

//rt:noalloc
func appendTensor(dst []byte, key string, at int, data []byte) (out []byte, end int) {
	dst = append(append(dst, key...), `{"dtype":"U8","shape":[`...)
	dst = strconv.AppendInt(dst, int64(len(data)), 10)
	dst = strconv.AppendInt(append(dst, `],"data_offsets":[`...), int64(at), 10)
	dst = strconv.AppendInt(append(dst, ','), int64(at+len(data)), 10)
	return append(dst, `]}`...), at + len(data)
}

// captured is a capture file that was read again.
type captured struct {
	file        string
	count       uint64
	header      wire.Header
	observation []byte
	reply       []byte // empty when outcome is not ok or unsent
	uuid        string
	sha256      string
	outcome     string
	why         string
	rtc         bool
}

// readCapture reads a file. Its errors wrap errEmpty or errTorn, unless reading
// fails.
func readCapture(path string) (c captured, err error) {
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
		return c, err
	case len(data) == 0:
		return c, fmt.Errorf("%s: %w", path, errEmpty)
	}
	if c, err = parseCapture(data); err != nil {
		return c, fmt.Errorf("%s: %w: %w", path, errTorn, err)
	}
	c.file = path
	return c, nil
}

func parseCapture(data []byte) (c captured, err error) {
	if len(data) < 8 {
		return c, fmt.Errorf("%d bytes", len(data))
	}
	size := binary.LittleEndian.Uint64(data)
	if size > uint64(len(data)-8) {
		return c, fmt.Errorf("header of %d bytes in a file of %d", size, len(data))
	}
	type tensor struct {
		DType   string   `json:"dtype"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	var head struct {
		Metadata                   map[string]string `json:"__metadata__"`
		Header, Observation, Reply tensor
	}
	if err := json.Unmarshal(data[8:8+size], &head); err != nil {
		return c, err
	}
	meta, body := head.Metadata, data[8+size:]
	if meta["format"] != captureFormat {
		return c, fmt.Errorf("format %q, want %q", meta["format"], captureFormat)
	}
	at, parts := int64(0), [3][]byte{}
	for i, t := range []tensor{head.Header, head.Observation, head.Reply} {
		if t.DType != "U8" || t.Offsets[0] != at || t.Offsets[1] < at || t.Offsets[1] > int64(len(body)) {
			return c, fmt.Errorf("tensor %d: %s at %v of %d", i, t.DType, t.Offsets, len(body))
		}
		parts[i], at = body[at:t.Offsets[1]], t.Offsets[1]
	}
	if at != int64(len(body)) {
		return c, fmt.Errorf("%d bytes of data, want %d", len(body), at)
	}
	if sum := strconv.FormatUint(uint64(crc32.Checksum(body, castagnoli)), 10); sum != meta["crc32c"] {
		return c, fmt.Errorf("crc32c is %s, want %s", sum, meta["crc32c"])
	}
	c = captured{
		observation: parts[1], reply: parts[2], uuid: meta["client_uuid"], sha256: meta["model_sha256"],
		outcome: meta["outcome"], why: meta["why"], rtc: meta["rtc"] == "true",
	}
	if c.count, err = strconv.ParseUint(meta["count"], 10, 64); err != nil {
		return c, fmt.Errorf("count: %w", err)
	}
	c.header, err = wire.ParseHeader(parts[0])
	return c, err
}
