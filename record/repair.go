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

	"github.com/foxglove/mcap/go/mcap"
)

// repair makes the files of ours whole that an earlier run did not end, and takes away
// what an earlier repair left. One that cannot be repaired stays as it is: one that the
// disk does not read to its end, for one, of which a copy would be a part. It ends early
// with the run, which does not wait for it.
func (w *writer) repair(stop *atomic.Bool) {
	entries, _, err := w.folder.list()
	if err != nil {
		return // there is no folder yet, or open will say why not
	}
	w.folder.removeOrphans()
	w.folder.reservations() // which takes those of the dead away
	for _, e := range entries {
		if stop.Load() {
			return // the next start goes on
		}
		f, err := w.folder.claim(e.name)
		if err != nil {
			continue // a stranger's, or another process's
		}
		os.Remove(filepath.Join(w.folder.dir, e.name+repairing))
		if !whole(f) {
			if err := w.folder.rebuild(f); err != nil {
				w.r.cfg.Report(Report{File: f.Name(), Why: Repaired, Err: err})
			} else {
				w.r.counts.repaired.Add(1)
				w.r.cfg.Report(Report{File: f.Name(), Why: Repaired})
			}
		}
		f.Close()
	}
}

// removeOrphans takes away what repairs have left of files that are not there any more.
func (d folder) removeOrphans() {
	names, _ := filepath.Glob(filepath.Join(escapeGlob(d.dir), "*"+Extension+repairing)) // fails of a bad pattern only
	for _, name := range names {
		of := strings.TrimSuffix(filepath.Base(name), repairing)
		if _, err := os.Lstat(filepath.Join(d.dir, of)); ourName.MatchString(of) && errors.Is(err, fs.ErrNotExist) {
			os.Remove(name)
		}
	}
}

// repairedMetadata is the name of the metadata of a file that was torn.
const repairedMetadata = "repaired"

// rebuild replaces a torn file by one of all of its chunks that are whole.
func (d folder) rebuild(torn *os.File) (err error) {
	name := torn.Name() + repairing
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode) // what lay there was taken away
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
	if err := out.WriteMetadata(&mcap.Metadata{Name: repairedMetadata, Metadata: map[string]string{"why": "the file had no end: a power cut, a kill or a full disk"}}); err != nil {
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

// errDamaged is why a file stays as it is.
var errDamaged = errors.New("it is damaged before its end: whole chunks follow the damage, and a repaired file would lack them")

// onlyItsEnd refuses a file that goes on where reading has ended.
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

// recordHead is how many bytes begin a record: what it is, and how long.
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

// copyWhole copies what can be read of a torn file.
func copyWhole(torn io.Reader, out *mcap.Writer) error {
	_, err := scan(torn, func(token mcap.TokenType, record []byte) error {
		switch token {
		case mcap.TokenSchema:
			return copyRecord(record, mcap.ParseSchema, func(schema *mcap.Schema) error {
				schema.Data = bytes.Clone(schema.Data) // the record is the lexer's, the schema is kept
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
		return nil // the end
	}
	return err
}

// copyRecord copies one record; one that makes no sense is the end of what can be read.
func copyRecord[T any](record []byte, parse func([]byte) (*T, error), write func(*T) error) error {
	m, err := parse(record)
	if err != nil {
		return fmt.Errorf("%w: %w", errTorn, err)
	}
	return write(m)
}
