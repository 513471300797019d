package packet

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"pgregory.net/rapid"
)

// cuts checks Cut on each line of the text. Brackets stand around the frame, whose values give the same frame
// again. Where Cut finds no frame, a bar stands before the bytes that it keeps.
func cuts(t *testing.T, f Format, params int, text string) {
	t.Helper()
	for _, row := range rttest.Rows(text) {
		name, want, _ := strings.Cut(row, ": ")
		in := bytesOf(t, want)
		r, skipped, rest, ok := f.Cut(in, params)
		got := fmt.Sprintf("%X|%X", in[:len(in)-len(rest)], rest)
		if ok {
			frame := f.Append(nil, r.ID, Instruction(r.Err), r.Params...)
			if f == (Dynamixel2{}) {
				frame = f.Append(nil, r.ID, status, append([]byte{r.Err}, r.Params...)...)
			}
			got = fmt.Sprintf("%X[%X]%X", in[:skipped], frame, rest)
		}
		if got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: Cut with %d parameters finds %s, want %s", name, params, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	cuts(t, Feetech, 2, `
		a whole reply: [FF FF 01 04 00 10 08 E2]
		the next reply stays: [FF FF 01 04 00 10 08 E2] FF FF 02 04 00 20 08 D1
		a fault does not hide data: [FF FF 01 04 20 10 08 C2]
		noise before: 00 FF 17 [FF FF 01 04 00 10 08 E2]
		FF before the header: FF [FF FF 01 04 00 10 08 E2]
		many FF before the header: FF FF FF FF FF [FF FF 01 04 00 10 08 E2]
		a torn reply before: FF FF 01 04 00 10 [FF FF 01 04 00 10 08 E2]
		a lone header before: FF FF [FF FF 01 04 00 10 08 E2]
		a wrong checksum before: FF FF 01 04 00 10 08 E3 [FF FF 01 04 00 10 08 E2]
		a damaged length does not swallow the next: FF FF 01 F4 00 10 08 E2 [FF FF 01 04 00 10 08 E2]
		FF FF in the data: [FF FF 01 04 00 FF FF FC]
		half a reply waits: | FF FF 01 04 00
		one byte waits: | FF
		the start of a header at the end waits: 12 34 | FF FF
		noise alone leaves nothing: 01 02 03 |
		nothing: |
		an id that no servo has: FF FF FE 04 00 10 08 E5 |
		an error byte that no servo sends: FF FF 01 04 80 10 08 62 |
		another length than asked for: FF FF 01 02 00 FC |
		a frame inside one of another length: FF FF 01 0A 00 FF FF 02 04 00 20 08 D1 F7 [FF FF 01 04 00 10 08 E2]
		and half of one after it: FF FF 01 02 00 FC | FF FF 01 04
		an acknowledgement is no answer to a read: FF FF 01 02 08 F4 |
	`)
	cuts(t, Feetech, -1, `
		any number of parameters: [FF FF 01 11 00 10 08 32 80 7B 04 79 22 00 00 00 00 00 0C 00 FD]
		a length too short to be one: FF FF 01 01 00 FD |
	`)
	cuts(t, Dynamixel1, 2, `
		a refusal without data: [FF FF 01 02 08 F4]
		an overload alone is no answer to a read: FF FF 01 02 20 DC |
		a refusal with other data than were asked for: FF FF 01 03 08 00 F3 |
	`)
	cuts(t, Dynamixel2{}, 4, `
		a whole reply: [FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78]
		noise before: 00 FF FF FD [FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78]
		a torn reply before: FF FF FD 00 01 08 00 55 00 10 [FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78]
		a header inside a header: FF FF FD 00 FF FF FD 00 [FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78]
		a wrong CRC before: FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 79 [FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78]
		a length from noise: FF FF FD 00 01 FF FF [FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78]
		a refusal instead of data: [FF FF FD 00 01 04 00 55 07 B0 8C]
		an acknowledgement instead of data: FF FF FD 00 01 04 00 55 00 A1 0C |
		a request: FF FF FD 00 01 07 00 02 84 00 04 00 1D 15 |
		half a reply waits: | FF FF FD 00 01 08 00 55
		the start of a header waits: 12 | FF FF
		a broadcast status: FF FF FD 00 FE 08 00 55 00 10 08 00 00 1A 78 |
	`)
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
					break // the good reply, or a frame with some of its bytes, which Cut cannot distinguish from it
				}
				rest = next
			}
		}
	})
}
