package servosim

import (
	"bytes"
	"testing"
)

func TestCutResynchronises(t *testing.T) {
	tests := []struct {
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
		{"a wrong checksum costs one byte", []byte{0xFF, 0xFF, 6, 2, 1, 0xF7}, 0, 0, 1, false, true},
		{"not complete", []byte{0xFF, 0xFF, 6, 2, 1}, 0, 0, 0, false, false},
		{"only noise", []byte{1, 2, 3}, 0, 0, 3, false, false},
		{"noise and a beginning", []byte{1, 2, 0xFF}, 0, 0, 2, false, false},
		{"a length of nothing", []byte{0xFF, 0xFF, 6, 1, 1, 0xF7}, 0, 0, 6, false, false},
		{"a length beyond the limit", []byte{0xFF, 0xFF, 6, 251, 1, 1}, 0, 0, 6, false, false},
		{"nothing", nil, 0, 0, 0, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, used, ok, bad := cut(tt.in)
			if r.id != tt.id || r.inst != tt.inst || used != tt.used || ok != tt.ok || bad != tt.bad {
				t.Errorf("cut(% X) = id %d, instruction %d, used %d, %v, %v, want %d, %d, %d, %v, %v",
					tt.in, r.id, r.inst, used, ok, bad, tt.id, tt.inst, tt.used, tt.ok, tt.bad)
			}
		})
	}
}

// Property: whatever the bytes, cut makes progress or waits for a frame that fits
// the buffer, uses no more than there is, and a request it returns is intact.
func FuzzCut(f *testing.F) {
	f.Add([]byte{0xFF, 0xFF, 1, 2, 1, 0xFB})
	f.Add([]byte{0, 0xFF, 0xFF, 0xFF, 0xFE, 10, 0x82, 56, 2, 1, 2, 3, 4, 5, 6, 0x26, 0xFF})
	f.Add([]byte{0xFF, 0xFF, 1, 250, 3})
	f.Fuzz(func(t *testing.T, in []byte) {
		for rest := in; ; {
			r, used, ok, bad := cut(rest)
			if used < 0 || used > len(rest) || (bad && (ok || used == 0)) {
				t.Fatalf("cut uses %d of %d, ok %v, bad %v", used, len(rest), ok, bad)
			}
			if ok {
				frame := rest[used-len(r.params)-frameOverhead : used]
				again := appendStatus(nil, r.id, r.inst, r.params) // the same shape
				if !bytes.Equal(again, frame) {
					t.Fatalf("request % X is not the frame % X", again, frame)
				}
			}
			if used == 0 {
				if len(rest) >= lengthMax+4 {
					t.Fatalf("%d bytes are not enough for a frame", len(rest))
				}
				return
			}
			rest = rest[used:]
		}
	})
}

// Property: no request can make a servo panic or answer more than a frame holds.
func FuzzServo(f *testing.F) {
	f.Add(uint8(instWrite), []byte{40, 1, 0, 0, 8})
	f.Add(uint8(instRead), []byte{250, 250})
	f.Add(uint8(instRegWrite), []byte{5, 254, 9})
	f.Fuzz(func(t *testing.T, inst uint8, params []byte) {
		if len(params) > lengthMax-2 || !wellFormed(request{1, inst, params}) {
			return
		}
		cfg := Config{}
		if err := cfg.check(); err != nil {
			t.Fatal(err)
		}
		s := new(servo)
		s.powerUp(&cfg, 0, 1, 1)
		for i := range 3 {
			data, _ := s.obey(request{1, inst, params}, nil, 2)
			s.obey(request{1, instAction, nil}, nil, 3)
			if len(data) > dataMax {
				t.Fatalf("round %d: a reply of %d bytes, want at most %d", i, len(data), dataMax)
			}
		}
		if !s.hears(bauds[s.mem[regBaud]]) || s.mem[regID] > idMax {
			t.Fatalf("baud code %d, id %d", s.mem[regBaud], s.mem[regID])
		}
	})
}
