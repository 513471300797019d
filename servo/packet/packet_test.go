package packet

import (
	"bytes"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"pgregory.net/rapid"
)

func TestCut(t *testing.T) {
	const good = "FF FF 01 04 00 10 08 E2"
	for _, tt := range []struct {
		name      string
		in        string
		params    int
		wantFrame string
		wantRest  string
	}{
		{"a whole reply", good, 2, good, ""},
		{"any number of parameters", "FF FF 01 11 00 10 08 32 80 7B 04 79 22 00 00 00 00 00 0C 00 FD", -1,
			"FF FF 01 11 00 10 08 32 80 7B 04 79 22 00 00 00 00 00 0C 00 FD", ""},
		{"the next reply stays", good + "FF FF 02 04 00 20 08 D1", 2, good, "FF FF 02 04 00 20 08 D1"},
		{"a fault does not hide data", "FF FF 01 04 20 10 08 C2", 2, "FF FF 01 04 20 10 08 C2", ""},
		{"noise before", "00 FF 17" + good, 2, good, ""},
		{"FF before the header", "FF" + good, 2, good, ""},
		{"many FF before the header", "FF FF FF FF FF" + good, 2, good, ""},
		{"a torn reply before", "FF FF 01 04 00 10" + good, 2, good, ""},
		{"a lone header before", "FF FF" + good, 2, good, ""},
		{"a wrong checksum before", "FF FF 01 04 00 10 08 E3" + good, 2, good, ""},
		{"a damaged length does not swallow the next", "FF FF 01 F4 00 10 08 E2" + good, 2, good, ""},
		{"FF FF in the data", "FF FF 01 04 00 FF FF FC", 2, "FF FF 01 04 00 FF FF FC", ""},
		{"half a reply waits", "FF FF 01 04 00", 2, "", "FF FF 01 04 00"},
		{"one byte waits", "FF", 2, "", "FF"},
		{"the start of a header at the end waits", "12 34 FF FF", 2, "", "FF FF"},
		{"noise alone leaves nothing", "01 02 03", 2, "", ""},
		{"nothing", "", 2, "", ""},
		{"an id that no servo has", "FF FF FE 04 00 10 08 E5", 2, "", ""},
		{"an error byte that no servo sends", "FF FF 01 04 80 10 08 62", 2, "", ""},
		{"another length than asked for", "FF FF 01 02 00 FC", 2, "", ""},
		{"a length too short to be one", "FF FF 01 01 00 FD", -1, "", ""},
		{"a frame inside one of another length", "FF FF 01 0A 00 FF FF 02 04 00 20 08 D1 F7" + good, 2, good, ""},
		{"and behind it half of one", "FF FF 01 02 00 FC FF FF 01 04", 2, "", "FF FF 01 04"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := bytesOf(t, tt.in)
			r, skipped, rest, ok := Feetech.Cut(in, tt.params)
			var frame []byte
			if ok {
				frame = in[skipped : len(in)-len(rest)]
			}
			if ok && (r.ID != frame[2] || r.Err != frame[4]) {
				t.Errorf("reply %+v of % X", r, frame)
			}
			if !bytes.Equal(frame, bytesOf(t, tt.wantFrame)) || !bytes.Equal(rest, bytesOf(t, tt.wantRest)) {
				t.Errorf("Cut(%s, %d) = % X, % X, want %s, %s", tt.in, tt.params, frame, rest, tt.wantFrame,
					tt.wantRest)
			}
		})
	}
}

func TestPlainRefusals(t *testing.T) {
	in := bytesOf(t, "FF FF 01 02 08 F4")
	if r, _, _, ok := Dynamixel1.Cut(in, 2); !ok || !Dynamixel1.Refused(r.Err) {
		t.Errorf("a refusal without data: %+v, %v, want it cut", r, ok)
	}
	if _, _, _, ok := Feetech.Cut(in, 2); ok {
		t.Error("Feetech does not refuse: an acknowledgement is no answer to a read")
	}
	if _, _, _, ok := Dynamixel1.Cut(bytesOf(t, "FF FF 01 02 20 DC"), 2); ok {
		t.Error("an overload alone is no answer to a read")
	}
}

func TestDynamixelCut(t *testing.T) {
	const good = "FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78"
	for _, tt := range []struct {
		name    string
		in      string
		ok      bool
		skipped int
		rest    int
	}{
		{"a whole reply", good, true, 0, 0},
		{"noise before", "00 FF FF FD" + good, true, 4, 0},
		{"a torn reply before", "FF FF FD 00 01 08 00 55 00 10" + good, true, 10, 0},
		{"a header inside a header", "FF FF FD 00 FF FF FD 00" + good, true, 8, 0},
		{"a damaged CRC before", "FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 79" + good, true, 15, 0},
		{"a length from noise", "FF FF FD 00 01 FF FF" + good, true, 7, 0},
		{"a refusal instead of data", "FF FF FD 00 01 04 00 55 07 B0 8C", true, 0, 0},
		{"an acknowledgement instead of data", "FF FF FD 00 01 04 00 55 00 A1 0C", false, 11, 0},
		{"a request", "FF FF FD 00 01 07 00 02 84 00 04 00 1D 15", false, 14, 0},
		{"half a reply waits", "FF FF FD 00 01 08 00 55", false, 0, 8},
		{"the start of a header waits", "12 FF FF", false, 1, 2},
		{"a broadcast status", "FF FF FD 00 FE 08 00 55 00 10 08 00 00 1A 78", false, 15, 0},
	} {
		r, skipped, rest, ok := Dynamixel2{}.Cut(bytesOf(t, tt.in), 4)
		if ok != tt.ok || ok && skipped != tt.skipped || len(rest) != tt.rest {
			t.Errorf("%s: %+v, ok %v, skipped %d, rest % X", tt.name, r, ok, skipped, rest)
		}
	}
}

