package packet

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// vector is one exchange. The encoder must produce the request byte for byte, and Cut must return
// every status complete and with its values.
type vector struct {
	name string
	got  []byte // the encoder's bytes
	tx   string
	rx   string   // status frames, one after the other; empty: no answer
	n    int      // parameters of each
	want []string // "id err params" of each
}

func bytesOf(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "|", "").Replace(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return b
}

func runVectors(t *testing.T, f Format, vectors []vector) {
	t.Helper()
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			if want := bytesOf(t, v.tx); !bytes.Equal(v.got, want) {
				t.Errorf("request % X, want % X", v.got, want)
			}
			in := bytesOf(t, v.rx)
			for i, want := range v.want {
				r, skipped, rest, ok := f.Cut(in, v.n)
				if !ok || skipped != 0 {
					t.Fatalf("status %d: ok %v, %d bytes skipped in % X", i, ok, skipped, in)
				}
				got := strings.TrimSpace(hex.EncodeToString([]byte{r.ID}) + " " + hex.EncodeToString([]byte{r.Err}) +
					" " + hex.EncodeToString(r.Params))
				rttest.Want(t, got, want, "status %d", i)
				in = rest
			}
			if len(in) != 0 {
				t.Errorf("% X is left", in)
			}
		})
	}
}

var (
	six  = []byte{1, 2, 3, 4, 5, 6}
	ack  = "FF FF 01 02 00 FC"
	fine = []string{"01 00"}
)

func repeat(n int, b ...byte) []byte { return bytes.Repeat(b, n) }

// Instructions of the vectors that the driver never sends.
const (
	regWrite     Instruction = 0x04
	action       Instruction = 0x05
	factoryReset Instruction = 0x06
	backup       Instruction = 0x09
	resetTurns   Instruction = 0x0A
	calibrate    Instruction = 0x0B
)

