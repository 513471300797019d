package record

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/foxglove/mcap/go/mcap"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	chunkBytes = 512 << 10      // size in bytes at which a chunk ends; its last message may exceed it
	chunkRoom  = 2 * chunkBytes // largest size of a chunk in bytes: half a MiB, and a picture of half a MiB at its end
	chunkTime  = time.Second    // a chunk also ends at this age: a power cut loses no more than one chunk
	fileBytes  = 256 << 20      // largest size of a file in mode All, in bytes
	fileShare  = 4              // a file has at most this fraction of the folder's size: 1/fileShare
	zstdWindow = 256 << 10      // bytes of history that the compression uses
	fileBuffer = 64 << 10
	writePoll  = 50 * time.Millisecond

	afterSave   = 5 * time.Second  // time from the last incident of a save until the save ends
	longestSave = 30 * time.Second // longest time from the first incident of a save until the save ends
	saveEvery   = time.Minute      // shortest time between saves, except at a person's request and at the end
	rarestSave  = 8 * time.Minute  // longest time between saves; it doubles at each save that comes too soon
	retryEvery  = 2 * time.Second  // time until the next try after a failed write
	retryAtMost = 8 * time.Second  // longest time until the next try: memory has only the pictures of pictureSpan
)

// Messages from between two saves are still in memory at the second save.
const _ = uint(messageSpan - rarestSave - longestSave)

// recordAll is the reason (why) of a file in mode All.
const recordAll = "--record all"

// writer is the state of the writing thread. No other thread waits for it.
type writer struct {
	r        *Recorder
	folder   folder
	create   func(id string, t time.Time) (*os.File, error)
	zstd     *zstd.Encoder // nil before the first file
	room     []byte        // entries that the writer has taken out of a window
	buffer   *bufio.Writer // buffer of the open file
	stamped  []byte        // a message with a corrected time of day
	messages cursor
	pictures cursor

	file     *file    // nil: no open file
	first    string   // the run's first file in the order of names; "": no file yet
	reserved *os.File // lock that protects the run's files from other recorders; nil: no protection
	total    int64    // bytes of all files in the folder
	limit    int64    // maximum of total
	unlisted int64    // bytes written since the folder was listed
	until    rt.Instant
	begun    rt.Instant
	closedAt rt.Instant // time of the last save; 0: there was no save
	every    time.Duration
	saving   bool // mode Ring: a save has begun, and its file is not closed yet
	retry    time.Duration
	retryAt  rt.Instant

	reserveAt rt.Instant // time of the next try to reserve; 0: no try has failed
}

func (w *writer) init(r *Recorder) {
	w.r, w.folder = r, folder{r.cfg.Dir, r.cfg.Size, diskOf}
	w.create, w.every = w.folder.create, saveEvery
}

// Write writes the memory's content into files, as the mode requires, until stop is set. Then it writes the content
// that remains and returns.
//
// Owner: one thread, which may block on the disk.
func (r *Recorder) Write(stop *atomic.Bool) {
	w := &r.writer
	for {
		ended := stop.Load()
		now := r.cfg.Clock.Now()
		if err := w.step(now, ended); err != nil {
			w.fail(now, err, ended)
		}
		if ended {
			w.end()
			return
		}
		r.cfg.Clock.SleepUntil(r.cfg.Clock.Now().Add(writePoll))
	}
}

func (w *writer) step(now rt.Instant, ended bool) error {
	if w.file == nil {
		why := w.due(now, ended)
		if why == "" {
			return nil
		}
		if w.r.cfg.Mode == Ring && !w.saving {
			// entries that the memory had dropped before the save do not count as lost
			w.r.messages.catchUp(&w.messages)
			w.r.pictures.catchUp(&w.pictures)
			w.saving = true
		}
		if err := w.open(now, why); err != nil {
			return err
		}
	}
	w.reserve(now)
	if w.r.asked.Swap(nil) != nil {
		w.until = min(now.Add(afterSave), w.begun.Add(longestSave))
	}
	if err := w.drain(); err != nil {
		return err
	}
	if w.file != nil && (ended || w.r.cfg.Mode == Ring && now >= w.until) { // drain may have closed a full file
		return w.close(now)
	}
	return nil
}

// due returns the reason for beginning a file; empty: no file is due.
func (w *writer) due(now rt.Instant, ended bool) (why string) {
	if now < w.retryAt && !ended {
		return ""
	}
	if w.r.cfg.Mode == All {
		if w.r.messages.waits(&w.messages)+w.r.pictures.waits(&w.pictures) == 0 {
			return ""
		}
		return recordAll
	}
	asked := w.r.asked.Load()
	if asked == nil || !ended && !w.r.urgent.Load() && w.closedAt != 0 && now.Sub(w.closedAt) < w.every {
		return ""
	}
	return *asked
}

