package record

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/foxglove/mcap/go/mcap"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/rt"
)

// Open opens a record or an audit file. It accepts only a regular file: opening a pipe would block and ignore all
// signals, and a device may have no end.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s is no regular file: name one", path))
	}
	return f, nil
}

// Limits for reading, since a file may come from any source.
const (
	maxRecord = 64 << 20
	maxChunk  = 64 << 20
)

var (
	errTorn  = errors.New("it is cut or damaged")             // the readable part of the file ends here
	errBegun = errors.New("a run has just begun to write it") // the run has not yet written a message
)

// ErrEnough is the error with which a func of a Visitor ends the reading of a file. Read returns no error then.
var ErrEnough = errors.New("seen enough")

// Info describes a file.
type Info struct {
	Run  map[string]string // metadata of the run
	Wall int64             // Unix time of instant 0, in ns
	Torn bool              // the file has no valid end; Read has visited its readable part

	Cause error // reason why the rest of a torn file cannot be read

	Repaired bool // the file had no end, and a later start has completed it
	Writing  bool // the file is torn because a run still writes it; its end will follow
	Damaged  bool // the file is torn although it has its end: a part before the end cannot be read
}

// readError means that reading failed before the end of a file, because of the disk or the network.
// The file may have more data.
type readError struct{ err error }

func (e readError) Error() string { return "it cannot be read to its end: " + e.err.Error() }

func (e readError) Unwrap() error { return e.err }

// Visitor receives the messages of a file in the order in which they were written. The instants of the messages may
// be out of order by up to a second. Messages whose func is nil are skipped. An argument is lent until the func
// returns.
type Visitor struct {
	Begin   func(*Info) error // before the first message, with the metadata of the run
	Tick    func(*Tick) error
	Request func(*Request) error
	Sent    func(*Sent) error
	Chunk   func(*Chunk) error
	Session func(*Session) error
	Event   func(*Event) error
	Episode func(*Episode) error
	Image   func(*Image) error
}

// and returns a visitor that calls the funcs of both for the messages of Recorder.Visit.
func (v Visitor) and(w Visitor) Visitor {
	return Visitor{
		Tick:    both(v.Tick, w.Tick),
		Request: both(v.Request, w.Request),
		Sent:    both(v.Sent, w.Sent),
		Chunk:   both(v.Chunk, w.Chunk),
		Event:   both(v.Event, w.Event),
		Episode: both(v.Episode, w.Episode),
	}
}

func both[M any](f, g func(*M) error) func(*M) error {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(m *M) error {
		_ = f(m) // Visit ignores the visitor's errors
		return g(m)
	}
}

// ReadFile opens a file with Open and visits its messages with Read.
func ReadFile(name string, v Visitor) (info Info, err error) {
	f, err := Open(name)
	if err != nil {
		return info, err
	}
	defer f.Close()
	if info, err = Read(f, v); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return info, err
}

// Read visits the messages of a file. A torn file is no error. A file that the disk cannot read to
// its end is an error, and so is a file with an invalid camera name (CheckCamera).
func Read(r io.Reader, v Visitor) (info Info, err error) {
	info.Run = map[string]string{}
	topics := map[uint16]string{}
	holds := false
	ended, err := scan(r, func(token mcap.TokenType, record []byte) error {
		switch token {
		case mcap.TokenHeader:
			h, err := mcap.ParseHeader(record)
			if err == nil && h.Profile != Profile {
				err = fmt.Errorf("a file of profile %q, want %q: a record that edge-rt has written", h.Profile, Profile)
			}
			return err
		case mcap.TokenMetadata:
			return info.metadata(record)
		case mcap.TokenChannel:
			c, err := mcap.ParseChannel(record)
			if err != nil {
				return err
			}
			topics[c.ID] = c.Topic
			if name, camera := strings.CutPrefix(c.Topic, CameraTopic); camera {
				return CheckCamera(name)
			}
			return nil
		case mcap.TokenMessage:
			m, err := mcap.ParseMessage(record)
			if err == nil && len(info.Run) == 0 {
				err = info.find(r)
			}
			if err == nil && !holds && v.Begin != nil {
				err = v.Begin(&info)
			}
			if holds = true; err != nil {
				return err
			}
			return v.message(topics[m.ChannelID], m, info.Wall)
		}
		return nil
	})
	if errors.Is(err, ErrEnough) {
		return info, nil
	}
	f, ok := r.(*os.File)
	info.Torn = !ended
	info.Damaged = info.Torn && ok && hasEnd(f)
	if errors.Is(err, errTorn) {
		info.Cause, err = err, nil
		if info.Writing = ok && Written(f); info.Writing && !holds {
			info.Cause = errBegun
		}
	}
	return info, err
}

