package servosim

import (
	"bytes"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// vector is one exchange: a request and the servos' answers, both in hex; an empty reply means that no servo
// answers. Replies to the requests in before are not checked. pins are registers with fixed values.
type vector struct {
	name, request, reply string
	before               string
	pins                 []pinned
	change               func(*Bus)
}

type pinned struct {
	id   uint8
	addr int
	data []byte
}

// place fixes the Present Position of servos 1, 2, ... of the X series.
func place(raw ...int) (p []pinned) {
	for i, r := range raw {
		p = append(p, pinned{uint8(i + 1), xPresent, []byte{byte(r), byte(r >> 8), byte(r >> 16), byte(r >> 24)}})
	}
	return p
}

const (
	ack  = "FF FF 01 02 00 FC"
	ackX = "FF FF FD 00 01 04 00 55 00 A1 0C"

	readPosition = "FF FF 01 04 02 38 02 BE"
	readX        = "FF FF FD 00 01 07 00 02 84 00 04 00 1D 15"
)

// The exchanges of the Feetech manuals and of the vendor's and LeRobot's programs.
//
// Source: vendor documents and captures of the programs' bytes; this package has made no vector.
var feetechVectors = []vector{
	{name: "F1 ping", request: "FF FF 01 02 01 FB", reply: ack},
	{name: "F2 model", request: "FF FF 01 04 02 03 02 F3", reply: "FF FF 01 04 00 09 03 EE"},
	{name: "F3 firmware, major", request: "FF FF 01 04 02 00 01 F7", reply: "FF FF 01 03 00 03 F8"},
	{name: "F4 firmware, minor", request: "FF FF 01 04 02 01 01 F6", reply: "FF FF 01 03 00 0A F1"},
	{name: "F5 position", request: readPosition, reply: "FF FF 01 04 00 10 08 E2"},
	{
		name:    "F6 position, the manual's",
		request: readPosition,
		reply:   "FF FF 01 04 00 18 05 DD",
		pins:    []pinned{{1, stsPresent, []byte{0x18, 0x05}}},
	},
	{
		name:    "F7 all that is measured",
		request: "FF FF 01 04 02 38 0F B1",
		reply:   "FF FF 01 11 00 10 08 32 80 7B 04 79 22 00 00 00 00 00 0C 00 FD",
		pins: []pinned{{1, stsPresent, []byte{0x10, 0x08, 0x32, 0x80, 0x7B, 0x04, 0x79, 0x22, 0, 0, 0, 0, 0, 0x0C,
			0}}},
	},
	{name: "F8 torque on", request: "FF FF 01 04 03 28 01 CE", reply: ack},
	{name: "F9 torque off", request: "FF FF 01 04 03 28 00 CF", reply: ack},
	{name: "F10 this is the middle", request: "FF FF 01 04 03 28 80 4F", reply: ack},
	{
		name:    "F10 and reads 2048",
		before:  "FF FF 01 04 03 28 80 4F",
		request: readPosition,
		reply:   "FF FF 01 04 00 00 08 F2",
	},
	{name: "F11 goal", request: "FF FF 01 05 03 2A 00 08 C4", reply: ack},
	{name: "F12 goal, time, speed", request: "FF FF 01 09 03 2A 00 08 00 00 E8 03 D5", reply: ack},
	{name: "F13 acceleration, goal, time, speed", request: "FF FF 01 0A 03 29 32 00 08 00 00 E8 03 A3", reply: ack},
	{name: "F14 goal -100", request: "FF FF 01 0A 03 29 32 64 80 00 00 E8 03 C7", reply: ack},
	{
		name:    "F15 a negative position",
		request: "FF FF 02 04 02 38 02 BD",
		reply:   "FF FF 02 04 00 64 80 15",
		pins:    []pinned{{2, stsPresent, []byte{0x64, 0x80}}},
	},
	{name: "F16 homing offset -100", request: "FF FF 01 05 03 1F 64 08 6B", reply: ack},
	{
		name:    "F16 moves what is read",
		before:  "FF FF 01 05 03 1F 64 08 6B",
		request: readPosition,
		reply:   "FF FF 01 04 00 74 08 7E",
	},
	{name: "F17 unlock", request: "FF FF 01 04 03 37 00 C0", reply: ack},
	{name: "F18 lock", request: "FF FF 01 04 03 37 01 BF", reply: ack},
	{name: "F19 id 1 to 7", request: "FF FF 01 04 03 05 07 EB", reply: ack},
	{
		name:    "F19 locked at the new id",
		before:  "FF FF 01 04 03 05 07 EB",
		request: "FF FF 07 04 03 37 01 B9",
		reply:   "FF FF 07 02 00 F6",
	},
	{name: "F20 baud code 0", request: "FF FF 01 04 03 06 00 F1", reply: ack},
	{name: "F21 return delay 0", request: "FF FF 01 04 03 07 00 F0", reply: ack},
	{name: "F22 maximum acceleration", request: "FF FF 01 04 03 55 FE A4", reply: ack},
	{name: "F23 wheel mode", request: "FF FF 01 04 03 21 01 D5", reply: ack},
	{name: "F24 velocity -500", request: "FF FF 01 0A 03 29 32 00 00 00 00 F4 81 21", reply: ack},
	{name: "F25 registered write", request: "FF FF 01 05 04 2A 00 04 C7", reply: ack},
	{name: "F25 action", before: "FF FF 01 05 04 2A 00 04 C7", request: "FF FF FE 02 05 FA"},
	{name: "F26 sync write", request: "FF FF FE 16 83 2A 02 01 00 08 02 00 08 03 00 08 04 00 08 05 00 08 06 00 08 F7"},
	{name: "F27 sync read", request: "FF FF FE 0A 82 38 02 01 02 03 04 05 06 26",
		reply: "FF FF 01 04 00 10 08 E2 | FF FF 02 04 00 20 08 D1 | FF FF 03 04 00 30 08 C0 | FF FF 04 04 00 40 08 AF" +
			"FF FF 05 04 00 50 08 9E | FF FF 06 04 00 60 08 8D"},
	{
		name:    "F28 sync read with velocity and load",
		request: "FF FF FE 0A 82 38 06 01 02 03 04 05 06 22",
		reply: "FF FF 01 08 00 10 08 32 80 7B 04 AD | FF FF 02 08 00 20 08 32 80 7B 04 9C | FF FF 03 08 00 30 08 32 " +
			"80 7B 04 8B" +
			"FF FF 04 08 00 40 08 32 80 7B 04 7A | FF FF 05 08 00 50 08 32 80 7B 04 69 | FF FF 06 08 00 60 08 32 80 " +
			"7B 04 58",
		pins: effort(1, 2, 3, 4, 5, 6),
	},
	{name: "F29 sync write of seven bytes",
		request: "FF FF FE 34 83 29 07 01 32 01 08 00 00 E8 03 02 32 02 08 00 00 E8 03 03 32 03 08 00 00 E8 03" +
			"04 32 04 08 00 00 E8 03 05 32 05 08 00 00 E8 03 06 32 06 08 00 00 E8 03 12"},
	{name: "F30 torque off in one frame", request: "FF FF FE 10 83 28 01 01 00 02 00 03 00 04 00 05 00 06 00 30"},
	{name: "F30 torque off for all", request: "FF FF FE 04 03 28 00 D2"},
	{
		name:    "F32 overload with a position",
		request: readPosition,
		reply:   "FF FF 01 04 20 10 08 C2",
		change:  func(b *Bus) { b.SetFault(1, faultOverload) },
	},
	{
		name:    "F32 voltage with an acknowledgement",
		request: "FF FF 01 04 03 28 00 CF",
		reply:   "FF FF 01 02 01 FB",
		change:  func(b *Bus) { b.SetFault(1, faultVoltage) },
	},
	{name: "F33 reboot", request: "FF FF 01 02 08 F4"},
}

// effort pins velocity -50 and load -123.
func effort(ids ...uint8) (p []pinned) {
	for _, id := range ids {
		p = append(p, pinned{id, 58, []byte{0x32, 0x80, 0x7B, 0x04}})
	}
	return p
}

const syncReadX = "FF FF FD 00 FE 0D 00 82 84 00 04 00 01 02 03 04 05 06 B2 9B"

var six = place(2064, 2080, 2096, 2112, 2128, 2144)

// Source: ROBOTIS e-manual, and captures of DynamixelSDK's bytes.
var xVectors = []vector{
	{name: "D1 ping", request: "FF FF FD 00 01 03 00 01 19 4E", reply: "FF FF FD 00 01 07 00 55 00 24 04 2E FE DF"},
	{name: "D4 position", request: readX, reply: "FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78", pins: six},
	{
		name:    "D4 position, the manual's",
		request: readX,
		reply:   "FF FF FD 00 01 08 00 55 00 A6 00 00 00 8C C0",
		pins:    place(166),
	},
	{name: "D5 torque on", request: "FF FF FD 00 01 06 00 03 40 00 01 DB 66", reply: ackX},
	{name: "D6 goal 2048", request: "FF FF FD 00 01 09 00 03 74 00 00 08 00 00 42 89", reply: ackX},
	{name: "D7 goal 512", request: "FF FF FD 00 01 09 00 03 74 00 00 02 00 00 CA 89", reply: ackX},
	{name: "D8 a stuffed goal beyond every range", request: "FF FF FD 00 01 0A 00 03 74 00 FF FF FD FD 00 21 E7",
		reply: "FF FF FD 00 01 04 00 55 04 BA 8C"},
	{
		name:    "D9 a stuffed position",
		request: readX,
		reply:   "FF FF FD 00 01 09 00 55 00 FF FF FD FD 00 D8 9C",
		pins:    []pinned{{1, xPresent, []byte{0xFF, 0xFF, 0xFD, 0}}},
	},
	{
		name:    "D9 with an FD behind it",
		request: readX,
		reply:   "FF FF FD 00 01 09 00 55 00 FF FF FD FD FD D5 1E",
		pins:    []pinned{{1, xPresent, []byte{0xFF, 0xFF, 0xFD, 0xFD}}},
	},
	{name: "D10 registered write", request: "FF FF FD 00 01 09 00 04 74 00 00 04 00 00 C1 0E", reply: ackX},
	{name: "D10 registered write, the manual's", request: "FF FF FD 00 01 09 00 04 68 00 C8 00 00 00 AE 8E",
		reply: ackX},
	{name: "D10 action for all", request: "FF FF FD 00 FE 03 00 05 2A C2"},
	{name: "D10 action", request: "FF FF FD 00 01 03 00 05 02 CE", reply: ackX},
	{name: "D11 reboot", request: "FF FF FD 00 01 03 00 08 2F 4E", reply: ackX},
	{name: "D12 clear the turns", request: "FF FF FD 00 01 08 00 10 01 44 58 4C 22 B1 DC", reply: ackX},
	{name: "D13 factory reset, keeping id and baud rate", request: "FF FF FD 00 01 04 00 06 02 AB E6", reply: ackX},
	{name: "D13 factory reset, keeping the id", request: "FF FF FD 00 01 04 00 06 01 A1 E6", reply: ackX},
	{
		name:    "D14 sync read",
		request: syncReadX,
		pins:    six,
		reply: "FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78 | FF FF FD 00 02 08 00 55 00 20 08 00 00 B0 B2 | FF FF " +
			"FD 00 03 08 00 55 00 30 08 00 00 D5 74" +
			"FF FF FD 00 04 08 00 55 00 40 08 00 00 E1 A7 | FF FF FD 00 05 08 00 55 00 50 08 00 00 84 61 | FF FF FD " +
			"00 06 08 00 55 00 60 08 00 00 2E AB",
	},
	{
		name:    "D15 fast sync read",
		request: "FF FF FD 00 FE 0D 00 8A 84 00 04 00 01 02 03 04 05 06 B1 B1",
		pins:    six,
		reply: "FF FF FD 00 FE 31 00 55 00 01 10 08 00 00 E1 CF 00 02 20 08 00 00 57 CC 00 03 30 08 00 00 FE E1 00 " +
			"04 40 08 00 00 E9 6F" +
			"00 05 50 08 00 00 64 AC 00 06 60 08 00 00 B9 47",
	},
	{
		name:    "D15 fast sync read, the manual's",
		request: "FF FF FD 00 FE 0A 00 8A 84 00 04 00 03 07 04 20 F2",
		reply:   "FF FF FD 00 FE 19 00 55 00 03 A6 00 00 00 84 08",
		pins:    []pinned{{3, xPresent, []byte{0xA6, 0, 0, 0}}},
	}, // servo 7 does not exist
	{name: "D16 sync write", request: "FF FF FD 00 FE 25 00 83 74 00 04 00 01 00 08 00 00 02 00 08 00 00 03 00 08 00 " +
		"00 04 00 08 00 00 05 00 08 00 00 06 00 08 00 00 81 BB"},
	{name: "D16 sync write, the manual's",
		request: "FF FF FD 00 FE 11 00 83 74 00 04 00 01 96 00 00 00 02 AA 00 00 00 82 87"},
	{name: "D17 sync read of two", request: "FF FF FD 00 FE 09 00 82 84 00 04 00 01 02 CE FA", pins: place(166, 2079),
		reply: "FF FF FD 00 01 08 00 55 00 A6 00 00 00 8C C0 | FF FF FD 00 02 08 00 55 00 1F 08 00 00 BA BE"},
	{name: "D18 bulk read", request: "FF FF FD 00 FE 0D 00 92 01 84 00 04 00 02 92 00 01 00 FA 7C", pins: warm(six),
		reply: "FF FF FD 00 01 08 00 55 00 10 08 00 00 1A 78 | FF FF FD 00 02 05 00 55 00 00 53 A9"},
	{
		name:    "D19 fast bulk read",
		request: "FF FF FD 00 FE 0D 00 9A 01 84 00 04 00 02 92 00 01 00 F9 56",
		pins:    warm(six),
		reply:   "FF FF FD 00 FE 0E 00 55 00 01 10 08 00 00 C1 45 00 02 00 DF E1",
	},
	{name: "D20 bulk write", request: "FF FF FD 00 FE 12 00 93 01 74 00 04 00 00 08 00 00 02 41 00 01 00 01 6F E1"},
	{name: "D22 operating mode under torque", before: "FF FF FD 00 01 06 00 03 40 00 01 DB 66",
		request: "FF FF FD 00 01 06 00 03 0B 00 04 59 63", reply: "FF FF FD 00 01 04 00 55 07 B0 8C"},
	{
		name:    "D23 an alert with a position",
		request: readX,
		reply:   "FF FF FD 00 01 08 00 55 80 10 08 00 00 19 C4",
		pins:    six,
		change:  func(b *Bus) { b.SetFault(1, 0x20) },
	},
	{
		name:    "D23 hardware error",
		request: "FF FF FD 00 01 07 00 02 46 00 01 00 3C A3",
		reply:   "FF FF FD 00 01 05 00 55 80 20 99 21",
		change:  func(b *Bus) { b.SetFault(1, 0x20) },
	},
	{name: "D24 watchdog", request: "FF FF FD 00 01 06 00 03 62 00 05 68 E4", reply: ackX},
	{name: "D24 watchdog cleared", request: "FF FF FD 00 01 06 00 03 62 00 00 76 E4", reply: ackX},
	{name: "D24 watchdogs of all",
		request: "FF FF FD 00 FE 13 00 83 62 00 01 00 01 05 02 05 03 05 04 05 05 05 06 05 A8 6A"},
	{name: "D25 torque off for all", request: "FF FF FD 00 FE 06 00 03 40 00 00 2E 16"},
	{name: "D26 return delay 0", request: "FF FF FD 00 01 06 00 03 09 00 00 69 63", reply: ackX},
	{name: "D27 4 Mbaud", request: "FF FF FD 00 01 06 00 03 08 00 06 6A E3", reply: ackX},
	{name: "D28 indirect map",
		request: "FF FF FD 00 01 19 00 03 A8 00 7E 00 7F 00 80 00 81 00 82 00 83 00 84 00 85 00 86 00 87 00 8C 7B",
		reply:   ackX},
}

// warm pins servo 2's temperature at 0.
func warm(p []pinned) []pinned { return append([]pinned{{2, 146, []byte{0}}}, p...) }

// D21: the requests that read load, velocity and position. Every client checks the CRCs of the
// replies.
var axVectors = []vector{
	{name: "A1 ping", request: "FF FF 01 02 01 FB", reply: ack},
	{name: "A2 model", request: "FF FF 01 04 02 00 02 F6", reply: "FF FF 01 04 00 0C 00 EE"},
	{name: "A3 position", request: "FF FF 01 04 02 24 02 D2", reply: "FF FF 01 04 00 01 02 F7", pins: at513},
	{
		name:    "A4 all that is measured",
		request: "FF FF 01 04 02 24 08 CC",
		reply:   "FF FF 01 0A 00 01 02 00 00 00 00 70 20 61",
		pins:    append(at513, pinned{1, 43, []byte{32}}),
	},
	{
		name:    "A5 temperature",
		request: "FF FF 01 04 02 2B 01 CC",
		reply:   "FF FF 01 03 00 20 DB",
		pins:    []pinned{{1, 43, []byte{32}}},
	},
	{name: "A6 torque on", request: "FF FF 01 04 03 18 01 DE", reply: ack},
	{name: "A7 goal 512", request: "FF FF 01 05 03 1E 00 02 D6", reply: ack},
	{
		name:    "A7 takes torque",
		before:  "FF FF 01 05 03 1E 00 02 D6",
		request: "FF FF 01 04 02 18 01 DF",
		reply:   "FF FF 01 03 00 01 FA",
	},
	{name: "A8 goal and speed", request: "FF FF 01 07 03 1E 00 02 64 00 70", reply: ack},
	{name: "A9 sync write", request: "FF FF FE 0D 83 1E 02 01 00 02 02 00 02 03 00 02 45"},
	{name: "A10 registered write", request: "FF FF 01 05 04 1E 00 02 D5", reply: ack},
	{name: "A10 action", request: "FF FF FE 02 05 FA"},
	{name: "A11 reset", request: "FF FF 01 02 06 F6", reply: ack},
	{
		name:    "A13 overload with a position",
		request: "FF FF 01 04 02 24 02 D2",
		reply:   "FF FF 01 04 20 01 02 D7",
		pins:    at513,
		change:  func(b *Bus) { b.SetFault(1, axOverload) },
	},
	{name: "A13 goal out of range", request: "FF FF 01 05 03 1E D0 07 01", reply: "FF FF 01 02 08 F4"},
	{name: "A14 wheel mode", request: "FF FF 01 07 03 06 00 00 00 00 EE", reply: ack},
	{name: "A14 reverse", request: "FF FF 01 05 03 20 64 04 6E", reply: ack},
	{name: "A14 lock", request: "FF FF 01 04 03 2F 01 C7", reply: ack},
	{name: "a sync read is not known", request: "FF FF FE 0A 82 38 02 01 02 03 04 05 06 26"},
	{name: "A14 bulk read is not known", request: "FF FF FE 09 92 00 02 01 1E 02 02 24 1D"},
	{name: "a wrong checksum is answered", request: "FF FF 01 02 01 FA", reply: "FF FF 01 02 10 EC"},
}

var at513 = []pinned{{1, axPresent, []byte{1, 2}}}

func TestVectors(t *testing.T) {
	for _, series := range []struct {
		model   string
		vectors []vector
		posed   bool
	}{
		{"sts3215", feetechVectors, true}, {"xl430-w250", xVectors, false},
		{"ax-12a", axVectors, false},
		{"xl330-m288", []vector{{name: "D2 ping", request: "FF FF FD 00 01 03 00 01 19 4E",
			reply: "FF FF FD 00 01 07 00 55 00 B0 04 34 B2 D4"}}, false},
	} {
		for _, v := range series.vectors {
			t.Run(series.model+"/"+v.name, func(t *testing.T) { v.check(t, series.model, series.posed) })
		}
	}
}

// sentinel is a servo that gets a ping after every request, so that no test waits for silence.
const sentinel = 200

func (v *vector) check(t *testing.T, model string, posed bool) {
	cfg := Config{Clock: rttest.NewClock(1)}
	if posed {
		cfg.Plant = newPosed()
	}
	for id := range uint8(6) {
		cfg.Servos = append(cfg.Servos, Servo{id + 1, model})
	}
	cfg.Servos = append(cfg.Servos, Servo{sentinel, model})
	b := open(t, cfg)
	for _, p := range v.pins {
		b.pinSensor(p.id, p.addr, p.data)
	}
	if v.change != nil {
		v.change(b)
	}
	c := dial(t, b)
	if v.before != "" {
		c.exchange(b, v.before)
	}
	if got, want := c.exchange(b, v.request), unhex(t, v.reply); !bytes.Equal(got, want) {
		t.Errorf("%s is answered by % X, want %s", v.request, got, v.reply)
	}
}

// exchange sends a request and returns its replies.
func (c *client) exchange(b *Bus, request string) []byte {
	c.t.Helper()
	c.send(unhex(c.t, request))
	ask, answer := unhex(c.t, "FF FF C8 02 01 34"), unhex(c.t, "FF FF C8 02 00 35")
	if b.protocol2 {
		f := []byte{0xFF, 0xFF, 0xFD, 0, sentinel, 3, 0, instPing}
		ask = appendCRC(f, crc(f))
		m := b.servos[6].model
		answer = appendPacket(nil, sentinel, 0, []byte{byte(m.number), byte(m.number >> 8), m.firmware[0]})
	}
	c.send(ask)
	var all []byte
	for !bytes.HasSuffix(all, answer) {
		got := c.receive(1, patience)
		if len(got) == 0 {
			c.t.Fatalf("%s: no sentinel behind % X", strings.TrimSpace(request), all)
		}
		all = append(all, got...)
	}
	return bytes.TrimSuffix(all, answer)
}

// All servos answer a broadcast ping, one after the other, in the order of their ids.
func TestEverybodyAnswersAPingForAll(t *testing.T) {
	for _, tt := range []struct{ model, request, reply string }{
		{"sts3215", "FF FF FE 02 01 FE", "FF FF 01 02 00 FC | FF FF 02 02 00 FB | FF FF 03 02 00 FA"},
		{"xl430-w250", "FF FF FD 00 FE 03 00 01 31 42",
			"FF FF FD 00 01 07 00 55 00 24 04 2E FE DF | FF FF FD 00 02 07 00 55 00 24 04 2E F4 EF"},
	} {
		t.Run(tt.model, func(t *testing.T) {
			want := unhex(t, tt.reply)
			_, c := dialed(t, Config{Servos: []Servo{{3, tt.model}, {2, tt.model},
				{1, tt.model}}[3-strings.Count(tt.reply, "|")-1:], Clock: rttest.NewClock(1)})
			c.send(unhex(t, tt.request))
			if got := c.receive(len(want), patience); !bytes.Equal(got, want) {
				t.Errorf("ping for all is answered by % X, want %s", got, tt.reply)
			}
		})
	}
}

// pinSensor fixes bytes of a servo's memory: from addr on they read as data, whatever the servo measures.
func (b *Bus) pinSensor(id uint8, addr int, data []byte) {
	b.alter([]uint8{id}, func(s *servo, _ rt.Instant) {
		for i, v := range data {
			s.pin[addr+i] = pin{true, v}
		}
	})
}
