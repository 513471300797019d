package record

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/foxglove/mcap/go/mcap"
)

// Repair completes torn files of earlier runs, and removes the remains of an earlier repair. A file that Repair cannot
// repair stays as it is; for example, the copy of a file that the disk cannot read to its end would be incomplete.
// When the run ends, Repair stops early, and the run does not wait for it.
//
// Owner: one thread, which may block on the disk. Write may run meanwhile: a large file takes longer to repair than
// pictures stay in memory.
func (r *Recorder) Repair(stop *atomic.Bool) {
	w := &r.writer
	entries, _, err := w.folder.list()
	if err != nil {
		return // either there is no folder yet, or writer.open will report the cause
	}
	w.folder.removeOrphans()
	w.folder.reservations() // this also removes the reservations of dead processes
	for _, e := range entries {
		if stop.Load() {
			return // the next start continues the repair
		}
		f, err := w.folder.claim(e.name)
		if err != nil {
			continue // the file is a stranger's, or another process uses it
		}
		os.Remove(filepath.Join(w.folder.dir, e.name+repairing))
		if !hasEnd(f) {
			if err := w.folder.rebuild(f); err != nil {
				w.r.cfg.Report(Report{File: f.Name(), Why: Repaired, Err: err})
			} else {
				w.r.counts.repaired.Add(1)
				w.r.cfg.Report(Report{File: f.Name(), Why: Repaired})
			}
		}
		_ = child.Unlock(f)
	}
}

// removeOrphans removes unfinished repairs whose original file no longer exists.
func (d folder) removeOrphans() {
	for _, name := range d.glob("*" + Extension + repairing) {
		of := strings.TrimSuffix(name, repairing)
		if _, err := os.Lstat(of); ourName.MatchString(filepath.Base(of)) && errors.Is(err, fs.ErrNotExist) {
			os.Remove(name)
		}
	}
}

// repairedMetadata is the name of the metadata record in a repaired file.
const repairedMetadata = "repaired"

// rebuild replaces a torn file by a complete file with all of its whole chunks.
func (d folder) rebuild(torn *os.File) (err error) {
	name := torn.Name() + repairing
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode) // Repair has removed an older copy
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, to.Close()); err != nil {
			os.Remove(name)
		}
	}()
	compressor, err := newCompressor()
	if err != nil {
		return err
	}
	defer compressor.Close()
	buffer := bufio.NewWriterSize(to, fileBuffer)
	out, _, err := newMCAP(buffer, compressor)
	if err != nil {
		return err
	}
	if _, err := torn.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := copyWhole(torn, out); err != nil {
		return err
	}
	if err := onlyItsEnd(torn); err != nil {
		return err
	}
	if err := out.WriteMetadata(&mcap.Metadata{Name: repairedMetadata,
		Metadata: map[string]string{"why": "the file had no end: a power cut, a kill or a full disk"}}); err != nil {
		return err
	}
	if err := errors.Join(out.Close(), buffer.Flush(), to.Sync()); err != nil {
		return err
	}
	if err := os.Rename(name, torn.Name()); err != nil {
		return err
	}
	return d.sync()
}

// errDamaged is the reason for leaving a file as it is.
var errDamaged = errors.New("it is damaged before its end: whole chunks follow the damage, and a repaired file would " +
	"lack them")

// onlyItsEnd returns nil when only the end of a file is missing. It returns errDamaged when whole
// chunks with messages follow the point at which reading ended.
func onlyItsEnd(f *os.File) error {
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for from := int64(len(mcap.Magic)); ; {
		var head [recordHead]byte
		if from+recordHead > info.Size() {
			return nil
		}
		if _, err := f.ReadAt(head[:], from); err != nil {
			return err
		}
		size := binary.LittleEndian.Uint64(head[1:])
		if head[0] == 0 || size > maxRecord || from+recordHead+int64(size) > info.Size() {
			return nil
		}
		if from >= at && mcap.OpCode(head[0]) == mcap.OpChunk {
			switch holds, err := holdsMessages(io.NewSectionReader(f, from, recordHead+int64(size))); {
			case err != nil:
				return err
			case holds:
				return errDamaged
			}
		}
		from += recordHead + int64(size)
	}
}

// recordHead is the size of a record's head in bytes: the opcode and the length.
const recordHead = 9

// holdsMessages reports whether a chunk is whole and has messages.
func holdsMessages(chunk io.Reader) (holds bool, err error) {
	_, err = scan(io.MultiReader(bytes.NewReader(mcap.Magic), chunk), func(token mcap.TokenType, _ []byte) error {
		holds = holds || token == mcap.TokenMessage
		return nil
	})
	if errors.Is(err, errTorn) {
		err = nil
	}
	return holds, err
}

// copyWhole copies the readable part of a torn file.
func copyWhole(torn io.Reader, out *mcap.Writer) error {
	_, err := scan(torn, func(token mcap.TokenType, record []byte) error {
		switch token {
		case mcap.TokenSchema:
			return copyRecord(record, mcap.ParseSchema, func(schema *mcap.Schema) error {
				schema.Data = bytes.Clone(schema.Data) // the lexer reuses record, and the writer keeps the schema
				return out.WriteSchema(schema)
			})
		case mcap.TokenChannel:
			return copyRecord(record, mcap.ParseChannel, out.WriteChannel)
		case mcap.TokenMessage:
			return copyRecord(record, mcap.ParseMessage, out.WriteMessage)
		case mcap.TokenMetadata:
			return copyRecord(record, mcap.ParseMetadata, out.WriteMetadata)
		}
		return nil
	})
	if errors.Is(err, errTorn) {
		return nil // here the readable part ends
	}
	return err
}

// copyRecord copies one record. An invalid record ends the readable part.
func copyRecord[T any](record []byte, parse func([]byte) (*T, error), write func(*T) error) error {
	m, err := parse(record)
	if err != nil {
		return fmt.Errorf("%w: %w", errTorn, err)
	}
	return write(m)
}
