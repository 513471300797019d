package servosim

import (
	"bytes"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestCutResynchronises(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in       []byte
		id, inst uint8
		used     int
		ok, bad  bool
	}{
		{"a frame", []byte{0xFF, 0xFF, 6, 2, 1, 0xF6}, 6, 1, 6, true, false},
		{"a frame and more", []byte{0xFF, 0xFF, 6, 2, 1, 0xF6, 0xFF}, 6, 1, 6, true, false},
		{"one FF too many", []byte{0xFF, 0xFF, 0xFF, 6, 2, 1, 0xF6}, 6, 1, 7, true, false},
		{"noise", []byte{0xFF, 0, 0xFF, 0xFF, 6, 2, 1, 0xF6}, 6, 1, 8, true, false},
		{"a wrong checksum costs one byte", []byte{0xFF, 0xFF, 6, 2, 1, 0xF7}, 6, 0, 1, false, true},
		{"not complete", []byte{0xFF, 0xFF, 6, 2, 1}, 0, 0, 0, false, false},
		{"only noise", []byte{1, 2, 3}, 0, 0, 3, false, false},
		{"noise and a beginning", []byte{1, 2, 0xFF}, 0, 0, 2, false, false},
		{"a length of nothing", []byte{0xFF, 0xFF, 6, 1, 1, 0xF7}, 0, 0, 6, false, false},
		{"a length beyond the limit", []byte{0xFF, 0xFF, 6, 251, 1, 1}, 0, 0, 6, false, false},
		{"nothing", nil, 0, 0, 0, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, used, ok, bad := cut(tt.in)
			if r.id != tt.id || r.inst != tt.inst || used != tt.used || ok != tt.ok || bad != tt.bad {
				t.Errorf("cut(% X) = id %d, instruction %d, used %d, %v, %v, want %d, %d, %d, %v, %v",
					tt.in, r.id, r.inst, used, ok, bad, tt.id, tt.inst, tt.used, tt.ok, tt.bad)
			}
		})
	}
}

// Property: for any input, cut makes progress or waits for the rest of a frame that fits into the
// buffer. It uses no more bytes than it gets, and returns only intact requests.
func FuzzCut(f *testing.F) {
	f.Add([]byte{0xFF, 0xFF, 1, 2, 1, 0xFB})
	f.Add([]byte{0, 0xFF, 0xFF, 0xFF, 0xFE, 10, 0x82, 56, 2, 1, 2, 3, 4, 5, 6, 0x26, 0xFF})
	f.Add([]byte{0xFF, 0xFF, 1, 250, 3})
	f.Add([]byte{0xFF, 0xFF, 0xFD, 0, 1, 3, 0, 1, 0x19, 0x4E})
	f.Add([]byte{0xFF, 0xFF, 0xFD, 0, 1, 10, 0, 3, 116, 0, 0xFF, 0xFF, 0xFD, 0xFD, 0, 0x21, 0xE7, 0xFF, 0xFF, 0xFD})
	f.Fuzz(func(t *testing.T, in []byte) {
		for rest := in; ; {
			r, used, ok, bad := cut(rest)
			if used < 0 || used > len(rest) || (bad && (ok || used == 0)) {
				t.Fatalf("cut uses %d of %d, ok %v, bad %v", used, len(rest), ok, bad)
			}
			if ok {
				frame := rest[used-len(r.params)-frameOverhead : used]
				again := appendStatus(nil, r.id, r.inst, r.params) // a request has the same shape
				if !bytes.Equal(again, frame) {
					t.Fatalf("request % X is not the frame % X", again, frame)
				}
			}
			if used == 0 {
				if len(rest) >= lengthMax+4 {
					t.Fatalf("%d bytes are not enough for a frame", len(rest))
				}
				break
			}
			rest = rest[used:]
		}
		for rest := in; ; {
			f, used, ok, bad := cutPacket(rest, make([]byte, len(in)))
			if used < 0 || used > len(rest) || ok && (used < packetOverhead || len(f.params) > used) || bad &&
				(ok || used == 0) {
				t.Fatalf("cutPacket uses %d of %d, ok %v, bad %v", used, len(rest), ok, bad)
			}
			if used == 0 {
				if len(rest) >= packetHead+packetMax {
					t.Fatalf("%d bytes are not enough for a packet", len(rest))
				}
				return
			}
			rest = rest[used:]
		}
	})
}

// Property: no request makes a servo panic or send more data than a reply can hold. After any
// request the servo still has a valid id and baud rate.
func FuzzServo(f *testing.F) {
	f.Add(uint8(0), uint8(instWrite), []byte{40, 1, 0, 0, 8})
	f.Add(uint8(0), uint8(instRead), []byte{250, 250})
	f.Add(uint8(0), uint8(instRegWrite), []byte{5, 254, 9})
	f.Add(uint8(4), uint8(instWrite), []byte{116, 0, 0, 8, 0, 0})
	f.Add(uint8(4), uint8(instWrite), []byte{168, 0, 224, 0, 64, 0})
	f.Add(uint8(5), uint8(instRead), []byte{0, 0, 255, 255})
	f.Add(uint8(15), uint8(instFactoryReset), []byte{})
	f.Add(uint8(4), uint8(instPlace), []byte{0, 0})
	f.Add(uint8(15), uint8(instPlace), []byte{0, 0})
	f.Fuzz(func(t *testing.T, which, inst uint8, params []byte) {
		if len(params) > packetMax {
			return
		}
		m := models[int(which)%len(models)]
		cfg := Config{Servos: []Servo{{1, m.name}}, Plant: newPosed()}
		rttest.Do(t, cfg.check())
		r, fits := parse(frame{1, inst, params}, m.table.protocol2())
		if !fits || toMany(inst) {
			return
		}
		s := new(servo)
		s.powerUp(&cfg, new(rail), 0, 1)
		for i := range 3 {
			data, _, _ := s.obey(&r, nil, 2)
			s.obey(&request{id: 1, inst: instAction}, nil, 3)
			if len(data) > memSize {
				t.Fatalf("round %d: a reply of %d bytes, want at most %d", i, len(data), memSize)
			}
		}
		if s.rate(s.mem[s.at.baud]) == 0 || s.mem[s.at.id] > idMax {
			t.Fatalf("baud code %d, id %d", s.mem[s.at.baud], s.mem[s.at.id])
		}
	})
}
