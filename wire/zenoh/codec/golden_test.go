package codec

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// reencode parses every message of a batch and appends it again.
func reencode(t *testing.T, batch []byte) []byte {
	t.Helper()
	out := rttest.Must(recode(batch))(t)
	return out
}

func recode(batch []byte) (out []byte, err error) {
	c := NewCursor(batch)
	var m Message
	for {
		h, ok := c.Peek()
		if !ok {
			return out, c.Err()
		}
		if IsNetwork(h) {
			if err := ParseMessage(&c, &m); err != nil {
				return nil, err
			}
			if m.Kind != KindOAM {
				out = AppendMessage(out, &m)
			}
			continue
		}
		switch ID(h) {
		case IDInit:
			m, err := ParseInit(&c)
			if err != nil {
				return nil, err
			}
			out = AppendInit(out, &m)
		case IDOpen:
			m, err := ParseOpen(&c)
			if err != nil {
				return nil, err
			}
			out = AppendOpen(out, &m)
		case IDClose:
			r, err := ParseClose(&c)
			if err != nil {
				return nil, err
			}
			out = AppendClose(out, r)
			out[len(out)-2] |= h & flagCloseBoth
		case IDKeepAlive, IDTransportOAM:
			if err := SkipTransport(&c); err != nil {
				return nil, err
			}
			out = AppendKeepAlive(out)
		case IDFrame:
			l, err := ParseLane(&c)
			if err != nil {
				return nil, err
			}
			out = AppendFrame(out, l)
		case IDFragment:
			l, err := ParseLane(&c)
			if err != nil {
				return nil, err
			}
			out = append(AppendFragment(out, l), c.Rest()...)
		default:
			return nil, ErrHeader
		}
	}
}

type liveVector struct {
	Name    string
	Hex     *string
	Decoded []struct {
		T    string
		Ext  map[string]any
		Sn   uint32
		R    bool
		Msgs []struct {
			M       string
			V       string // the body of an OAM, hex
			Key     string
			Body    any
			Payload string
		}
	}
}

// liveVectors loads the batches recorded between official 1.9.0 programs.
func liveVectors(t *testing.T) []liveVector {
	t.Helper()
	const name = "zenoh_live_1.9.0.json"
	raw := rttest.Must(os.ReadFile(filepath.Join("../../../testdata/golden", name)))(t)
	if origin, err := os.ReadFile(filepath.Join("../../../../shared/vectors", name)); err == nil &&
		!bytes.Equal(raw, origin) {
		t.Errorf("testdata/golden/%s differs from shared/vectors/%s, copy it again", name, name)
	}
	var file struct{ Vectors []liveVector }
	rttest.Do(t, json.Unmarshal(raw, &file))
	return file.Vectors
}

// exceptions lists the recorded batches that our encoder does not write byte for byte. Each kind has its reason, the
// number of its batches, and a function that turns a batch into our encoding. We write every other batch with the same
// bytes.
var exceptions = []struct {
	reason string
	count  int
	ours   func(v liveVector, batch []byte) (want []byte, applies bool)
}{
	{"an Init offers or answers shared memory, low latency or compression, which we never do", 18,
		func(v liveVector, batch []byte) ([]byte, bool) {
			if ID(batch[0]) != IDInit {
				return nil, false
			}
			end := 3 + int(batch[2]>>4) + 1
			if batch[0]&flagS != 0 {
				end += 3
			}
			if batch[0]&flagA != 0 {
				end += 1 + int(batch[end])
			}
			return keepExtensions(batch, end, "01 27")
		}},
	{"an Open carries the shared memory challenge, which we skip", 18, func(v liveVector, batch []byte) ([]byte, bool) {
		if ID(batch[0]) != IDOpen {
			return nil, false
		}
		end := 1 + vleLen(batch[1:])
		end += vleLen(batch[end:])
		if batch[0]&flagA == 0 {
			end += 1 + int(batch[end])
		}
		return keepExtensions(batch, end, "")
	}},
	{"the recorder's own client says 10 s in milliseconds, we like the official nodes in seconds", 6,
		func(v liveVector, batch []byte) ([]byte, bool) {
			rest, ok := bytes.CutPrefix(batch, []byte{0x02, 0x90, 0x4e})
			return append([]byte{0x42, 0x0a}, rest...), ok
		}},
	{"a frame carries gossip between peers and routers, which we skip", 3,
		func(v liveVector, batch []byte) (want []byte, applies bool) {
			want = batch
			for _, d := range v.Decoded {
				for _, m := range d.Msgs {
					if m.M != "OAM" {
						continue
					}
					gossip, err := hex.DecodeString(m.V)
					if err != nil {
						return nil, false
					}
					whole := append([]byte{0xdf, 0x01, 0x21, 0x08, byte(len(gossip))}, gossip...)
					want, applies = bytes.Replace(want, whole, nil, 1), bytes.Contains(want, whole)
				}
			}
			return want, applies
		}},
}

// silences are the vectors without bytes, in which an official router ends a link without a Close. TestEndWithoutClose
// of package link tests our reaction.
var silences = []string{"1.9.0/close/lease-expired", "1.9.0/close/decode-error", "1.9.0/close/unresponsive"}

func vleLen(b []byte) int {
	n := 1
	for b[n-1] >= 0x80 && n < 9 { // the ninth byte has eight bits
		n++
	}
	return n
}

// keepExtensions returns the batch with only those extensions whose ids the parameter known contains. The extensions
// start at batch[end]. It reads them without the code under test.
func keepExtensions(batch []byte, end int, known string) (kept []byte, dropped bool) {
	kept = append(kept, batch[:end]...)
	kept[0] &^= flagZ
	more, last := batch[0]&flagZ != 0, 0
	for at := end; more; {
		h := batch[at]
		n := 1
		switch h & 0x60 {
		case 0x20:
			n += vleLen(batch[at+1:])
		case 0x40:
			n += 1 + int(batch[at+1])
		}
		if strings.Contains(known, hex.EncodeToString([]byte{h & 0x7f})) && known != "" {
			kept[last] |= flagZ
			last = len(kept)
			kept = append(kept, batch[at:at+n]...)
			kept[last] &^= flagZ
		} else {
			dropped = true
		}
		at += n
		more = h&0x80 != 0
	}
	return kept, dropped
}

// Goal: every message between official programs parses, and our encoder writes it with the same bytes. The exceptions
// differ only for the given reasons.
func TestLiveBatches(t *testing.T) {
	vectors := liveVectors(t)
	var silent []string
	equal := 0
	counts := make([]int, len(exceptions))
	for _, v := range vectors {
		if v.Hex == nil {
			silent = append(silent, v.Name)
			continue
		}
		batch := rttest.Must(hex.DecodeString(*v.Hex))(t)
		out, err := recode(batch)
		if err != nil {
			t.Errorf("%s: recode(% x) = %v", v.Name, batch, err)
			continue
		}
		if bytes.Equal(out, batch) {
			equal++
			continue
		}
		want := batch
		for i, e := range exceptions {
			if ours, ok := e.ours(v, batch); ok {
				want = ours
				counts[i]++
				break
			}
		}
		if !bytes.Equal(out, want) {
			t.Errorf("%s: recode = % x, want % x", v.Name, out, want)
		}
	}
	for i, e := range exceptions {
		rttest.Want(t, counts[i], e.count, "%s: batches", e.reason)
	}
	if len(vectors) != 374 || equal != 326 || !slices.Equal(silent, silences) {
		t.Errorf("%d vectors, %d byte-equal, silent %v; want 374, 326 and %v", len(vectors), equal, silent, silences)
	}
}
