package record

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/foxglove/mcap/go/mcap"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"edgert/rt"
)

const (
	chunkBytes = 512 << 10      // a chunk ends with the message that makes it larger
	chunkRoom  = 2 * chunkBytes // so what it may take, with a picture of half a MiB at its end
	chunkTime  = time.Second    // or older: a power cut loses no more
	fileBytes  = 256 << 20      // of a file of --record all
	fileShare  = 4              // and at most this part of the folder's size
	zstdWindow = 256 << 10      // bytes that the compression looks back
	fileBuffer = 64 << 10       //
	writePoll  = 50 * time.Millisecond

	afterSave   = 5 * time.Second  // is written of what comes behind an event
	longestSave = 30 * time.Second // is written behind the first of many
	saveEvery   = time.Minute      // at most, but for what a person asks for and the end
	rarestSave  = 8 * time.Minute  // each save that comes back soon doubles the time to the next, up to this
	retryEvery  = 2 * time.Second  // a disk that takes nothing is tried again
)

// What happens between two saves is in memory still when the second comes.
const _ = uint(messageSpan - rarestSave - longestSave)

// recordAll is why a file of that mode is begun.
const recordAll = "--record all"

// writer is the thread that writes. Nothing waits for it.
type writer struct {
	r        *Recorder
	folder   folder
	create   func(id string, t time.Time) (*os.File, error)
	zstd     *zstd.Encoder // nil before the first file
	room     []byte        // entries taken out of the windows
	buffer   *bufio.Writer // the open file's
	stamped  []byte        // a message with another time of day
	messages cursor
	pictures cursor

	file     *file    // nil: none is open
	first    string   // the first of the run's files by name; "": there is none
	reserved *os.File // keeps the run's files from others; nil: they may go
	total    int64    // bytes of the folder
	limit    int64    // what total may become
	unlisted int64    // written since the folder was listed
	until    rt.Instant
	begun    rt.Instant
	closedAt rt.Instant // 0: nothing was saved yet
	every    time.Duration
	retryAt  rt.Instant

	reserveAt rt.Instant // when the next reservation is tried; 0: none has failed
}

func (w *writer) init(r *Recorder) {
	w.r, w.folder = r, folder{r.cfg.Dir, r.cfg.Size, diskOf}
	w.create, w.every = w.folder.create, saveEvery
}

