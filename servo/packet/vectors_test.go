package packet

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func bytesOf(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "|", "", "[", "", "]", "").Replace(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return b
}

var six = []byte{1, 2, 3, 4, 5, 6}

// split splits an intact frame. The parameters of a status frame of protocol 2.0 begin with the error byte; in the
// other protocols the error byte has the place of the instruction.
func split(f Format, b []byte) (id byte, inst Instruction, params []byte) {
	if f != (Dynamixel2{}) {
		return b[2], Instruction(b[4]), b[5 : len(b)-1]
	}
	return b[4], Instruction(b[7]), bytes.ReplaceAll(b[8:len(b)-2], []byte{0xFF, 0xFF, 0xFD, 0xFD},
		[]byte{0xFF, 0xFF, 0xFD})
}

// encodings returns the frames of all methods that encode this request.
func encodings(f Format, id byte, inst Instruction, params []byte) [][]byte {
	all := [][]byte{f.Append(nil, id, inst, params...)}
	width := 1 // bytes of an address, and of a count
	if f == (Dynamixel2{}) {
		width = 2
	}
	number := func(i int) (n int) {
		for k := range width {
			n |= int(params[i*width+k]) << (8 * k)
		}
		return n
	}
	switch inst {
	case Read:
		return append(all, f.AppendRead(nil, id, number(0), number(1)))
	case Write:
		return append(all, f.AppendWrite(nil, id, number(0), params[width:]))
	case SyncRead:
		return append(all, f.AppendSyncRead(nil, number(0), number(1), params[2*width:]))
	case FastSyncRead:
		return append(all, Dynamixel2{}.AppendFastSyncRead(nil, number(0), number(1), params[2*width:]))
	case SyncWrite:
		var ids, data []byte
		for rest := params[2*width:]; len(rest) > 0; rest = rest[1+number(1):] {
			ids, data = append(ids, rest[0]), append(data, rest[1:1+number(1)]...)
		}
		return append(all, f.AppendSyncWrite(nil, number(0), number(1), ids, data))
	}
	return all
}

// The encoder makes each request of the files byte for byte, and Cut returns each status whole, with its values. The
// simulator's vectors come from vendors' programs and manuals. Cut refuses a status with the broadcast id, because that
// holds the merged replies to a fast sync read.
func TestVectors(t *testing.T) {
	formats := map[string]Format{
		"sts3215": Feetech, "ax-12a": Dynamixel1, "xl430-w250": Dynamixel2{}, "xl330-m288": Dynamixel2{},
	}
	frames := 0
	for _, file := range []string{"testdata/vectors.txt", "../../sim/servosim/testdata/vectors.txt"} {
		var f Format
		name := ""
		for line := range strings.Lines(rttest.ReadFile(t, file)) {
			mark, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch {
			case mark == "=":
				f = formats[text]
			case line[0] != ' ':
				name = strings.TrimSpace(line)
			case mark == "<", mark == ">" && !strings.HasPrefix(name, "malformed"):
				frames++
				b := bytesOf(t, text)
				id, inst, params := split(f, b)
				if mark == ">" {
					for _, got := range encodings(f, id, inst, params) {
						rttest.Equal(t, got, b, "%s: request", name)
					}
					continue
				}
				if inst == status {
					inst, params = Instruction(params[0]), params[1:]
				}
				r, skipped, rest, ok := f.Cut(slices.Clone(b), len(params))
				if merged := id == Broadcast; ok == merged || ok && (skipped != 0 || len(rest) != 0 || r.ID != id ||
					r.Err != byte(inst) || !bytes.Equal(r.Params, params)) {
					t.Errorf("%s: % X is cut as %+v, %v, %d bytes skipped, % X left", name, b, r, ok, skipped, rest)
				}
			}
		}
	}
	if frames < 200 {
		t.Errorf("%d frames in the files, want 200 and more", frames)
	}
}

// Source: reference vector D15, and the e-manual's request.
func TestFastVectors(t *testing.T) {
	var d Dynamixel2
	if got, want := d.AppendFastSyncRead(nil, 132, 4, six),
		bytesOf(t, "FF FF FD 00 FE 0D 00 8A 84 00 04 00 01 02 03 04 05 06 B1 B1"); !bytes.Equal(got, want) {
		t.Errorf("D15: % X, want % X", got, want)
	}
	if got, want := d.AppendFastSyncRead(nil, 132, 4, []byte{3, 7, 4}),
		bytesOf(t, "FF FF FD 00 FE 0A 00 8A 84 00 04 00 03 07 04 20 F2"); !bytes.Equal(got, want) {
		t.Errorf("D15 of the manual: % X, want % X", got, want)
	}
	in := bytesOf(t, "FF FF FD 00 FE 31 00 55 00 01 10 08 00 00 E1 CF 00 02 20 08 00 00 57 CC 00 03 30 08 00 00 FE "+
		"E1 00 04 40 08 00 00 E9 6F 00 05 50 08 00 00 64 AC 00 06 60 08 00 00 B9 47")
	rttest.Want(t, FastSize(6, 4), len(in), "FastSize")
	for cutOff := range len(in) + 1 { // the first bytes of a reply that is still arriving, after noise
		var f Fast
		bytes := append([]byte{0xFF, 0xFF, 0xFD}, in[:cutOff]...)
		blocks := 0
		for {
			r, ok, broken := f.Next(bytes, 6, 4)
			if broken {
				t.Fatalf("%d bytes: broken", cutOff)
			}
			if !ok {
				break
			}
			blocks++
			if int(r.ID) != blocks || r.Err != 0 || int(r.Params[0]) != 16*blocks {
				t.Errorf("block %d is %+v", blocks, r)
			}
			if blocks == 6 {
				break
			}
		}
		if want := max(0, (cutOff-8)/8); blocks != want {
			t.Errorf("%d bytes hold %d blocks, want %d", cutOff, blocks, want)
		}
	}
	in[30] ^= 1 // a byte in the third block: the two blocks before it are valid
	var f Fast
	for range 2 {
		if _, ok, broken := f.Next(in, 6, 4); !ok || broken {
			t.Fatal("the blocks before the damage are lost")
		}
	}
	if _, ok, broken := f.Next(in, 6, 4); ok || !broken {
		t.Errorf("damaged block: ok %v, broken %v", ok, broken)
	}
}