// open begins a file.
func (w *writer) open(now rt.Instant, why string) error {
	if w.room == nil {
		w.room = make([]byte, scratchBytes+entryHeader+entryAlign)
		w.buffer = bufio.NewWriterSize(nil, fileBuffer)
	}
	if w.zstd == nil {
		var err error
		if w.zstd, err = newCompressor(); err != nil {
			return err
		}
	}
	if err := w.clear(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	wall := w.r.setWall()
	f, err := w.create(w.r.cfg.ID, time.Unix(0, int64(now)+wall))
	if err != nil {
		return err
	}
	file, err := newFile(f, w, wall, why)
	if err != nil {
		_ = child.Unlock(f)
		os.Remove(f.Name())
		return err
	}
	name := filepath.Base(f.Name())
	earlier := w.first == "" || name < w.first // the clock may have been set back
	if w.file = file; earlier {
		w.first = name
	}
	if w.reserved != nil && (earlier || !exists(w.reserved)) { // the folder may have been emptied
		release(w.reserved)
		w.reserved = nil
	}
	if err := w.folder.sync(); err != nil {
		return err
	}
	ring := w.r.cfg.Mode == Ring
	if ring {
		w.setPace(now)
		w.r.counts.saves.Add(1)
	}
	w.r.asked.Store(nil)
	w.r.urgent.Store(false)
	w.begun, w.until = now, now.Add(afterSave)
	w.r.counts.files.Add(1)
	if w.r.counts.failing.Swap(nil) != nil || ring {
		w.r.cfg.Report(Report{File: f.Name(), Why: why})
	}
	return nil
}

// setPace sets the time until the next save. A robot that starves for weeks would otherwise wear
// out its SD card and displace the record of the starvation's beginning.
func (w *writer) setPace(now rt.Instant) {
	switch since := now.Sub(w.closedAt); {
	case w.closedAt == 0 || w.r.urgent.Load():
	case since < 2*w.every:
		w.every = min(2*w.every, rarestSave)
	default:
		w.every = saveEvery
	}
}

// drain writes the memory's content.
func (w *writer) drain() error {
	counts := &w.r.counts
	if err := w.drainWindow(w.r.messages, &w.messages, &counts.lost, &counts.written); err != nil {
		return err
	}
	return w.drainWindow(w.r.pictures, &w.pictures, &counts.lostPictures, &counts.pictures)
}

func (w *writer) drainWindow(from *window, c *cursor, lost, done *atomic.Uint64) error {
	for {
		before := c.lost
		n := from.read(c, w.room)
		lost.Add(c.lost - before)
		if n == 0 {
			return nil
		}
		if err := w.write(w.room[:n], c, done); err != nil {
			return err
		}
	}
}

// write writes entries, which the cursor c has read, until the first failure.
func (w *writer) write(entries []byte, c *cursor, done *atomic.Uint64) error {
	for number := c.batch + 1; ; number++ {
		channel, at, message, rest, ok := nextEntry(entries)
		if !ok {
			return nil
		}
		entries = rest
		before := w.r.counts.bytes.Load()
		err := w.put(channel, at, message)
		flushed := w.r.counts.bytes.Load() != before
		if err == nil || flushed {
			done.Add(1)
			c.open++
		}
		if flushed { // all messages up to this one are on the disk
			w.keep()
			c.kept = number
		}
		if err != nil {
			return err
		}
	}
}

// keep notes that all messages of the file are on the disk.
func (w *writer) keep() {
	w.messages.keep()
	w.pictures.keep()
}

func (w *writer) put(channel uint16, at rt.Instant, message []byte) error {
	if w.file == nil {
		if err := w.open(w.r.cfg.Clock.Now(), recordAll); err != nil {
			return err
		}
	}
	f := w.file
	before := f.written
	// the message may have been encoded before the time of day was set
	if channel >= channelCamera || channel == channelLog {
		w.stamped = restamp(w.stamped[:0], message, int64(at)+f.wall)
		message = w.stamped
	}
	if err := f.write(channel, at, message, w.r.cfg.Clock.Now()); err != nil || f.written == before {
		return err
	}
	w.total += f.written - before
	w.unlisted += f.written - before
	w.r.counts.bytes.Add(uint64(f.written - before))
	if w.total+chunkRoom > w.limit || w.unlisted > w.folder.size/listShare {
		if err := w.clear(); err != nil {
			return err
		}
	}
	if w.r.cfg.Mode == All && f.written >= min(fileBytes, w.folder.size/fileShare) {
		return w.close(w.r.cfg.Clock.Now())
	}
	return nil
}

// clear makes room for another chunk.
func (w *writer) clear() (err error) {
	var deleted []string
	w.unlisted = 0
	w.total, w.limit, deleted, err = w.folder.makeRoom(chunkRoom, func(name string) bool {
		return w.r.keepOwn.Load() && w.own(name)
	})
	w.r.counts.deleted.Add(uint64(len(deleted)))
	for _, name := range deleted {
		if w.own(name) {
			w.r.cfg.Report(Report{File: filepath.Join(w.folder.dir, name), Why: Deleted})
		}
	}
	return err
}

// own reports whether this run has begun the file.
func (w *writer) own(name string) bool { return w.first != "" && ofRun(w.first, name) }

// reserve protects the run's files from the folder's other recorders, if Keep was called. If the reservation fails,
// the recorder continues to record and tries again later.
func (w *writer) reserve(now rt.Instant) {
	if w.reserved != nil || w.first == "" || !w.r.keepOwn.Load() || now < w.reserveAt {
		return
	}
	var err error
	if w.reserved, err = w.folder.reserve(w.first); err == nil {
		return
	}
	if w.reserveAt == 0 {
		w.r.cfg.Report(Report{File: filepath.Join(w.folder.dir, w.first), Why: Unreserved, Err: err})
	}
	w.reserveAt = now.Add(retryEvery)
}

func (w *writer) close(now rt.Instant) error {
	f := w.file
	before := f.written
	if err := f.close(); err != nil {
		return err
	}
	w.file, w.closedAt = nil, now
	w.saving = false
	w.retry = 0
	_ = child.Unlock(f.os)
	w.r.counts.bytes.Add(uint64(f.written - before))
	w.r.cfg.Closed()
	w.keep()
	return nil
}

// fail gives up a file that the disk no longer accepts, and leaves it for the next start to repair. The messages that
// are not on the disk will be in the next file, if they are still in memory then. So fail cuts the file after the
// last chunk that is on the disk: a chunk whose write has failed may be whole, and no message may be in two files. It
// removes a file without a chunk, and doubles the wait before each next try, up to retryAtMost. At the end of the run
// no file follows, and a chunk that may be whole stays.
func (w *writer) fail(now rt.Instant, err error, ended bool) {
	w.r.counts.written.Add(-w.messages.open)
	w.r.counts.pictures.Add(-w.pictures.open)
	w.r.counts.lost.Add(-w.messages.lost)
	w.r.counts.lostPictures.Add(-w.pictures.lost)
	w.r.messages.rewind(&w.messages)
	w.r.pictures.rewind(&w.pictures)
	wait := retryEvery
	if f := w.file; f != nil {
		info, failed := f.os.Stat()
		if w.r.cfg.Mode == Ring {
			w.r.Save(&f.why, true)
		}
		switch {
		case ended && failed == nil && info.Size() > f.written:
		case f.chunks == 0:
			os.Remove(f.os.Name())
			wait = min(max(retryEvery, 2*w.retry), retryAtMost)
			err = fmt.Errorf("%w; the next file comes in %v", err, wait)
		default:
			_ = f.os.Truncate(f.written)
		}
		_ = child.Unlock(f.os)
		w.file = nil
	}
	w.retry, w.retryAt = wait, now.Add(wait)
	text := err.Error()
	old := w.r.counts.failing.Swap(&text)
	if old == nil || nameTime.ReplaceAllString(*old, "") != nameTime.ReplaceAllString(text, "") {
		w.r.cfg.Report(Report{Err: err})
	}
}

// nameTime matches the time in the name of a file. Each try has a file of its own, so fail leaves the time out when it
// compares two errors.
var nameTime = regexp.MustCompile(`\d{8}T\d{6}\.\d{3}Z`)

// end counts, after the last step, the messages that could not be written to a failing disk.
func (w *writer) end() {
	if w.r.cfg.Mode == All || w.saving {
		w.r.counts.lost.Add(w.r.messages.waits(&w.messages))
		w.r.counts.lostPictures.Add(w.r.pictures.waits(&w.pictures))
	}
	release(w.reserved)
}

// file is an open MCAP file.
type file struct {
	os      *os.File
	buffer  *bufio.Writer
	mcap    *mcap.Writer
	options *mcap.WriterOptions
	wall    int64
	why     string

	chunkBegan rt.Instant // when the open chunk began; 0: the chunk is empty
	chunks     int        // number of chunks on disk
	written    int64      // bytes on the disk
	sequence   [channelCamera + MaxCameras]uint32
}

// newFile begins a file with its header, the run's metadata, the schemas and the channels.
func newFile(f *os.File, w *writer, wall int64, why string) (*file, error) {
	w.buffer.Reset(f)
	out := &file{os: f, buffer: w.buffer, wall: wall, why: why}
	var err error
	if out.mcap, out.options, err = newMCAP(out.buffer, w.zstd); err != nil {
		return nil, err
	}
	metadata := map[string]string{"clock_offset_ns": strconv.FormatInt(wall, 10), "why": why}
	maps.Copy(metadata, *w.r.run.Load())
	if err := out.mcap.WriteMetadata(&mcap.Metadata{Name: RunMetadata, Metadata: metadata}); err != nil {
		return nil, err
	}
	for channel := channelTick; channel < channelCamera+uint16(len(w.r.cfg.Cameras)); channel++ {
		schema := min(channel, channelCamera)
		if channel <= channelCamera {
			if err := out.mcap.WriteSchema(&mcap.Schema{
				ID:       schema,
				Name:     channels[schema-1].schema,
				Encoding: "protobuf",
				Data:     descriptorSet(schema),
			}); err != nil {
				return nil, err
			}
		}
		if err := out.mcap.WriteChannel(&mcap.Channel{
			ID:              channel,
			SchemaID:        schema,
			Topic:           topicOf(channel, w.r.cfg.Cameras),
			MessageEncoding: "protobuf",
		}); err != nil {
			return nil, err
		}
	}
	return out, out.flush()
}

// RunMetadata is the name of the MCAP metadata record that describes the run.
const RunMetadata = "run"

// newCompressor returns a compressor for chunks that uses little memory and no thread of its own.
func newCompressor() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(zstdWindow))
}

