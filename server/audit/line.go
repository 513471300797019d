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
	dst = append(dst, `,"session_epoch":`...)
	dst = strconv.AppendUint(dst, uint64(h.SessionEpoch), 10)
	if model != "" {
		dst = appendField(dst, `,"model_sha256":`, model)
	}
	dst = append(dst, `,"seq_id":`...)
	dst = strconv.AppendUint(dst, h.SeqID, 10)
	dst = append(dst, `,"episode_id":`...)
	dst = strconv.AppendUint(dst, uint64(h.EpisodeID), 10)
	dst = append(dst, `,"client_mono_ns":`...) // the robot's own clock; useful only for joining logs
	dst = strconv.AppendInt(dst, h.ClientMonoNs, 10)
	dst = appendMs(dst, `,"queue_wait_ms":`, r.QueueWait)
	dst = appendMs(dst, `,"decode_ms":`, r.Decode)
	dst = appendMs(dst, `,"inference_ms":`, r.Inference)
	dst = appendMs(dst, `,"service_ms":`, r.Service)
	dst = append(dst, `,"batch":`...)
	dst = strconv.AppendInt(dst, int64(r.Batch), 10)
	dst = append(dst, `,"row":`...)
	dst = strconv.AppendInt(dst, int64(r.Row), 10)
	dst = append(dst, `,"chunk_range":`...)
	if r.Rows > 0 {
		dst = strconv.AppendInt(append(dst, '['), r.First, 10)
		dst = strconv.AppendInt(append(dst, ','), r.First+int64(r.Rows), 10)
		dst = append(dst, ']')
	} else {
		dst = append(dst, `null`...)
	}
	dst = append(dst, `,"superseded_seqs":`...)
	dst = strconv.AppendUint(dst, r.Superseded, 10)
	dst = appendField(dst, `,"conditioning":`, r.Controls.Mode.String())
	dst = append(dst, `,"delay":`...)
	dst = strconv.AppendInt(dst, int64(r.Controls.Delay), 10)
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
