package servosim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// vector is one exchange of testdata/vectors.txt.
type vector struct {
	name, before, request, reply string
	pins                         []pinned
	fault                        byte
}

// pinned are registers with fixed values.
type pinned struct {
	id, addr int
	data     []byte
}

// vectors returns the vectors of each model.
func vectors(t *testing.T) map[string][]vector {
	t.Helper()
	all, model := map[string][]vector{}, ""
	for line := range strings.Lines(rttest.ReadFile(t, "testdata/vectors.txt")) {
		mark, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		of := all[model]
		last := len(of) - 1
		switch {
		case mark == "" || mark == "//":
			continue
		case mark == "=":
			model = text
			continue
		case line[0] != ' ':
			of = append(of, vector{name: strings.TrimSpace(line)})
		case mark == "pin":
			var p pinned
			rttest.Must(fmt.Sscan(text, &p.id, &p.addr))(t)
			p.data = unhex(t, strings.SplitN(text, " ", 3)[2])
			of[last].pins = append(of[last].pins, p)
		case mark == "fault":
			of[last].fault = unhex(t, text)[0]
		default:
			to := map[string]*string{"before": &of[last].before, ">": &of[last].request, "<": &of[last].reply}[mark]
			*to += text
		}
		all[model] = of
	}
	return all
}

func TestVectors(t *testing.T) {
	for model, list := range vectors(t) {
		for _, v := range list {
			t.Run(model+"/"+v.name, func(t *testing.T) { v.check(t, model) })
		}
	}
}

// sentinel is a servo that gets a ping after every request, so that no test waits for silence.
const sentinel = 200

func (v *vector) check(t *testing.T, model string) {
	cfg := Config{Clock: rttest.NewClock(1)}
	if model == "sts3215" {
		cfg.Plant = newPosed()
	}
	for id := range uint8(6) {
		cfg.Servos = append(cfg.Servos, Servo{id + 1, model})
	}
	cfg.Servos = append(cfg.Servos, Servo{sentinel, model})
	b := open(t, cfg)
	for _, p := range v.pins {
		b.pinSensor(uint8(p.id), p.addr, p.data)
	}
	if v.fault != 0 {
		b.SetFault(1, v.fault)
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
		s := b.servos[6]
		answer = appendPacket(nil, sentinel, 0, []byte{s.mem[0], s.mem[1], s.mem[xFirmware]})
	}
	c.send(ask)
	var all []byte
	for !bytes.HasSuffix(all, answer) {
		got := c.receive(1, patience)
		if len(got) == 0 {
			c.t.Fatalf("%s: no sentinel after % X", strings.TrimSpace(request), all)
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

// pinSensor fixes bytes of a servo's memory. Reads at addr then return data, whatever the servo measures.
func (b *Bus) pinSensor(id uint8, addr int, data []byte) {
	b.alter([]uint8{id}, func(s *servo, _ rt.Instant) {
		for i, v := range data {
			s.pin[addr+i] = pin{true, v}
		}
	})
}