// Source: reference vectors F1 to F34, from exchanges of vendor clients with a simulator.
func TestFeetechVectors(t *testing.T) {
	f := Feetech
	w := func(id byte, addr int, data ...byte) []byte { return f.AppendWrite(nil, id, addr, data) }
	runVectors(t, f, []vector{
		{"F1 ping", f.Append(nil, 1, Ping), "FF FF 01 02 01 FB", ack, 0, fine},
		{"F2 model", f.AppendRead(nil, 1, 3, 2), "FF FF 01 04 02 03 02 F3", "FF FF 01 04 00 09 03 EE", 2,
			[]string{"01 00 0903"}},
		{"F3 firmware major", f.AppendRead(nil, 1, 0, 1), "FF FF 01 04 02 00 01 F7", "FF FF 01 03 00 03 F8", 1,
			[]string{"01 00 03"}},
		{"F4 firmware minor", f.AppendRead(nil, 1, 1, 1), "FF FF 01 04 02 01 01 F6", "FF FF 01 03 00 0A F1", 1,
			[]string{"01 00 0a"}},
		{"F5 position", f.AppendRead(nil, 1, 56, 2), "FF FF 01 04 02 38 02 BE", "FF FF 01 04 00 10 08 E2", 2,
			[]string{"01 00 1008"}},
		{"F6 position of the manual", f.AppendRead(nil, 1, 56, 2), "FF FF 01 04 02 38 02 BE", "FF FF 01 04 00 18 05 DD",
			2, []string{"01 00 1805"}},
		{"F7 feedback", f.AppendRead(nil, 1, 56, 15), "FF FF 01 04 02 38 0F B1",
			"FF FF 01 11 00 10 08 32 80 7B 04 79 22 00 00 00 00 00 0C 00 FD", 15,
			[]string{"01 00 100832807b04792200000000000c00"}},
		{"F8 torque on", w(1, 40, 1), "FF FF 01 04 03 28 01 CE", ack, 0, fine},
		{"F9 torque off", w(1, 40, 0), "FF FF 01 04 03 28 00 CF", ack, 0, fine},
		{"F10 middle", w(1, 40, 128), "FF FF 01 04 03 28 80 4F", ack, 0, fine},
		{"F11 goal", w(1, 42, 0x00, 0x08), "FF FF 01 05 03 2A 00 08 C4", ack, 0, fine},
		{"F12 goal, time, speed", w(1, 42, 0, 8, 0, 0, 0xE8, 3), "FF FF 01 09 03 2A 00 08 00 00 E8 03 D5", ack, 0,
			fine},
		{"F13 acceleration too", w(1, 41, 50, 0, 8, 0, 0, 0xE8, 3), "FF FF 01 0A 03 29 32 00 08 00 00 E8 03 A3", ack, 0,
			fine},
		{"F14 negative goal", w(1, 41, 50, 0x64, 0x80, 0, 0, 0xE8, 3), "FF FF 01 0A 03 29 32 64 80 00 00 E8 03 C7", ack,
			0, fine},
		{"F15 negative position", f.AppendRead(nil, 2, 56, 2), "FF FF 02 04 02 38 02 BD", "FF FF 02 04 00 64 80 15", 2,
			[]string{"02 00 6480"}},
		{"F16 homing offset", w(1, 31, 0x64, 0x08), "FF FF 01 05 03 1F 64 08 6B", ack, 0, fine},
		{"F17 unlock", w(1, 55, 0), "FF FF 01 04 03 37 00 C0", ack, 0, fine},
		{"F18 lock", w(1, 55, 1), "FF FF 01 04 03 37 01 BF", ack, 0, fine},
		{"F19 new id", w(1, 5, 6), "FF FF 01 04 03 05 06 EC", ack, 0, fine},
		{"F19 lock there", w(6, 55, 1), "FF FF 06 04 03 37 01 BA", "FF FF 06 02 00 F7", 0, []string{"06 00"}},
		{"F20 baud", w(1, 6, 0), "FF FF 01 04 03 06 00 F1", ack, 0, fine},
		{"F21 return delay", w(1, 7, 0), "FF FF 01 04 03 07 00 F0", ack, 0, fine},
		{"F22 maximum acceleration", w(1, 85, 254), "FF FF 01 04 03 55 FE A4", ack, 0, fine},
		{"F23 wheel mode", w(1, 33, 1), "FF FF 01 04 03 21 01 D5", ack, 0, fine},
		{"F24 velocity", w(1, 41, 50, 0, 0, 0, 0, 0xF4, 0x81), "FF FF 01 0A 03 29 32 00 00 00 00 F4 81 21", ack, 0,
			fine},
		{"F25 reg write", f.Append(nil, 1, regWrite, 42, 0, 4), "FF FF 01 05 04 2A 00 04 C7", ack, 0, fine},
		{"F25 action", f.Append(nil, Broadcast, action), "FF FF FE 02 05 FA", "", 0, nil},
		{"F26 sync write", f.AppendSyncWrite(nil, 42, 2, six, repeat(6, 0, 8)),
			"FF FF FE 16 83 2A 02 01 00 08 02 00 08 03 00 08 04 00 08 05 00 08 06 00 08 F7", "", 0, nil},
		{"F27 sync read", f.AppendSyncRead(nil, 56, 2, six), "FF FF FE 0A 82 38 02 01 02 03 04 05 06 26",
			"FF FF 01 04 00 10 08 E2 | FF FF 02 04 00 20 08 D1 | FF FF 03 04 00 30 08 C0 | FF FF 04 04 00 40 08 AF | " +
				"FF FF 05 04 00 50 08 9E | FF FF 06 04 00 60 08 8D",
			2, []string{"01 00 1008", "02 00 2008", "03 00 3008", "04 00 4008", "05 00 5008", "06 00 6008"}},
		{"F28 sync read of three", f.AppendSyncRead(nil, 56, 6, six), "FF FF FE 0A 82 38 06 01 02 03 04 05 06 22",
			"FF FF 01 08 00 10 08 32 80 7B 04 AD | FF FF 02 08 00 20 08 32 80 7B 04 9C | FF FF 03 08 00 30 08 32 80 " +
				"7B 04 8B |" +
				"FF FF 04 08 00 40 08 32 80 7B 04 7A | FF FF 05 08 00 50 08 32 80 7B 04 69 | FF FF 06 08 00 60 08 32 " +
				"80 7B 04 58",
			6, []string{"01 00 100832807b04", "02 00 200832807b04", "03 00 300832807b04", "04 00 400832807b04",
				"05 00 500832807b04", "06 00 600832807b04"}},
		{"F29 sync write of four", f.AppendSyncWrite(nil, 41, 7, six, func() (d []byte) {
			for i := range six {
				d = append(d, 0x32, six[i], 0x08, 0, 0, 0xE8, 3)
			}
			return d
		}()),
			"FF FF FE 34 83 29 07 01 32 01 08 00 00 E8 03 02 32 02 08 00 00 E8 03 03 32 03 08 00 00 E8 03 04 32 04 " +
				"08 00 00 E8 03 05 32 05 08 00 00 E8 03 06 32 06 08 00 00 E8 03 12", "", 0, nil},
		{"F30 torque off, one frame", f.AppendSyncWrite(nil, 40, 1, six, make([]byte, 6)),
			"FF FF FE 10 83 28 01 01 00 02 00 03 00 04 00 05 00 06 00 30", "", 0, nil},
		{"F30 torque off, broadcast", w(Broadcast, 40, 0), "FF FF FE 04 03 28 00 D2", "", 0, nil},
		{"F31 broadcast ping", f.Append(nil, Broadcast, Ping), "FF FF FE 02 01 FE",
			"FF FF 01 02 00 FC | FF FF 02 02 00 FB | FF FF 03 02 00 FA", 0, []string{"01 00", "02 00", "03 00"}},
		{"F32 overload with data", f.AppendRead(nil, 1, 56, 2), "FF FF 01 04 02 38 02 BE", "FF FF 01 04 20 10 08 C2", 2,
			[]string{"01 20 1008"}},
		{"F32 voltage with an ack", w(1, 40, 0), "FF FF 01 04 03 28 00 CF", "FF FF 01 02 01 FB", 0, []string{"01 01"}},
		{"F33 reset turns", f.Append(nil, 1, resetTurns), "FF FF 01 02 0A F2", ack, 0, fine},
		{"F33 calibrate", f.Append(nil, 1, calibrate), "FF FF 01 02 0B F1", ack, 0, fine},
		{"F33 calibrate to 1024", f.Append(nil, 1, calibrate, 0, 4), "FF FF 01 04 0B 00 04 EB", ack, 0, fine},
		{"F33 recovery", f.Append(nil, 1, factoryReset), "FF FF 01 02 06 F6", ack, 0, fine},
		{"F33 backup", f.Append(nil, 1, backup), "FF FF 01 02 09 F3", ack, 0, fine},
		{"F33 reboot", f.Append(nil, 1, Reboot), "FF FF 01 02 08 F4", "", 0, nil},
		{"F34 SCS goal", w(1, 42, 2, 0, 0, 0, 3, 0xE8), "FF FF 01 09 03 2A 02 00 00 00 03 E8 DB", ack, 0, fine},
		{"F34 SCS position", f.AppendRead(nil, 1, 56, 2), "FF FF 01 04 02 38 02 BE", "FF FF 01 04 00 02 00 F8", 2,
			[]string{"01 00 0200"}},
		{"F34 SCS unlock", w(1, 48, 0), "FF FF 01 04 03 30 00 C7", ack, 0, fine},
	})
}