// find looks for the metadata of the run after the messages, where another program may have written it.
func (i *Info) find(r io.Reader) error {
	if file, ok := r.(io.ReadSeeker); ok {
		at, err := file.Seek(0, io.SeekCurrent)
		if err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err != nil {
			return readError{err}
		}
		if _, err := scan(file, func(token mcap.TokenType, record []byte) error {
			if token == mcap.TokenMetadata {
				return i.metadata(record)
			}
			return nil
		}); err != nil && !errors.Is(err, errTorn) {
			return err
		}
		if _, err := file.Seek(at, io.SeekStart); err != nil {
			return readError{err}
		}
	}
	if len(i.Run) == 0 {
		return fmt.Errorf("it has no metadata %q, without which its numbers mean nothing: another program has left it "+
			"out (mcap filter keeps it with --include-metadata)", RunMetadata)
	}
	return nil
}

func (i *Info) metadata(record []byte) error {
	m, err := mcap.ParseMetadata(record)
	if err != nil {
		return err
	}
	i.Repaired = i.Repaired || m.Name == repairedMetadata
	if m.Name == RunMetadata {
		return i.take(m.Metadata)
	}
	return nil
}

// take keeps the run's metadata, and first makes it safe for a terminal.
func (i *Info) take(run map[string]string) error {
	wall, err := strconv.ParseInt(run["clock_offset_ns"], 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("its metadata has the clock_offset_ns %q, want nanoseconds", run["clock_offset_ns"])
	case len(i.Run) > 0 && i.Wall != wall:
		return errors.New("another program has merged several records into it, whose instants have nothing in " +
			"common: give the records themselves")
	}
	i.Run, i.Wall = plain.Texts(run), wall
	if names := run["cameras"]; names != "" {
		return checkCameras(strings.Split(names, ","))
	}
	return nil
}

// message decodes a message and calls its func.
func (v *Visitor) message(topic string, m *mcap.Message, wall int64) error {
	switch topic {
	case TickTopic:
		return visit(v.Tick, topic, m.Data, wall)
	case requestTopic:
		return visit(v.Request, topic, m.Data, wall)
	case sentTopic:
		return visit(v.Sent, topic, m.Data, wall)
	case chunkTopic:
		return visit(v.Chunk, topic, m.Data, wall)
	case SessionTopic:
		return visit(v.Session, topic, m.Data, wall)
	case EventTopic:
		return visit(v.Event, topic, m.Data, wall)
	case EpisodeTopic:
		return visit(v.Episode, topic, m.Data, wall)
	}
	if strings.HasPrefix(topic, CameraTopic) && v.Image != nil {
		return visit(func(i *Image) error {
			if err := CheckCamera(i.Camera); err != nil {
				return err
			}
			// the picture's own time of day may be from before the clock was set
			i.At = rt.Instant(int64(m.LogTime) - wall)
			return v.Image(i)
		}, topic, m.Data, wall)
	}
	return nil
}

func visit[T any, M messagePointer[T]](f func(M) error, topic string, data []byte, wall int64) error {
	if f == nil {
		return nil
	}
	m := M(new(T))
	if err := parse(m, data, wall); err != nil {
		return fmt.Errorf("a message of %s: %w", topic, err)
	}
	return f(m)
}

// Files lists the records of one robot in a folder, the oldest first. The parameter id is the robot's id; if it is
// empty, Files lists the records of all robots. It leaves out empty files.
func Files(dir, id string) (names []string, err error) {
	entries, _, err := folder{dir: dir}.list()
	for _, e := range entries {
		if e.size == 0 { // a power cut may leave an empty file
			continue
		}
		if id == "" || strings.HasPrefix(e.name, id+"-"+e.when) {
			names = append(names, filepath.Join(dir, e.name))
		}
	}
	return names, err
}

