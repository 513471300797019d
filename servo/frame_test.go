package servo

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var six = []ID{1, 2, 3, 4, 5, 6}

func same(v uint16, n int) []uint16 {
	words := make([]uint16, n)
	for i := range words {
		words[i] = v
	}
	return words
}

// Frames that vendor clients were seen to send.
func TestAppendMatchesVendorFrames(t *testing.T) {
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"ping", AppendPing(nil, 1), "FFFF010201FB"},
		{"ping all", AppendPing(nil, Broadcast), "FFFFFE0201FE"},
		{"read model", AppendRead(nil, 1, ModelNumber), "FFFF0104020302F3"},
		{"read firmware major", AppendRead(nil, 1, FirmwareMajor), "FFFF0104020001F7"},
		{"read firmware minor", AppendRead(nil, 1, FirmwareMinor), "FFFF0104020101F6"},
		{"read position", AppendRead(nil, 1, PresentPosition), "FFFF0104023802BE"},
		{"torque on", AppendWrite(nil, 1, TorqueEnable, 1), "FFFF0104032801CE"},
		{"torque off", AppendWrite(nil, 1, TorqueEnable, 0), "FFFF0104032800CF"},
		{"goal 2048", AppendWrite(nil, 1, GoalPosition, 2048), "FFFF0105032A0008C4"},
		{"homing offset -100", AppendWrite(nil, 1, HomingOffset, 0x0864), "FFFF0105031F64086B"},
		{"unlock", AppendWrite(nil, 1, Lock, 0), "FFFF0104033700C0"},
		{"lock", AppendWrite(nil, 1, Lock, 1), "FFFF0104033701BF"},
		{"lock at a new id", AppendWrite(nil, 6, Lock, 1), "FFFF0604033701BA"},
		{"return delay 0", AppendWrite(nil, 1, ReturnDelayTime, 0), "FFFF0104030700F0"},
		{"maximum acceleration", AppendWrite(nil, 1, MaximumAcceleration, 254), "FFFF01040355FEA4"},
		{"wheel mode", AppendWrite(nil, 1, OperatingMode, 1), "FFFF0104032101D5"},
		{"sync write goal", AppendSyncWrite(nil, GoalPosition, six, same(2048, 6)), "FFFFFE16832A02010008020008030008040008050008060008F7"},
		{"sync read position", AppendSyncRead(nil, 56, 2, six), "FFFFFE0A82380201020304050626"},
		{"sync read three registers", AppendSyncRead(nil, 56, 6, six), "FFFFFE0A82380601020304050622"},
		{"torque off all", AppendSyncWrite(nil, TorqueEnable, six, same(0, 6)), "FFFFFE1083280101000200030004000500060030"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.ToUpper(hex.EncodeToString(tt.got)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	const good = "FF FF 01 04 00 10 08 E2"
	tests := []struct {
		name      string
		in        string
		params    int
		wantFrame string
		wantRest  string
	}{
		{"a whole reply", good, 2, good, ""},
		{"any number of parameters", "FF FF 01 11 00 10 08 32 80 7B 04 79 22 00 00 00 00 00 0C 00 FD", -1, "FF FF 01 11 00 10 08 32 80 7B 04 79 22 00 00 00 00 00 0C 00 FD", ""},
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			frame, rest := Cut(unhex(t, tt.in), tt.params)
			if !bytes.Equal(frame, unhex(t, tt.wantFrame)) || !bytes.Equal(rest, unhex(t, tt.wantRest)) {
				t.Errorf("Cut(%s, %d) = % X, % X, want %s, %s", tt.in, tt.params, []byte(frame), rest, tt.wantFrame, tt.wantRest)
			}
		})
	}
}

// The vendor's recorded replies, as values.
func TestFrameValues(t *testing.T) {
	tests := []struct {
		name  string
		reply string
		reg   Register
		want  int
		fault Fault
	}{
		{"model", "FF FF 01 04 00 09 03 EE", ModelNumber, 777, 0},
		{"position", "FF FF 01 04 00 18 05 DD", PresentPosition, 1304, 0},
		{"negative position", "FF FF 02 04 00 64 80 15", PresentPosition, -100, 0},
		{"overload", "FF FF 01 04 20 10 08 C2", PresentPosition, 2064, FaultOverload},
	}
	for _, tt := range tests {
		frame, _ := Cut(unhex(t, tt.reply), tt.reg.Width())
		if frame == nil {
			t.Fatalf("%s: Cut found no frame", tt.name)
		}
		if got := tt.reg.Decode(parseWord(frame.Params())); got != tt.want || frame.Fault() != tt.fault {
			t.Errorf("%s: got %d, fault %02X, want %d, fault %02X", tt.name, got, frame.Fault(), tt.want, tt.fault)
		}
	}
}

// Property: whatever the bytes, Cut makes progress and stays within them, every
// frame it returns is intact and cuts to itself, and what it leaves waiting is
// shorter than a frame.
func FuzzCut(f *testing.F) {
	for _, s := range []string{"FF FF FF 01 04 00 10 08 E2", "FF FF 01 04 00 10 FF FF 02 04 00 20 08 D1", "FF FF 01 F4 00", "FF FF 01 02 01 FB FF"} {
		f.Add(unhex(f, s), 2)
		f.Add(unhex(f, s), -1)
	}
	f.Fuzz(func(t *testing.T, in []byte, params int) {
		params = max(-1, min(maxLen-2, params))
		for rest := in; len(rest) > 0; {
			frame, next := Cut(rest, params)
			if len(frame)+len(next) > len(rest) || len(next) > 0 && &next[len(next)-1] != &rest[len(rest)-1] {
				t.Fatalf("Cut(% X) = % X, % X: not within the input", rest, []byte(frame), next)
			}
			if frame == nil {
				if len(next) > 0 && len(next) >= maxLen+4 {
					t.Fatalf("Cut(% X) leaves %d bytes waiting, more than a frame", rest, len(next))
				}
				return
			}
			if again, tail := Cut(frame, params); !bytes.Equal(again, frame) || len(tail) != 0 {
				t.Fatalf("frame % X does not cut to itself", []byte(frame))
			}
			if params >= 0 && len(frame.Params()) != params {
				t.Fatalf("frame % X has %d parameters, want %d", []byte(frame), len(frame.Params()), params)
			}
			rest = next
		}
	})
}

// Property: a good reply behind any torn or damaged bytes is found once no
// earlier candidate can still claim its bytes, that is once one more frame's
// worth of silence-breaking bytes has come.
func FuzzCutFindsReplyBehindNoise(f *testing.F) {
	f.Add([]byte{0xFF, 0xFF, 1, 4, 0})
	f.Add([]byte{0xFF})
	f.Fuzz(func(t *testing.T, noise []byte) {
		want := []byte{0xFF, 0xFF, 3, 4, 0, 0x30, 0x08, 0xC0}
		in := append(append([]byte(nil), noise...), want...)
		covered := len(noise)
		for rest := in; ; {
			frame, next := Cut(rest, 2)
			if frame == nil {
				t.Fatalf("Cut(% X) never found the reply behind %d bytes of noise", in, len(noise))
			}
			end := len(in) - len(next)
			if bytes.Equal(frame, want) && end == len(in) {
				return
			}
			if end > covered {
				return // the noise ends in a frame that shares bytes with the reply: nobody can tell
			}
			rest = next
		}
	})
}

func BenchmarkAppendSyncWrite(b *testing.B) {
	words := same(2048, 6)
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendSyncWrite(buf[:0], GoalPosition, six, words)
	}
}
