package userfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
	"unicode/utf8"
)

// patience is the longest silence of a pipe. Tests replace it.
var patience = 5 * time.Second

// Read reads a whole file of at most limit bytes. It waits for the writer of a pipe, but not for ever.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	pipe := info.Mode()&os.ModeNamedPipe != 0
	data, began := []byte(nil), time.Now()
	for {
		data, err = io.ReadAll(io.LimitReader(f, limit+1))
		if !pipe || err != nil || len(data) > 0 || time.Since(began) > patience {
			break
		}
		time.Sleep(20 * time.Millisecond) // until a writer opens the pipe
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || pipe && len(data) == 0 {
		return nil, fmt.Errorf("%s is a pipe, and its writer sent no text with an end within %v: name a file", path,
			patience)
	}
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, err
}

// errUTF16 is the error for UTF-16 text, which some editors write by default.
var errUTF16 = errors.New("UTF-16 text, want UTF-8: save it so")

// errMark is the error for JSON after a byte order mark, which LeRobot's reader refuses, too.
var errMark = errors.New(`it begins with a byte order mark (BOM), want JSON without one: ` +
	`sed -i '1s/^\xEF\xBB\xBF//' FILE removes it`)

// ParseJSON does the same as json.Unmarshal for a file that LeRobot reads, too.
func ParseJSON(data []byte, to any) error {
	text, err := Text(data)
	if err == nil && len(text) < len(data) {
		err = errMark
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// Text returns a file's text without the byte order mark that some editors put
// before it. Text in UTF-16 or another encoding is refused.
func Text(data []byte) ([]byte, error) {
	if bytes.HasPrefix(data, []byte("\xFE\xFF")) || bytes.HasPrefix(data, []byte("\xFF\xFE")) {
		return nil, errUTF16
	}
	line := 1
	for text := range bytes.Lines(data) {
		if !utf8.Valid(text) {
			return nil, fmt.Errorf("line %d is no UTF-8, as text in Latin-1: save it as UTF-8", line)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil, fmt.Errorf("line %d has a zero byte, as a file that a power failure cut: write it again", line)
		}
		line++
	}
	return bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")), nil
}
