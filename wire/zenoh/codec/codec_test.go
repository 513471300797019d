package codec

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	return rttest.Must(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
}

func TestVLE(t *testing.T) {
	for _, tt := range []struct {
		v    uint64
		want string
	}{
		{0, "00"}, {127, "7f"}, {128, "8001"}, {300, "ac02"}, {16383, "ff7f"}, {16384, "808001"},
		{65535, "ffff03"}, {65536, "808004"}, {1 << 28, "8080808001"}, {math.MaxUint32, "ffffffff0f"},
		{1<<56 - 1, "ffffffffffffff7f"}, {1 << 56, "808080808080808001"}, {1<<63 - 1, "ffffffffffffffff7f"},
		{1 << 63, "808080808080808080"}, {math.MaxUint64, "ffffffffffffffffff"},
	} {
		got := appendVLE(nil, tt.v)
		rttest.Want(t, hex.EncodeToString(got), tt.want, "appendVLE(%d)", tt.v)
		c := NewCursor(got)
		if back := c.vle(); back != tt.v || len(c.b) != 0 || c.Err() != nil {
			t.Errorf("vle(%x) = %d, %d left, %v, want %d", got, back, len(c.b), c.Err(), tt.v)
		}
		for n := range got {
			if c = NewCursor(got[:n]); c.vle() != 0 || c.Err() != ErrShort {
				t.Errorf("vle(%x) = %v, want %v", got[:n], c.Err(), ErrShort)
			}
		}
	}
}