// Property: a frame with any data has no second header inside, and Cut returns the data that were
// appended.
func TestStuffingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.SampledFrom([]byte{0xFF, 0xFF, 0xFD, 0xFD, 0x00, 0x55}), 0, 60).Draw(t, "data")
		frame := Dynamixel2{}.Append(nil, 7, status, append([]byte{0}, data...)...)
		if bytes.Contains(frame[4:len(frame)-2], []byte{0xFF, 0xFF, 0xFD, 0x00}) {
			t.Fatalf("% X has a header inside", frame)
		}
		r, skipped, rest, ok := Dynamixel2{}.Cut(slices.Clone(frame), len(data))
		if !ok || skipped != 0 || len(rest) != 0 || r.ID != 7 || !bytes.Equal(r.Params, data) {
			t.Fatalf("% X comes back as %+v (ok %v)", frame, r, ok)
		}
	})
}

// Source: CRC catalogue, CRC-16/UMTS.
func TestCRC(t *testing.T) {
	rttest.Want(t, crc(0, []byte("123456789")), 0xFEE8, "CRC of the check string")
	if want := [4]uint16{0x0000, 0x8005, 0x800F, 0x000A}; [4]uint16(crcTable[:4]) != want {
		t.Errorf("table begins %04X, want %04X", crcTable[:4], want)
	}
}

func TestNoAlloc(t *testing.T) {
	var d Dynamixel2
	buf, data := make([]byte, 0, 256), make([]byte, 24)
	in := bytesOf(t, "FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78")
	for _, f := range []Format{Feetech, d} {
		rttest.Want(t, testing.AllocsPerRun(100, func() {
			buf = f.AppendSyncRead(buf[:0], 56, 4, six)
			buf = f.AppendSyncWrite(buf[:0], 42, 4, six, data)
			f.Cut(in, 4)
		}), 0, "%T: allocations", f)
	}
}

// Property: for any input Cut makes progress and stays within the input, and a rest in which Cut finds no frame is
// shorter than a frame.
func FuzzCut(f *testing.F) {
	for _, s := range []string{"FF FF FF 01 04 00 10 08 E2", "FF FF 01 04 00 10 FF FF 02 04 00 20 08 D1",
		"FF FF 01 F4 00",
		"FF FF FD 00 01 09 00 55 00 FF FF FD FD 00 D8 9C",
		"FF FF FD 00 FE 0E 00 55 00 01 10 08 00 00 C1 45 00 02 00 DF E1"} {
		f.Add(bytesOf(f, s), 2)
		f.Add(bytesOf(f, s), -1)
	}
	f.Fuzz(func(t *testing.T, raw []byte, params int) {
		params = max(-1, min(plainMaxLen-2, params))
		for _, format := range []Format{Feetech, Dynamixel1, Dynamixel2{}} {
			in := slices.Clone(raw)
			for {
				r, skipped, rest, ok := format.Cut(in, params)
				if skipped < 0 || skipped+len(rest) > len(in) {
					t.Fatalf("%T: Cut(% X) skips %d and leaves %d", format, in, skipped, len(rest))
				}
				if !ok {
					if len(rest) >= dxlMaxLen+dxlHeader {
						t.Fatalf("%T: %d bytes wait, more than a frame", format, len(rest))
					}
					break
				}
				if params >= 0 && len(r.Params) != params && !(len(r.Params) == 0 && format.Refused(r.Err)) {
					t.Fatalf("%T: %d parameters, want %d", format, len(r.Params), params)
				}
				if len(rest) >= len(in) {
					t.Fatalf("%T: no progress in % X", format, in)
				}
				in = rest
			}
		}
		var fast Fast
		for n := max(1, params); ; {
			if _, ok, _ := fast.Next(raw, 6, n); !ok {
				break
			}
		}
	})
}

// overlaps reports whether an intact frame, of any length, begins within the noise, in[:noise], and ends after it.
func overlaps(in []byte, noise int) bool {
	for i := range noise {
		if i+Feetech.frameSize(in[i:], -1) > noise {
			return true
		}
	}
	return false
}

// Property: a good reply after any torn or damaged bytes is found, unless a frame in the noise shares bytes with it.
func FuzzCutFindsReplyBehindNoise(f *testing.F) {
	f.Add([]byte{0xFF, 0xFF, 1, 4, 0})
	f.Add([]byte{0xFF, 0xFF, 0xFD, 0, 1, 8})
	f.Fuzz(func(t *testing.T, noise []byte) {
		plain := []byte{0xFF, 0xFF, 3, 4, 0, 0x30, 0x08, 0xC0}
		dxl := Dynamixel2{}.Append(nil, 3, status, 0, 0x30, 0x08)
		for _, tt := range []struct {
			format Format
			want   []byte
		}{{Feetech, plain}, {Dynamixel2{}, dxl}} {
			in := append(slices.Clone(noise), tt.want...)
			if overlaps(in, len(noise)) {
				continue
			}
			for rest := in; ; {
				_, _, next, ok := tt.format.Cut(rest, 2)
				if !ok {
					t.Fatalf("%T: Cut(% X) never found the reply behind %d bytes of noise", tt.format, in, len(noise))
				}
				if len(in)-len(next) > len(noise) {
					break // Cut found the good reply, or a frame with some of the good reply's bytes
				}
				rest = next
			}
		}
	})
}
