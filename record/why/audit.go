package why

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/edge-rt/edge-rt/rt"
)

const (
	// maxAuditLine is longer than any line of lean-server.
	maxAuditLine = 64 << 10

	// maxAuditLines is the largest number of kept lines of a file. It is enough for a day of
	// requests.
	maxAuditLines = 1 << 20
)

// auditKey identifies a request in the record and in the audit file.
type auditKey struct {
	session string
	epoch   uint32
	seq     uint64
}

// auditLine is the server's line about one request.
type auditLine struct {
	SessionID string  `json:"session_id"`
	Epoch     uint32  `json:"session_epoch"`
	Seq       uint64  `json:"seq_id"`
	QueueWait float64 `json:"queue_wait_ms"`
	Decode    float64 `json:"decode_ms"`
	Inference float64 `json:"inference_ms"`
	Service   float64 `json:"service_ms"`
	Outcome   string  `json:"outcome"`
	Why       string  `json:"why"`
}

// Audit holds the server's lines about one robot's sessions. A nil Audit has no lines.
type Audit struct {
	Lines   int // lines of the audit file
	Matched int // lines of this robot's sessions
	Broken  int // lines that cannot be parsed
	lines   map[auditKey]*auditLine
	ids     map[string]bool // sessions with at least one line
}

// readAudit reads a file of lean-server's --audit, and keeps the lines about the sessions of the log l.
func readAudit(r io.Reader, l *Log) (*Audit, error) {
	ours := map[string]bool{}
	for _, s := range l.sessions {
		ours[s.ID] = true
	}
	for _, q := range l.requests {
		if q.Session != nil {
			ours[q.Session.ID] = true
		}
	}
	delete(ours, "")
	a := &Audit{lines: map[auditKey]*auditLine{}, ids: map[string]bool{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxAuditLine), maxAuditLine)
	for lines.Scan() {
		// some editors write this mark at the beginning of a file
		text := bytes.TrimPrefix(lines.Bytes(), []byte("\ufeff"))
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		a.Lines++
		var line auditLine
		if json.Unmarshal(text, &line) != nil || line.SessionID == "" {
			a.Broken++
			continue
		}
		if !ours[line.SessionID] || len(a.lines) >= maxAuditLines {
			continue
		}
		a.Matched++
		a.ids[line.SessionID] = true
		a.lines[auditKey{line.SessionID, line.Epoch, line.Seq}] = &line
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d has more than %d bytes: it is no audit file of lean-server", a.Lines+1,
			maxAuditLine)
	case err != nil:
		return nil, err
	case a.Lines > 0 && a.Broken == a.Lines:
		return nil, fmt.Errorf("no audit line in its %d lines: want the file of lean-server's --audit", a.Lines)
	}
	return a, nil
}

// of returns the line about a request; nil if there is no such line. The result known reports whether the file has
// any line of the request's session. If so, a line about the request should be there.
func (a *Audit) of(q *request) (line *auditLine, known bool) {
	if a == nil || q.Session == nil {
		return nil, false
	}
	id := q.Session.ID
	return a.lines[auditKey{id, q.Epoch, q.Seq}], a.ids[id]
}

// evidence returns the durations and the outcome in the line, as text. The parameter at is the instant at which the
// chunk came or was due.
func (line *auditLine) evidence(at rt.Instant) Evidence {
	text := fmt.Sprintf("the server's audit: request %d waited %.0f ms, took %.0f ms to decode and %.0f ms to "+
		"compute, %.0f ms in all: %s", line.Seq, line.QueueWait, line.Decode, line.Inference, line.Service,
		line.Outcome)
	if line.Why != "" {
		text += ", " + line.Why
	}
	return Evidence{at, text}
}