// FilesOf is Files for several folders. It skips folders that do not exist.
func FilesOf(dirs []string, id string) (names []string, err error) {
	when := map[string]string{}
	for _, dir := range dirs {
		found, err := Files(dir, id)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, name := range found {
			when[name] = ourName.FindStringSubmatch(filepath.Base(name))[2]
		}
		names = append(names, found...)
	}
	slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(when[a], when[b]) })
	return names, nil
}

// restAfter is the time without a change after which no run is writing a file: a run writes once a second, and the
// clock of a file server may differ a little.
const restAfter = time.Minute

// Written reports whether a run is still writing the file. The run's lock on the file shows that. On a file system
// without locks, such as some network shares, Written is true for a file without an end that has changed recently.
func Written(f *os.File) bool {
	if err := locked(f); err == nil || errors.Is(err, unix.EWOULDBLOCK) {
		return err != nil
	}
	info, err := f.Stat()
	return err == nil && !hasEnd(f) && time.Since(info.ModTime()).Abs() < restAfter
}

// locked returns unix.EWOULDBLOCK while another process has the file's lock, and another error on a file system without
// locks.
func locked(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
	return err
}

// ReadFolder visits all records in a folder, the oldest first.
func ReadFolder(dir string, v Visitor) (infos []Info, err error) {
	names, err := Files(dir, "")
	for _, name := range names {
		info, err := ReadFile(name, v)
		if err != nil {
			return infos, err
		}
		infos = append(infos, info)
	}
	return infos, err
}

// honest is a reader that keeps the cause of a read error, since the library treats every error as the end of the file.
type honest struct {
	from io.Reader
	err  error // nil: no error, or only the end of the file
}

func (h *honest) Read(b []byte) (n int, err error) {
	n, err = h.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		h.err = err
	}
	return n, err
}

// noAttachments is a reader that leaves out the attachments of a file, which other programs may have added. No reader
// here uses them, and the library takes an attachment of more than maxRecord for damage.
type noAttachments struct {
	from   io.Reader   // the file from the first record on, read through sum
	sum    hash.Hash32 // checksum of the bytes read so far
	data   uint32      // checksum of all data, valid after their end was read
	record io.Reader   // the current record
}

func (a *noAttachments) Read(b []byte) (n int, err error) {
	for {
		if n, err = a.record.Read(b); n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		head, sum := make([]byte, recordHead), a.sum.Sum32()
		if n, err = io.ReadFull(a.from, head); n == 0 {
			return 0, err
		}
		if mcap.OpCode(head[0]) == mcap.OpDataEnd {
			a.data, a.record = sum, io.MultiReader(bytes.NewReader(head[:n]), a.from)
			continue
		}
		body := io.LimitReader(a.from, int64(min(binary.LittleEndian.Uint64(head[1:]), math.MaxInt64)))
		a.record = io.MultiReader(bytes.NewReader(head[:n]), body)
		if mcap.OpCode(head[0]) == mcap.OpAttachment {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return 0, err
			}
			a.record = body // the skipped attachment ends here: its body is empty now
		}
	}
}

// chunk holds the compressed bytes of a chunk.
type chunk struct{ bytes.Buffer }

// take reads the whole chunk, whose length the library does not compare with the length of the record.
func (c *chunk) take(r io.Reader) error {
	c.Buffer.Reset()
	if n, err := c.ReadFrom(io.LimitReader(r, maxRecord+1)); err != nil || n > maxRecord {
		return cmp.Or(err, mcap.ErrChunkTooLarge)
	}
	return nil
}

// unzstd decompresses the chunks of a file in this goroutine, from bytes of its own. The library's decompression has
// goroutines that may still read the file while the lexer reads on: after a damaged chunk, and after a chunk that ends
// with an empty block.
type unzstd struct {
	*zstd.Decoder
	chunk chunk
}

// Reset begins a chunk.
func (u *unzstd) Reset(r io.Reader) error {
	if err := u.chunk.take(r); err != nil {
		return err
	}
	return u.Decoder.Reset(&u.chunk)
}

// unlz4 decompresses the chunks of a file, also those of several frames. The library's decompression ends after the
// first frame.
type unlz4 struct {
	frame *lz4.Reader
	chunk chunk
}