const dxlAck = "FF FF FD 00 01 04 00 55 00 A1 0C"

// Source: reference vectors D1 to D28. D8 and D9 are beyond every goal limit, so a servo would
// refuse them; as frames they are correct.
func TestDynamixelVectors(t *testing.T) {
	var d Dynamixel2
	w := func(id byte, addr int, data ...byte) []byte { return d.AppendWrite(nil, id, addr, data) }
	ping1 := d.Append(nil, 1, Ping)
	pos := d.AppendRead(nil, 1, 132, 4)
	const posTX = "FF FF FD 00 01 07 00 02 84 00 04 00 1D 15"
	all := []string{"01 00 10080000", "02 00 20080000", "03 00 30080000", "04 00 40080000", "05 00 50080000",
		"06 00 60080000"}
	runVectors(t, d, []vector{
		{"D1 ping XL430", ping1, "FF FF FD 00 01 03 00 01 19 4E", "FF FF FD 00 01 07 00 55 00 24 04 2E FE DF", 3,
			[]string{"01 00 24042e"}},
		{"D2 ping XL330", ping1, "FF FF FD 00 01 03 00 01 19 4E", "FF FF FD 00 01 07 00 55 00 B0 04 34 B2 D4", 3,
			[]string{"01 00 b00434"}},
		{"D3 broadcast ping", d.Append(nil, Broadcast, Ping), "FF FF FD 00 FE 03 00 01 31 42",
			"FF FF FD 00 01 07 00 55 00 24 04 2E FE DF | FF FF FD 00 02 07 00 55 00 24 04 2E F4 EF", 3,
			[]string{"01 00 24042e", "02 00 24042e"}},
		{"D3 of the manual", d.Append(nil, Broadcast, Ping), "FF FF FD 00 FE 03 00 01 31 42",
			"FF FF FD 00 01 07 00 55 00 06 04 26 65 5D | FF FF FD 00 02 07 00 55 00 06 04 26 6F 6D", 3,
			[]string{"01 00 060426", "02 00 060426"}},
		{"D4 position", pos, posTX, "FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78", 4, []string{"01 00 10080000"}},
		{"D4 of the manual", pos, posTX, "FF FF FD 00 01 08 00 55 00 A6 00 00 00 8C C0", 4, []string{"01 00 a6000000"}},
		{"D5 torque on", w(1, 64, 1), "FF FF FD 00 01 06 00 03 40 00 01 DB 66", dxlAck, 0, fine},
		{"D6 goal", w(1, 116, 0, 8, 0, 0), "FF FF FD 00 01 09 00 03 74 00 00 08 00 00 42 89", dxlAck, 0, fine},
		{"D7 goal", w(1, 116, 0, 2, 0, 0), "FF FF FD 00 01 09 00 03 74 00 00 02 00 00 CA 89", dxlAck, 0, fine},
		{"D8 stuffed goal", w(1, 116, 0xFF, 0xFF, 0xFD, 0), "FF FF FD 00 01 0A 00 03 74 00 FF FF FD FD 00 21 E7",
			dxlAck, 0, fine},
		{"D9 stuffed status", pos, posTX, "FF FF FD 00 01 09 00 55 00 FF FF FD FD 00 D8 9C", 4,
			[]string{"01 00 fffffd00"}},
		{"D9 with an FD behind", pos, posTX, "FF FF FD 00 01 09 00 55 00 FF FF FD FD FD D5 1E", 4,
			[]string{"01 00 fffffdfd"}},
		{"D10 reg write", d.Append(nil, 1, regWrite, 116, 0, 0, 4, 0, 0),
			"FF FF FD 00 01 09 00 04 74 00 00 04 00 00 C1 0E", dxlAck, 0, fine},
		{"D10 of the manual", d.Append(nil, 1, regWrite, 104, 0, 200, 0, 0, 0),
			"FF FF FD 00 01 09 00 04 68 00 C8 00 00 00 AE 8E", dxlAck, 0, fine},
		{"D10 action for all", d.Append(nil, Broadcast, action), "FF FF FD 00 FE 03 00 05 2A C2", "", 0, nil},
		{"D10 action", d.Append(nil, 1, action), "FF FF FD 00 01 03 00 05 02 CE", dxlAck, 0, fine},
		{"D11 reboot", d.Append(nil, 1, Reboot), "FF FF FD 00 01 03 00 08 2F 4E", dxlAck, 0, fine},
		{"D12 clear turns", d.Append(nil, 1, 0x10, 0x01, 'D', 'X', 'L', 0x22),
			"FF FF FD 00 01 08 00 10 01 44 58 4C 22 B1 DC", dxlAck, 0, fine},
		{"D13 factory reset, id and baud stay", d.Append(nil, 1, factoryReset, 2), "FF FF FD 00 01 04 00 06 02 AB E6",
			dxlAck, 0, fine},
		{"D13 factory reset, id stays", d.Append(nil, 1, factoryReset, 1), "FF FF FD 00 01 04 00 06 01 A1 E6", dxlAck,
			0, fine},
		{"D14 sync read", d.AppendSyncRead(nil, 132, 4, six),
			"FF FF FD 00 FE 0D 00 82 84 00 04 00 01 02 03 04 05 06 B2 9B",
			"FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78 | FF FF FD 00 02 08 00 55 00 20 08 00 00 B0 B2 | FF FF FD " +
				"00 03 08 00 55 00 30 08 00 00 D5 74 |" +
				"FF FF FD 00 04 08 00 55 00 40 08 00 00 E1 A7 | FF FF FD 00 05 08 00 55 00 50 08 00 00 84 61 | FF FF " +
				"FD 00 06 08 00 55 00 60 08 00 00 2E AB", 4, all},
		{"D16 sync write", d.AppendSyncWrite(nil, 116, 4, six, repeat(6, 0, 8, 0, 0)),
			"FF FF FD 00 FE 25 00 83 74 00 04 00 01 00 08 00 00 02 00 08 00 00 03 00 08 00 00 04 00 08 00 00 05 00 " +
				"08 00 00 06 00 08 00 00 81 BB", "", 0, nil},
		{"D16 of the manual", d.AppendSyncWrite(nil, 116, 4, []byte{1, 2}, []byte{0x96, 0, 0, 0, 0xAA, 0, 0, 0}),
			"FF FF FD 00 FE 11 00 83 74 00 04 00 01 96 00 00 00 02 AA 00 00 00 82 87", "", 0, nil},
		{"D17 sync read of two", d.AppendSyncRead(nil, 132, 4, []byte{1, 2}),
			"FF FF FD 00 FE 09 00 82 84 00 04 00 01 02 CE FA",
			"FF FF FD 00 01 08 00 55 00 A6 00 00 00 8C C0 | FF FF FD 00 02 08 00 55 00 1F 08 00 00 BA BE", 4,
			[]string{"01 00 a6000000", "02 00 1f080000"}},
		{"D18 bulk read", d.Append(nil, Broadcast, 0x92, 1, 132, 0, 4, 0, 2, 146, 0, 1, 0),
			"FF FF FD 00 FE 0D 00 92 01 84 00 04 00 02 92 00 01 00 FA 7C",
			"FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78 | FF FF FD 00 02 05 00 55 00 00 53 A9", -1,
			[]string{"01 00 10080000", "02 00 00"}},
		{"D19 fast bulk read", d.Append(nil, Broadcast, 0x9A, 1, 132, 0, 4, 0, 2, 146, 0, 1, 0),
			"FF FF FD 00 FE 0D 00 9A 01 84 00 04 00 02 92 00 01 00 F9 56", "", 0, nil},
		{"D20 bulk write", d.Append(nil, Broadcast, 0x93, 1, 116, 0, 4, 0, 0, 8, 0, 0, 2, 65, 0, 1, 0, 1),
			"FF FF FD 00 FE 12 00 93 01 74 00 04 00 00 08 00 00 02 41 00 01 00 01 6F E1", "", 0, nil},
		{"D21 sync read of ten bytes", d.AppendSyncRead(nil, 126, 10, six),
			"FF FF FD 00 FE 0D 00 82 7E 00 0A 00 01 02 03 04 05 06 18 B7", "", 0, nil},
		{"D21 fast", d.AppendFastSyncRead(nil, 126, 10, six),
			"FF FF FD 00 FE 0D 00 8A 7E 00 0A 00 01 02 03 04 05 06 1B 9D", "", 0, nil},
		{"D22 mode under torque", w(1, 11, 4), "FF FF FD 00 01 06 00 03 0B 00 04 59 63",
			"FF FF FD 00 01 04 00 55 07 B0 8C", 0, []string{"01 07"}},
		{"D23 alert on a good read", pos, posTX, "FF FF FD 00 01 08 00 55 80 10 08 00 00 19 C4", 4,
			[]string{"01 80 10080000"}},
		{"D23 hardware error", d.AppendRead(nil, 1, 70, 1), "FF FF FD 00 01 07 00 02 46 00 01 00 3C A3",
			"FF FF FD 00 01 05 00 55 80 20 99 21", 1, []string{"01 80 20"}},
		{"D24 watchdog", w(1, 98, 5), "FF FF FD 00 01 06 00 03 62 00 05 68 E4", dxlAck, 0, fine},
		{"D24 clear it", w(1, 98, 0), "FF FF FD 00 01 06 00 03 62 00 00 76 E4", dxlAck, 0, fine},
		{"D24 goal after it fired", w(1, 116, 0, 8, 0, 0), "FF FF FD 00 01 09 00 03 74 00 00 08 00 00 42 89",
			"FF FF FD 00 01 04 00 55 04 BA 8C", 0, []string{"01 04"}},
		{"D24 arm all six", d.AppendSyncWrite(nil, 98, 1, six, repeat(6, 5)),
			"FF FF FD 00 FE 13 00 83 62 00 01 00 01 05 02 05 03 05 04 05 05 05 06 05 A8 6A", "", 0, nil},
		{"D25 torque off", w(Broadcast, 64, 0), "FF FF FD 00 FE 06 00 03 40 00 00 2E 16", "", 0, nil},
		{"D26 return delay", w(1, 9, 0), "FF FF FD 00 01 06 00 03 09 00 00 69 63", dxlAck, 0, fine},
		{"D27 baud", w(1, 8, 6), "FF FF FD 00 01 06 00 03 08 00 06 6A E3", dxlAck, 0, fine},
		{"D28 indirect map", w(1, 168, 0x7E, 0, 0x7F, 0, 0x80, 0, 0x81, 0, 0x82, 0, 0x83, 0, 0x84, 0, 0x85, 0, 0x86, 0,
			0x87, 0),
			"FF FF FD 00 01 19 00 03 A8 00 7E 00 7F 00 80 00 81 00 82 00 83 00 84 00 85 00 86 00 87 00 8C 7B", dxlAck,
			0, fine},
		{"D28 backup", d.Append(nil, 1, 0x20, 1, 'C', 'T', 'R', 'L'), "FF FF FD 00 01 08 00 20 01 43 54 52 4C 16 F5",
			dxlAck, 0, fine},
	})
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

// Source: reference vectors A1 to A14.
func TestProtocol1Vectors(t *testing.T) {
	p := Dynamixel1
	w := func(addr int, data ...byte) []byte { return p.AppendWrite(nil, 1, addr, data) }
	runVectors(t, p, []vector{
		{"A1 ping", p.Append(nil, 1, Ping), "FF FF 01 02 01 FB", ack, 0, fine},
		{"A2 model", p.AppendRead(nil, 1, 0, 2), "FF FF 01 04 02 00 02 F6", "FF FF 01 04 00 0C 00 EE", 2,
			[]string{"01 00 0c00"}},
		{"A3 position", p.AppendRead(nil, 1, 36, 2), "FF FF 01 04 02 24 02 D2", "FF FF 01 04 00 01 02 F7", 2,
			[]string{"01 00 0102"}},
		{"A4 feedback", p.AppendRead(nil, 1, 36, 8), "FF FF 01 04 02 24 08 CC",
			"FF FF 01 0A 00 01 02 00 00 00 00 70 20 61", 8, []string{"01 00 0102000000007020"}},
		{"A5 temperature", p.AppendRead(nil, 1, 43, 1), "FF FF 01 04 02 2B 01 CC", "FF FF 01 03 00 20 DB", 1,
			[]string{"01 00 20"}},
		{"A6 torque on", w(24, 1), "FF FF 01 04 03 18 01 DE", ack, 0, fine},
		{"A7 goal", w(30, 0, 2), "FF FF 01 05 03 1E 00 02 D6", ack, 0, fine},
		{"A8 goal and speed", w(30, 0, 2, 100, 0), "FF FF 01 07 03 1E 00 02 64 00 70", ack, 0, fine},
		{"A9 sync write", p.AppendSyncWrite(nil, 30, 2, []byte{1, 2, 3}, repeat(3, 0, 2)),
			"FF FF FE 0D 83 1E 02 01 00 02 02 00 02 03 00 02 45", "", 0, nil},
		{"A10 reg write", p.Append(nil, 1, regWrite, 30, 0, 2), "FF FF 01 05 04 1E 00 02 D5", ack, 0, fine},
		{"A10 action", p.Append(nil, Broadcast, action), "FF FF FE 02 05 FA", "", 0, nil},
		{"A11 reset", p.Append(nil, 1, factoryReset), "FF FF 01 02 06 F6", ack, 0, fine},
		{"A12 id by broadcast", p.AppendWrite(nil, Broadcast, 3, []byte{1}), "FF FF FE 04 03 03 01 F6", "", 0, nil},
		{"A13 overload with data", p.AppendRead(nil, 1, 36, 2), "FF FF 01 04 02 24 02 D2", "FF FF 01 04 20 01 02 D7", 2,
			[]string{"01 20 0102"}},
		{"A13 goal out of range", w(30, 0xD0, 0x07), "FF FF 01 05 03 1E D0 07 01", "FF FF 01 02 08 F4", 0,
			[]string{"01 08"}},
		{"A14 wheel mode", w(6, 0, 0, 0, 0), "FF FF 01 07 03 06 00 00 00 00 EE", ack, 0, fine},
		{"A14 speed", w(32, 100, 4), "FF FF 01 05 03 20 64 04 6E", ack, 0, fine},
		{"A14 lock", w(47, 1), "FF FF 01 04 03 2F 01 C7", ack, 0, fine},
		{"A14 bulk read", p.Append(nil, Broadcast, 0x92, 0, 2, 1, 30, 2, 2, 36),
			"FF FF FE 09 92 00 02 01 1E 02 02 24 1D", "", 0, nil},
	})
}
