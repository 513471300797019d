package codec

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reencode parses every message of a batch and appends it again.
func reencode(t *testing.T, batch []byte) []byte {
	t.Helper()
	out, err := recode(batch)
	if err != nil {
		t.Fatalf("parse % x: %v", batch, err)
	}
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
	raw, err := os.ReadFile(filepath.Join("../../../testdata/golden", name))
	if err != nil {
		t.Fatal(err)
	}
	if origin, err := os.ReadFile(filepath.Join("../../../../shared/vectors", name)); err == nil && !bytes.Equal(raw, origin) {
		t.Errorf("testdata/golden/%s differs from shared/vectors/%s, copy it again", name, name)
	}
	var file struct{ Vectors []liveVector }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

// foreign reports whether a recorded batch holds something that we never write:
// shared memory and other extensions of Init and Open, or gossip.
func (v liveVector) foreign() bool {
	for _, d := range v.Decoded {
		if d.T == "OpenSyn" && strings.Contains(v.Name, "/raw-client/") {
			return true // the recorder's own script, which wrote 10 s in milliseconds
		}
		for id := range d.Ext {
			known := map[string]string{"InitSyn": "01 27", "InitAck": "01 27", "Frame": "31", "Fragment": "31 02 03"}
			if !strings.Contains(known[d.T], id) {
				return true
			}
		}
		for _, m := range d.Msgs {
			if m.M == "OAM" {
				return true
			}
		}
	}
	return false
}

// Goal: whatever official programs say to each other parses, and what we would
// say ourselves comes out byte-equal.
func TestLiveBatches(t *testing.T) {
	vectors := liveVectors(t)
	var parsed, equal, silent int
	for _, v := range vectors {
		if v.Hex == nil {
			silent++ // a bare close of the connection was recorded
			continue
		}
		batch, err := hex.DecodeString(*v.Hex)
		if err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		out, err := recode(batch)
		if err != nil {
			t.Errorf("%s: recode(% x) = %v", v.Name, batch, err)
			continue
		}
		parsed++
		if v.foreign() {
			continue
		}
		if !bytes.Equal(out, batch) {
			t.Errorf("%s: recode = % x, want % x", v.Name, out, batch)
		}
		equal++
	}
	if len(vectors) != 374 || parsed+silent != 374 || silent != 3 || equal < 326 {
		t.Errorf("vectors %d, parsed %d, silent %d, compared %d; want 374, 371, 3, at least 326", len(vectors), parsed, silent, equal)
	}
	t.Logf("parsed %d, byte-equal %d", parsed, equal)
}