// Reset begins a chunk.
func (u *unlz4) Reset(r io.Reader) error {
	u.frame.Reset(&u.chunk)
	return u.chunk.take(r)
}

func (u *unlz4) Read(b []byte) (n int, err error) {
	for n == 0 && err == nil && len(b) > 0 {
		if n, err = u.frame.Read(b); errors.Is(err, io.EOF) && u.chunk.Len() > 0 {
			u.frame.Reset(&u.chunk) // the next frame
			err = nil
		}
	}
	return n, err
}

// lex returns a lexer that decompresses chunks of at most maxChunk bytes and compares their checksums.
func lex(from io.Reader) (lexer *mcap.Lexer, done func(), err error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeBuffersBelow(0),
		zstd.WithDecoderMaxMemory(maxChunk))
	if err != nil {
		return nil, nil, err
	}
	lexer, err = mcap.NewLexer(from, &mcap.LexerOptions{
		ValidateChunkCRCs:        true,
		MaxRecordSize:            maxRecord,
		MaxDecompressedChunkSize: maxChunk,
		Decompressors: map[mcap.CompressionFormat]mcap.ResettableReader{
			mcap.CompressionZSTD: &unzstd{Decoder: decoder},
			mcap.CompressionLZ4:  &unlz4{frame: lz4.NewReader(nil)},
		},
	})
	return lexer, decoder.Close, err
}

// scan calls visit for each record, including the records in chunks whose CRC is right. ended reports whether the file
// has its end, and the right checksum of its data. The error is errTorn for a file that breaks off or is damaged, a
// readError for a file that cannot be read to its end, and otherwise the error of visit.
func scan(from io.Reader, visit func(mcap.TokenType, []byte) error) (ended bool, err error) {
	r := &honest{from: from}
	defer func() {
		if r.err != nil && err != nil {
			ended, err = false, readError{r.err}
		}
	}()
	// The library uses unchecked lengths to slice its buffer, and panics on some files.
	visiting := false
	defer func() {
		if p := recover(); p != nil {
			if visiting {
				panic(p)
			}
			ended, err = false, fmt.Errorf("%w: %v", errTorn, p)
		}
	}()
	begin := make([]byte, len(mcap.Magic))
	n, err := io.ReadFull(r, begin)
	switch begin = begin[:n]; {
	case n == 0 && errors.Is(err, io.EOF):
		return false, errors.New("no MCAP file: it is empty; want a record that edge-rt has written")
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return false, err
	case err != nil && bytes.HasPrefix(mcap.Magic, begin), bytes.Equal(begin, make([]byte, n)):
		return false, errTorn // a power cut leaves the beginning of a file, or zeros
	case !bytes.Equal(begin, mcap.Magic):
		return false, fmt.Errorf("no MCAP file: it begins with %q; want a record that edge-rt has written "+
			"(an older --record FILE wrote JSON lines, which no command reads)", begin)
	}
	sum := crc32.NewIEEE()
	sum.Write(begin)
	records := &noAttachments{from: io.TeeReader(r, sum), sum: sum, record: bytes.NewReader(nil)}
	lexer, closeLexer, err := lex(io.MultiReader(bytes.NewReader(begin), records))
	if err != nil {
		return false, fmt.Errorf("no MCAP file: %w", err)
	}
	defer closeLexer()
	var room []byte
	for {
		token, record, err := lexer.Next(room)
		if err != nil {
			return false, fmt.Errorf("%w: %w", errTorn, err)
		}
		if cap(record) > cap(room) {
			room = slices.Clip(record[:cap(record)])
		}
		if token == mcap.TokenDataEnd { // only indexes follow
			// The library skips a chunk with a wrong opcode, and no checksum of the chunk reveals that. The checksum of
			// the data does.
			end, err := mcap.ParseDataEnd(record)
			// 0 means that there is no checksum
			if err != nil || end.DataSectionCRC != 0 && end.DataSectionCRC != records.data {
				return false, errTorn
			}
			ended = true
		}
		if token == mcap.TokenFooter {
			return ended, nil
		}
		if ended {
			continue
		}
		visiting = true
		if err := visit(token, record); err != nil {
			return false, err
		}
		visiting = false
	}
}
