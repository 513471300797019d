package audit

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/wire"
)

const (
	// lineMax is the longest audit line: names and texts whose size wire bounds, each byte escaped,
	// the tags and the numbers.
	lineMax = 4096 + tagsMax
	// tagsMax bounds the bytes of the tags in a line, because a robot may send a megabyte of tags, and each of its
	// requests has a line with them.
	tagsMax = 1024

	timeLayout = "2006-01-02T15:04:05.000000Z07:00"
)

// appendLine appends the audit line of r, one JSON object: see docs/server.md. model is the digest of the policy.
//
//rt:noalloc
func appendLine(dst []byte, r *Record, model string, ts time.Time) []byte {
	h := &r.Header
	dst = append(dst, `{"ts":"`...)
	dst = ts.AppendFormat(dst, timeLayout)
	dst = appendField(dst, `","session_id":`, r.SessionID)
	dst = appendField(dst, `,"client_uuid":`, r.ClientUUID)
	if r.Tags != "" {
		dst = append(append(dst, `,"tags":`...), r.Tags...)
	}
	dst = appendInt(dst, `,"session_epoch":`, int64(h.SessionEpoch))
	if model != "" {
		dst = appendField(dst, `,"model_sha256":`, model)
	}
	dst = append(dst, `,"seq_id":`...)
	dst = strconv.AppendUint(dst, h.SeqID, 10)
	dst = appendInt(dst, `,"episode_id":`, int64(h.EpisodeID))
	dst = appendInt(dst, `,"client_mono_ns":`, h.ClientMonoNs) // the robot's own clock; useful only for joining logs
	dst = appendMs(dst, `,"queue_wait_ms":`, r.QueueWait)
	dst = appendMs(dst, `,"decode_ms":`, r.Decode)
	dst = appendMs(dst, `,"inference_ms":`, r.Inference)
	dst = appendMs(dst, `,"service_ms":`, r.Service)
	dst = appendInt(dst, `,"batch":`, int64(r.Batch))
	dst = appendInt(dst, `,"row":`, int64(r.Row))
	if r.Rows > 0 {
		dst = appendInt(dst, `,"chunk_range":[`, r.First)
		dst = append(appendInt(dst, ",", r.First+int64(r.Rows)), ']')
	} else {
		dst = append(dst, `,"chunk_range":null`...)
	}
	dst = appendInt(dst, `,"superseded_seqs":`, int64(r.Superseded))
	dst = appendField(dst, `,"conditioning":`, r.Controls.Mode.String())
	dst = appendInt(dst, `,"delay":`, int64(r.Controls.Delay))
	if r.Stale != 0 {
		dst = appendStale(append(dst, `,"stale_cameras":`...), r)
	}
	dst = appendField(dst, `,"outcome":`, r.Outcome.String())
	if r.Why != "" {
		dst = appendField(dst, `,"why":`, r.Why)
	}
	return append(dst, "}\n"...)
}

// Tags returns a robot's tags as the JSON object for its audit lines. The result text is "" without tags. The result
// kept is the number of tags that fit into tagsMax bytes.
func Tags(tags []wire.Tag) (text string, kept int) {
	out := []byte{'{'}
	for _, t := range tags {
		with := out
		if kept > 0 {
			with = append(with, ',')
		}
		if with = appendQuoted(append(appendQuoted(with, t.Key), ':'), t.Value); len(with) >= tagsMax {
			break
		}
		out, kept = with, kept+1
	}
	if kept == 0 {
		return "", 0
	}
	return string(append(out, '}')), kept
}

//rt:noalloc
func appendInt(dst []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(dst, key...), n, 10)
}

//rt:noalloc
func appendMs(dst []byte, key string, d time.Duration) []byte {
	return strconv.AppendFloat(append(dst, key...), float64(d)/1e6, 'f', 3, 64)
}

//rt:noalloc
func appendField(dst []byte, key, value string) []byte {
	return appendQuoted(append(dst, key...), value)
}

//rt:noalloc
func appendStale(dst []byte, r *Record) []byte {
	dst = append(dst, '[')
	for i := range r.Cameras {
		if r.Stale&(1<<i) == 0 {
			continue
		}
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		dst = appendQuoted(dst, r.Cameras[i].Name)
	}
	return append(dst, ']')
}

// appendQuoted appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
//
//rt:noalloc
func appendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', byte(c))
		case c < ' ' || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = utf8.AppendRune(dst, c)
		}
	}
	return append(dst, '"')
}