// newMCAP returns the MCAP library's writer with the settings of all our files: chunks, indexes and CRCs. The chunks
// are compressed with zstd, because half of the ticks' content repeats. Compression does not shrink a picture, but
// takes less time than the picture's checksum.
func newMCAP(to *bufio.Writer, compressor *zstd.Encoder) (*mcap.Writer, *mcap.WriterOptions, error) {
	options := &mcap.WriterOptions{
		IncludeCRC:  true,
		Chunked:     true,
		ChunkSize:   chunkBytes,
		Compression: mcap.CompressionZSTD,
		Compressor:  mcap.NewCustomCompressor(mcap.CompressionZSTD, compressor),
	}
	w, err := mcap.NewWriter(to, options)
	if err != nil {
		return nil, nil, err
	}
	return w, options, w.WriteHeader(&mcap.Header{Profile: Profile})
}

// write adds a message, and puts the chunk on the disk when it is full or old.
func (f *file) write(channel uint16, at rt.Instant, message []byte, now rt.Instant) error {
	if f.chunkBegan == 0 {
		f.chunkBegan = now
	}
	f.options.ChunkSize = chunkBytes
	if now.Sub(f.chunkBegan) >= chunkTime {
		f.options.ChunkSize = 0 // the library reads this field for each message: this message ends the chunk
	}
	stamp := uint64(int64(at) + f.wall)
	if err := f.mcap.WriteMessage(&mcap.Message{
		ChannelID:   channel,
		Sequence:    f.sequence[channel],
		LogTime:     stamp,
		PublishTime: stamp,
		Data:        message,
	}); err != nil {
		return err
	}
	f.sequence[channel]++
	if n := len(f.mcap.ChunkIndexes); n > f.chunks {
		if err := f.flush(); err != nil {
			return err
		}
		f.chunks, f.chunkBegan = n, 0
	}
	return nil
}

// flush forces all bytes that the library has written to the disk.
func (f *file) flush() error {
	if err := f.buffer.Flush(); err != nil {
		return err
	}
	var is unix.Stat_t
	if err := unix.Fstat(int(f.os.Fd()), &is); err != nil {
		return err
	}
	if is.Nlink == 0 {
		return errDeleted // the disk would accept all data, but no reader could open the file
	}
	if err := f.os.Sync(); err != nil {
		return err
	}
	f.written = int64(f.mcap.Offset())
	return nil
}

var errDeleted = errors.New("the file that was being written is deleted")

// close ends the file with its indexes.
func (f *file) close() error {
	if err := f.mcap.Close(); err != nil {
		return fmt.Errorf("%s: %w", f.os.Name(), err)
	}
	return f.flush()
}