// Write writes what is in memory into files, as the mode wants it, until stop is set and
// what is there then is written. First it repairs what an earlier run left torn.
//
// Owner: one thread, which may wait for the disk as long as the disk takes.
func (r *Recorder) Write(stop *atomic.Bool) {
	w := &r.writer
	w.repair(stop)
	for {
		ended := stop.Load()
		now := r.cfg.Clock.Now()
		if err := w.step(now, ended); err != nil {
			w.fail(now, err)
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
	if ended || w.r.cfg.Mode == Ring && now >= w.until {
		return w.close(now)
	}
	return nil
}

// due says why a file is to be begun; empty: none is.
func (w *writer) due(now rt.Instant, ended bool) (why string) {
	if now < w.retryAt && !ended {
		return ""
	}
	if w.r.cfg.Mode == All {
		if w.waiting() == 0 {
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

func (w *writer) waiting() uint64 {
	n := w.r.messages.waits(&w.messages)
	if w.r.pictures != nil {
		n += w.r.pictures.waits(&w.pictures)
	}
	return n
}

// open begins a file. What memory has lost before is not lost to a file that was not
// asked for.
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
		f.Close()
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
	if w.r.cfg.Mode == Ring {
		w.catchUp()
		w.setPace(now)
	}
	w.r.asked.Store(nil)
	w.r.urgent.Store(false)
	w.begun, w.until = now, now.Add(afterSave)
	w.r.counts.files.Add(1)
	if w.r.cfg.Mode == Ring {
		w.r.counts.saves.Add(1)
	}
	if w.r.counts.failing.Swap(nil) != nil || w.r.cfg.Mode == Ring {
		w.r.cfg.Report(Report{File: f.Name(), Why: why})
	}
	return nil
}

// setPace says when the next save may come. A robot that starves for weeks would write
// more than its SD card likes, and push the record of what began it out of the folder.
func (w *writer) setPace(now rt.Instant) {
	switch since := now.Sub(w.closedAt); {
	case w.closedAt == 0 || w.r.urgent.Load():
	case since < 2*w.every:
		w.every = min(2*w.every, rarestSave)
	default:
		w.every = saveEvery
	}
}

// catchUp passes over what gave way before anybody asked for it.
func (w *writer) catchUp() {
	w.r.messages.catchUp(&w.messages)
	if w.r.pictures != nil {
		w.r.pictures.catchUp(&w.pictures)
	}
}

// drain writes what is in memory.
func (w *writer) drain() error {
	for _, source := range []struct {
		window *window
		cursor *cursor
		lost   *atomic.Uint64
		done   *atomic.Uint64
	}{
		{w.r.messages, &w.messages, &w.r.counts.lost, &w.r.counts.written},
		{w.r.pictures, &w.pictures, &w.r.counts.lostPictures, &w.r.counts.pictures},
	} {
		if source.window == nil {
			continue
		}
		for {
			n := source.window.read(source.cursor, w.room)
			source.lost.Add(source.cursor.lost)
			source.cursor.lost = 0
			if n == 0 {
				break
			}
			if err := w.write(w.room[:n], source.lost, source.done); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes entries; those that the file does not take are lost.
func (w *writer) write(entries []byte, lost, done *atomic.Uint64) error {
	var failed error
	for {
		channel, at, message, rest, ok := nextEntry(entries)
		if !ok {
			return failed
		}
		entries = rest
		if failed == nil {
			failed = w.put(channel, at, message)
		}
		if failed != nil {
			lost.Add(1)
		} else {
			done.Add(1)
		}
	}
}

func (w *writer) put(channel uint16, at rt.Instant, message []byte) error {
	if w.file == nil {
		if err := w.open(w.r.cfg.Clock.Now(), recordAll); err != nil {
			return err
		}
	}
	f := w.file
	before := f.written
	if channel >= channelCamera || channel == channelLog { // encoded before the time of day was set, perhaps
		w.stamped = restamp(w.stamped[:0], message, int64(at)+f.wall)
		message = w.stamped
	}
	if err := f.write(channel, at, message, w.r.cfg.Clock.Now()); err != nil {
		return err
	}
	if f.written == before {
		return nil
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
	w.total, w.limit, deleted, err = w.folder.makeRoom(chunkRoom, func(name string) bool { return w.r.keepOwn.Load() && w.own(name) })
	w.r.counts.deleted.Add(uint64(len(deleted)))
	for _, name := range deleted {
		if w.own(name) {
			w.r.cfg.Report(Report{File: filepath.Join(w.folder.dir, name), Why: Deleted})
		}
	}
	return err
}

// own reports whether a file is one that this run has begun.
func (w *writer) own(name string) bool { return w.first != "" && ofRun(w.first, name) }

// reserve keeps what this run has begun from the folder's other recorders, where that is
// to stay. One that cannot be made is no reason not to record; it is tried again.
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
	w.file, w.closedAt = nil, now
	before := f.written
	err := f.close()
	w.r.counts.bytes.Add(uint64(max(0, f.written-before)))
	w.r.cfg.Closed()
	return err
}

// fail leaves a file that takes nothing more, for the next start to repair. One without a
// chunk has nothing to repair: a disk that stays full would get another every two seconds.
func (w *writer) fail(now rt.Instant, err error) {
	if w.file != nil {
		w.file.os.Close()
		if w.file.chunks == 0 {
			os.Remove(w.file.os.Name())
		}
		w.file = nil
	}
	w.retryAt = now.Add(retryEvery)
	text := err.Error()
	if old := w.r.counts.failing.Swap(&text); old == nil || *old != text {
		w.r.cfg.Report(Report{Err: err})
	}
}

// end is behind the last step.
func (w *writer) end() {
	w.countUnwritten()
	release(w.reserved)
}

// countUnwritten counts what a disk that took nothing has cost at the end.
func (w *writer) countUnwritten() {
	if w.r.cfg.Mode == Ring {
		if w.r.asked.Load() == nil {
			return
		}
		w.catchUp()
	}
	w.r.counts.lost.Add(w.r.messages.waits(&w.messages))
	if w.r.pictures != nil {
		w.r.counts.lostPictures.Add(w.r.pictures.waits(&w.pictures))
	}
}

// file is one MCAP file that is being written.
type file struct {
	os      *os.File
	buffer  *bufio.Writer
	mcap    *mcap.Writer
	options *mcap.WriterOptions
	wall    int64
	cameras []string

	chunkBegan rt.Instant // 0: nothing is in the chunk
	chunks     int        // on disk
	written    int64      // on disk, or given to it
	sequence   [channelCamera + MaxCameras]uint32
}

// newFile begins a file: header, what the run is, schemas and channels.
func newFile(f *os.File, w *writer, wall int64, why string) (*file, error) {
	w.buffer.Reset(f)
	out := &file{os: f, buffer: w.buffer, wall: wall, cameras: w.r.cfg.Cameras}
	var err error
	if out.mcap, out.options, err = newMCAP(out.buffer, w.zstd); err != nil {
		return nil, err
	}
	metadata := map[string]string{"clock_offset_ns": strconv.FormatInt(wall, 10), "why": why}
	for k, v := range *w.r.run.Load() {
		metadata[k] = v
	}
	if err := out.mcap.WriteMetadata(&mcap.Metadata{Name: RunMetadata, Metadata: metadata}); err != nil {
		return nil, err
	}
	for channel := channelTick; channel < channelCamera+uint16(len(out.cameras)); channel++ {
		schema := min(channel, channelCamera)
		if channel <= channelCamera {
			if err := out.mcap.WriteSchema(&mcap.Schema{ID: schema, Name: channels[schema-1].schema, Encoding: "protobuf", Data: descriptorSet(schema)}); err != nil {
				return nil, err
			}
		}
		if err := out.mcap.WriteChannel(&mcap.Channel{ID: channel, SchemaID: schema, Topic: topicOf(channel, out.cameras), MessageEncoding: "protobuf"}); err != nil {
			return nil, err
		}
	}
	return out, out.flush()
}

// RunMetadata is the name of the metadata that says what the run is.
const RunMetadata = "run"

// newCompressor compresses chunks in little memory, on the thread that writes.
func newCompressor() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(zstdWindow))
}

// newMCAP is the library's writer as all our files are written: in chunks, with indexes
// and CRCs. zstd, because half of what ticks say repeats; it costs a picture, which does
// not shrink, less than its checksum.
func newMCAP(to *bufio.Writer, compressor *zstd.Encoder) (*mcap.Writer, *mcap.WriterOptions, error) {
	options := &mcap.WriterOptions{
		IncludeCRC: true, Chunked: true, ChunkSize: chunkBytes, Compression: mcap.CompressionZSTD,
		Compressor: mcap.NewCustomCompressor(mcap.CompressionZSTD, compressor),
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
		f.options.ChunkSize = 0 // the library looks at it with each message: this one ends the chunk
	}
	stamp := uint64(int64(at) + f.wall)
	if err := f.mcap.WriteMessage(&mcap.Message{ChannelID: channel, Sequence: f.sequence[channel], LogTime: stamp, PublishTime: stamp, Data: message}); err != nil {
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

// flush puts all that the library has written on the disk.
func (f *file) flush() error {
	if err := f.buffer.Flush(); err != nil {
		return err
	}
	f.written = int64(f.mcap.Offset())
	var is unix.Stat_t
	if err := unix.Fstat(int(f.os.Fd()), &is); err != nil {
		return err
	}
	if is.Nlink == 0 {
		return errDeleted // the disk would take all of it, and nobody find it
	}
	return f.os.Sync()
}

var errDeleted = errors.New("the file that was being written is deleted")

// close ends the file with its indexes.
func (f *file) close() error {
	defer f.os.Close()
	if err := f.mcap.Close(); err != nil {
		return fmt.Errorf("%s: %w", f.os.Name(), err)
	}
	return f.flush()
}
