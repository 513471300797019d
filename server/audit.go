package server

import (
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	// lineMax is the longest audit line: names and texts that wire bounds, each
	// byte escaped, and the numbers.
	lineMax = 4096

	auditTime = "2006-01-02T15:04:05.000000Z07:00"
)

// appendAudit appends the audit line of t, one JSON object: see docs/server.md.
// It allocates nothing.
//
//rt:noalloc
func appendAudit(dst []byte, t *turn, ts time.Time) []byte {
	h := &t.header
	dst = append(dst, `{"ts":"`...)
	dst = ts.AppendFormat(dst, auditTime)
	dst = appendField(dst, `","session_id":`, t.session.id)
	dst = appendField(dst, `,"client_uuid":`, t.session.uuid)
	dst = append(dst, `,"session_epoch":`...)
	dst = strconv.AppendUint(dst, uint64(h.SessionEpoch), 10)
	dst = append(dst, `,"seq_id":`...)
	dst = strconv.AppendUint(dst, h.SeqID, 10)
	dst = append(dst, `,"episode_id":`...)
	dst = strconv.AppendUint(dst, uint64(h.EpisodeID), 10)
	dst = append(dst, `,"client_mono_ns":`...) // the robot's own; here only to join logs by
	dst = strconv.AppendInt(dst, h.ClientMonoNs, 10)
	dst = appendMs(dst, `,"queue_wait_ms":`, t.queueWait)
	dst = appendMs(dst, `,"decode_ms":`, t.decode)
	dst = appendMs(dst, `,"inference_ms":`, t.inference)
	dst = appendMs(dst, `,"service_ms":`, t.service)
	dst = append(dst, `,"chunk_range":`...)
	if t.rows > 0 {
		dst = strconv.AppendInt(append(dst, '['), t.first, 10)
		dst = strconv.AppendInt(append(dst, ','), t.first+int64(t.rows), 10)
		dst = append(dst, ']')
	} else {
		dst = append(dst, `null`...)
	}
	dst = append(dst, `,"superseded_seqs":`...)
	dst = strconv.AppendUint(dst, t.superseded, 10)
	dst = appendField(dst, `,"conditioning":`, t.controls.Mode.String())
	dst = append(dst, `,"delay":`...)
	dst = strconv.AppendInt(dst, int64(t.controls.Delay), 10)
	if t.stale != 0 {
		dst = appendStale(append(dst, `,"stale_cameras":`...), t)
	}
	dst = appendField(dst, `,"outcome":`, t.outcome.String())
	if t.why != "" {
		dst = appendField(dst, `,"why":`, t.why)
	}
	return append(dst, "}\n"...)
}

//rt:noalloc
func appendMs(dst []byte, key string, d time.Duration) []byte {
	return strconv.AppendFloat(append(dst, key...), ms(d), 'f', 3, 64)
}

//rt:noalloc
func appendField(dst []byte, key, value string) []byte {
	return appendQuoted(append(dst, key...), value)
}

// appendStale appends the names of the cameras whose pictures were old.
//
//rt:noalloc
func appendStale(dst []byte, t *turn) []byte {
	dst = append(dst, '[')
	for i := range t.cameras {
		if !t.stale.has(i) {
			continue
		}
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		dst = appendQuoted(dst, t.cameras[i].Name)
	}
	return append(dst, ']')
}

// appendQuoted appends s as a JSON string. What is not UTF-8 becomes U+FFFD.
//
//rt:noalloc
func appendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
