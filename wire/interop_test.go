package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// judge is the peer's program, in Python. It reads each body with Python's msgpack, turns its tensors into numpy
// arrays, writes the body anew and returns it. Strings and lists must have the draft's own types, so a bin in place of
// a str is detected.
const judge = `
import struct, sys
import msgpack, numpy as np
def arrays(v):
    if isinstance(v, dict):
        if set(v) == {"dtype", "shape", "data"}:
            a = np.frombuffer(v["data"], dtype=np.dtype(v["dtype"])).reshape(v["shape"])
            return {"dtype": a.dtype.str, "shape": list(a.shape), "data": a.tobytes()}
        return {k: arrays(x) for k, x in v.items()}
    return v
while head := sys.stdin.buffer.read(4):
    body = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
    again = msgpack.packb(arrays(msgpack.unpackb(body, raw=False)), use_bin_type=True)
    sys.stdout.buffer.write(struct.pack("<I", len(again)) + again)
`

// python returns an interpreter that has the modules, or skips the test.
func python(t *testing.T) string {
	t.Helper()
	for _, p := range []string{os.Getenv("EDGERT_PYTHON"), "../.venv/bin/python", "python3"} {
		if p == "" {
			continue
		}
		if exec.Command(p, "-c", "import msgpack, numpy").Run() == nil {
			return p
		}
	}
	t.Skip("no Python with msgpack and numpy: set EDGERT_PYTHON, or pip install msgpack==1.1.0 numpy")
	return ""
}

// TestPythonWritesTheSameBytes: Python reads every random message that we write, and writes the same bytes. This shows
// that we encode every integer, text, float and map in the form that Python's encoder chooses.
func TestPythonWritesTheSameBytes(t *testing.T) {
	interpreter := python(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var bodies [][]byte
	for range 300 {
		bodies = append(bodies, AppendObservation(nil, randomObservation(rng)),
			AppendActionChunk(nil, randomChunk(rng)),
			Append(nil, randomAck(rng)), Append(nil, &Event{
				Code:         EventLate,
				Text:         randomText(rng),
				Seq:          rng.Uint64(),
				RetryAfterMs: rng.IntN(1 << 20),
				ServerID:     randomText(rng),
				Nonce:        rng.Int64(),
			}))
	}
	var in bytes.Buffer
	for _, b := range bodies {
		in.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
		in.Write(b)
	}
	cmd := exec.Command(interpreter, "-c", judge)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out := rttest.Must(cmd.Output())(t)
	for i, want := range bodies {
		if len(out) < 4 {
			t.Fatalf("the judge answered %d of %d messages", i, len(bodies))
		}
		n := int(binary.LittleEndian.Uint32(out))
		if got := out[4 : 4+n]; !bytes.Equal(got, want) {
			t.Fatalf("message %d: Python writes % x, we write % x", i, got, want)
		}
		out = out[4+n:]
	}
}

// randomInt produces every integer form: the number of bits is uniform.
func randomInt(rng *rand.Rand) int64 { return int64(rng.Uint64()) >> rng.IntN(64) }

func randomText(rng *rand.Rand) string {
	return string(bytes.Repeat([]byte("xé"), rng.IntN(1<<rng.IntN(11))))
}

func randomMatrix(rng *rand.Rand) Matrix {
	m := Matrix{Rows: rng.IntN(60), Cols: rng.IntN(20)}
	if rng.IntN(4) == 0 {
		return Matrix{}
	}
	m.Data = make([]float32, m.Rows*m.Cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

func randomObservation(rng *rand.Rand) *Observation {
	o := &Observation{Task: randomText(rng), InferenceDelaySteps: rng.IntN(600) - 300, EpisodeStart: rng.IntN(2) == 0,
		PrefixModel: randomMatrix(rng), PrefixRobot: randomMatrix(rng), State: randomMatrix(rng).Data,
		HasT: rng.IntN(2) == 0, T: randomInt(rng), HasN: rng.IntN(2) == 0, N: randomInt(rng),
		HasOverlapEnd: rng.IntN(2) == 0, OverlapEnd: rng.IntN(4096),
		HasRunway: rng.IntN(2) == 0, RunwayMs: rng.NormFloat64() * math.Pow(10, rng.Float64()*30)}
	for range rng.IntN(40) {
		o.Spans = append(o.Spans, Span{Source: randomInt(rng), Start: int32(rng.IntN(100)), End: int32(rng.IntN(4000))})
	}
	for _, name := range []string{"observation.images.top",
		"observation.images.a_camera_with_a_rather_long_name"}[:rng.IntN(3)] {
		h, w := rng.IntN(40), rng.IntN(200)
		o.Images = append(o.Images, Image{Name: name, Codec: Raw, H: h, W: w, C: 3, Data: make([]byte, h*w*3)},
			Image{Name: name + ".jpeg", Data: make([]byte, rng.IntN(70_000))})
	}
	return o
}

func randomChunk(rng *rand.Rand) *ActionChunk {
	return &ActionChunk{
		SeqIDEcho:        rng.Uint64() >> rng.IntN(64),
		ClientMonoNsEcho: randomInt(rng),
		EpisodeIDEcho:    rng.Uint32() >> rng.IntN(32),
		ChunkModel:       randomMatrix(rng),
		ChunkRobot:       randomMatrix(rng),
		QueueWaitMs:      rng.Float64(),
		InferenceMs:      rng.ExpFloat64(),
		SupersededSeqs:   rng.Uint64() >> rng.IntN(64),
		ServerLoad:       rng.Float64(),
		HasT:             true,
		T:                randomInt(rng),
		ServerID:         randomText(rng),
	}
}

func randomAck(rng *rand.Rand) *SessionAck {
	a := &SessionAck{Accepted: true, Error: randomText(rng), SchemaVersion: rng.IntN(70_000), RetryAfterMs: rng.IntN(3)}
	for range rng.IntN(30) {
		a.ActionNames = append(a.ActionNames, randomText(rng))
		a.CameraShapes = append(a.CameraShapes, CameraShape{
			Name: randomText(rng) + string(rune('a'+len(a.CameraShapes))),
			H:    rng.IntN(9000),
			W:    rng.IntN(300),
			C:    3,
		})
	}
	return a
}