// vectors were printed by the official codec crates. The vectors marked G are golden values of another implementation.
//
// Source: bytes that the official 1.9.0 sent.
var vectors = []struct{ name, hex string }{
	{"T1 InitSyn client, no extension", "01 09 32 11 22 33 44"},
	{"T2 InitSyn client, QoS", "81 09 32 11 22 33 44 01"},
	{"T3 InitSyn client, QoS, patch", "81 09 32 11 22 33 44 81 27 01"},
	{"T4 batch 65482", "c1 09 32 11 22 33 44 0a ca ff 81 27 01"},
	{"T6 InitSyn peer, 16-byte id", "81 09 f1 0102030405060708090a0b0c0d0e0f10 81 27 01"},
	{"T7 InitAck router", "e1 09 30 aa bb cc dd 0a ca ff 04 de ad be ef 81 27 01"},
	{"T8 InitAck peer, defaults", "21 09 31 aa bb cc dd 04 de ad be ef"},
	{"T9 OpenSyn 10 s", "42 0a 84 86 88 08 04 de ad be ef"},
	{"T10 OpenSyn 2500 ms", "02 c4 13 84 86 88 08 04 de ad be ef"},
	{"T11 OpenAck", "62 0a 00"},
	{"T12 OpenAck, largest number", "62 0a ff ff ff 7f"},
	{"T13 KeepAlive", "04"},
	{"T14 Close", "03 00"},
	{"T14 Close session", "23 07"},
	{"T15 Frame", "25 05"},
	{"T16 Frame, control", "a5 05 31 00"},
	{"T17 Frame, best effort, real time", "85 ac 02 31 01"},
	{"T18 Fragment first", "e6 06 02"},
	{"T18 Fragment middle", "66 07"},
	{"T18 Fragment last", "26 08"},
	{"T19 Fragment first, DataLow", "e6 06 b1 06 02"},
	{"T20 Fragment drop", "a6 08 03"},
	{"D1 DeclareKeyExpr", "9e 21 08 20 01 00 0a 64656d6f2f726f626f74"},
	{"D2 UndeclareKeyExpr", "9e 21 08 01 01"},
	{"D3 DeclareSubscriber", "9e 21 08 62 02 00 07 64656d6f2f2a2a"},
	{"D4 scope and suffix", "9e 21 08 62 02 01 03 2f2a2a"},
	{"D5 answer, receiver's scope", "be 07 21 08 02 03 01"},
	{"D6 UndeclareSubscriber", "9e 21 08 03 02"},
	{"D7 with an empty expression", "9e 21 08 83 02 5f 02 02 00"},
	{"D8 DeclareQueryable", "9e 21 08 64 04 00 06 64656d6f2f71"},
	{"D9 complete", "9e 21 08 e4 04 00 06 64656d6f2f71 21 01"},
	{"D9 complete, distance 1", "9e 21 08 e4 04 00 06 64656d6f2f71 21 81 02"},
	{"D10 UndeclareQueryable", "9e 21 08 85 04 5f 02 00 00"},
	{"D11 DeclareToken", "9e 21 08 66 05 00 0c 64656d6f2f6c6976652f7231"},
	{"D12 answer", "be 09 21 08 66 00 00 0c 64656d6f2f6c6976652f7231"},
	{"D13 UndeclareToken", "9e 21 08 87 05 5f 02 00 00"},
	{"D14 with its key", "9e 21 08 87 00 5f 0e 03 00 64656d6f2f6c6976652f7231"},
	{"D15 DeclareFinal", "be 09 21 08 1a"},
	{"D15 of a peer", "be 00 21 08 1a"},
	{"I1 Interest current future K+S", "f9 07 73 00 07 64656d6f2f2a2a 21 08"},
	{"I2 S only", "f9 07 72 00 07 64656d6f2f2a2a 21 08"},
	{"I3 K+Q", "f9 08 75 00 06 64656d6f2f71 21 08"},
	{"I4 current K+T", "b9 09 79 00 0b 64656d6f2f6c6976652f2a 21 08"},
	{"I5 future", "d9 0a 79 00 0b 64656d6f2f6c6976652f2a 21 08"},
	{"I6 current future", "f9 0b 79 00 0b 64656d6f2f6c6976652f2a 21 08"},
	{"I7 final", "99 07 21 08"},
	{"I7 final, default QoS (G)", "19 05"},
	{"P1 Put", "7d 00 06 64656d6f2f61 01 02 6869"},
	{"P2 scope, sender's", "5d 01 01 02 6869"},
	{"P3 scope, receiver's, suffix", "3d 01 02 2f61 01 02 6869"},
	{"P4 everything", "fd 00 06 64656d6f2f61 21 19 e1 81808080e8b8adc166 04 11223344 0a c1 07 30 11223344 02 07 43 " +
		"03 617474 02 7b7d"},
	{"P5 encoding with schema", "7d 00 06 64656d6f2f61 41 03 04 75746638 01 78"},
	{"P6 attachment", "7d 00 06 64656d6f2f61 81 43 03 617474 02 6869"},
	{"P7 block", "fd 00 06 64656d6f2f61 21 0d 01 02 6869"},
	{"P7 block first", "fd 00 06 64656d6f2f61 21 25 01 02 6869"},
	{"P8 Del", "7d 00 06 64656d6f2f61 02"},
	{"P9 Del, timestamp, attachment", "7d 00 06 64656d6f2f61 a2 81808080e8b8adc166 04 11223344 42 03 617474"},
	{"Q1 Request", "fc 01 00 06 64656d6f2f71 21 0d 03"},
	{"Q2 latest, timeout", "fc 01 00 06 64656d6f2f71 a1 0d 26 90 4e 23 03"},
	{"Q3 everything", "fc 02 00 06 64656d6f2f71 a1 0d b4 01 26 90 4e e3 01 07 613d313b623d32 c3 05 02 626f6479 45 03 " +
		"617474"},
	{"R1 Reply Put", "fb 01 00 06 64656d6f2f71 a1 0d 43 06 30 11223344 03 04 01 02 6869"},
	{"R2 Reply Del", "fb 01 00 06 64656d6f2f71 a1 0d 43 06 30 11223344 03 04 02"},
	{"R3 Err", "fb 01 00 06 64656d6f2f71 a1 0d 43 06 30 11223344 03 05 02 6e6f"},
	{"R4 Err of a router", "db 01 00 a1 0d 43 06 30 11223344 03 05 07 54696d656f7574"},
	{"R5 ResponseFinal", "9a 01 21 0d"},
	{"R5 default QoS", "1a 01"},
	{"B1 Frame with a Push", "25 05 7d 00 06 64656d6f2f61 01 02 6869"},
	{"B2 Frame with two declarations",
		"a5 01 31 00 9e 21 08 20 01 00 0a 64656d6f2f726f626f74 9e 21 08 62 02 00 07 64656d6f2f2a2a"},
	{"B4 empty batch", ""},
	{"B6 first declaration", "a5 84 86 88 08 31 00 9e 21 08 62 02 00 07 64656d6f2f2a2a"},
	{"11.6 step 6", "a5 85 86 88 08 31 00 b9 09 79 00 0b 64656d6f2f6c6976652f2a 21 08"},
	{"11.6 step 7", "a5 00 31 00 be 09 21 08 66 00 00 0c 64656d6f2f6c6976652f7231 be 09 21 08 1a"},
}

func TestVectorsBothWays(t *testing.T) {
	for _, tt := range vectors {
		want := unhex(t, tt.hex)
		if got := reencode(t, want); !bytes.Equal(got, want) {
			t.Errorf("%s: recode = % x, want % x", tt.name, got, want)
		}
	}
}

// These messages are valid, although our encoder would write them differently.
func TestAcceptedButWrittenOtherwise(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"T5 explicit default sizes (G)", "c1 09 32 11 22 33 44 0a ff ff 01", "81 09 32 11 22 33 44 01"},
		{"N1 unknown extension", "7d 00 01 61 81 06 02 6869", "7d 00 01 61 01 02 6869"},
		{"N5 QoS as a unit extension", "fd 00 01 61 01 01 02 6869", "7d 00 01 61 01 02 6869"},
		{"N6 overlong length", "7d 00 81 00 61 01 02 6869", "7d 00 01 61 01 02 6869"},
		{"N8 id with a trailing zero", "01 09 32 11 22 33 00", "01 09 22 11 22 33"},
		{"explicit default QoS", "fd 00 01 61 21 05 01 02 6869", "7d 00 01 61 01 02 6869"},
		{"O1 OAM", "df 01 21 08 01 00", ""},
	} {
		if got := reencode(t, unhex(t, tt.in)); !bytes.Equal(got, unhex(t, tt.want)) {
			t.Errorf("%s: recode(%s) = % x, want %s", tt.name, tt.in, got, tt.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     Error
	}{
		{"N2 unknown mandatory extension", "7d 00 01 61 81 16 02 6869", ErrExtension},
		{"N3 request id beyond 32 bits", "fc 80 80 80 80 10 00 01 61 03", ErrRange},
		{"N4 scope beyond 16 bits", "7d 80 80 04 01 61 01 00", ErrRange},
		{"N7 reserved extension encoding", "fd 00 01 61 61 01 00", ErrHeader},
		{"N9 zero id", "01 09 32 00 00 00 00", ErrZID},
		{"unknown target", "fc 01 00 01 61 34 03 03", ErrRange},
		{"key not UTF-8", "7d 00 01 ff 01 00", ErrText},
		{"undeclared key not UTF-8", "9e 21 08 87 00 5f 03 01 00 ff", ErrText},
		{"body of a Push is a Query", "7d 00 01 61 03", ErrHeader},
		{"unknown declaration", "9e 21 08 08", ErrHeader},
		{"node id beyond 16 bits", "fd 00 01 61 33 80 80 04 01 00", ErrRange},
		{"timestamp without an id", "7d 00 01 61 21 01 00 00", ErrZID},
		{"payload longer than the message", "7d 00 01 61 01 03 6869", ErrShort},
		{"network message in the place of a transport's", "08", ErrHeader},
	} {
		rttest.FailsAs(t, rttest.Err(recode(unhex(t, tt.in))), tt.want)
	}
}

// Parsing any proper prefix of a message gives an error or another valid message, and never panics.
func TestCutMessages(t *testing.T) {
	for _, v := range vectors {
		whole := unhex(t, v.hex)
		for n := range whole {
			recode(whole[:n:n])
		}
	}
}

func TestPushNoAlloc(t *testing.T) {
	m := Message{Kind: KindPush, Push: Push{
		Envelope: Envelope{QoS: 0x12}, Expr: Key([]byte("@lerobot/a/b/c/robot/obs")),
		Data: Data{Attachment: make([]byte, 27), Payload: make([]byte, 50_000)},
	}}
	buf := make([]byte, 0, m.Push.Size())
	c, in := new(Cursor), new(Message)
	rttest.NoAllocs(t, "AppendPush and ParseMessage allocate %v times, want 0", 1000, func() {
		buf = AppendPush(buf[:0], &m.Push)
		*c = NewCursor(buf)
		if ParseMessage(c, in) != nil || len(in.Push.Data.Payload) != 50_000 {
			t.Fatal("did not come back")
		}
	})
	if len(buf) > m.Push.Size() {
		t.Errorf("Size() = %d, AppendPush wrote %d", m.Push.Size(), len(buf))
	}
}

func FuzzBatch(f *testing.F) {
	for _, v := range vectors {
		f.Add(unhex(f, v.hex))
	}
	// Property: a message that parses is encoded to bytes that parse to the same message. They are at most a small
	// constant longer than the input.
	f.Fuzz(func(t *testing.T, in []byte) {
		once, err := recode(in)
		if err != nil {
			return
		}
		twice, err := recode(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("recode(% x) = % x, which recodes to % x, %v", in, once, twice, err)
		}
	})
}

func BenchmarkParsePush(b *testing.B) {
	msg := AppendPush(nil, &Push{Expr: Key([]byte("@lerobot/a/b/c/robot/obs")),
		Data: Data{Attachment: make([]byte, 27), Payload: make([]byte, 50_000)}})
	b.SetBytes(int64(len(msg)))
	b.ReportAllocs()
	c, m := new(Cursor), new(Message)
	for b.Loop() {
		*c = NewCursor(msg)
		ParseMessage(c, m)
	}
}
