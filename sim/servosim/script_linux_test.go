package servosim

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

func parseScript(t *testing.T, text string) Script {
	t.Helper()
	return rttest.Must(ParseScript([]byte(text)))(t)
}

func TestScriptsThatAreNone(t *testing.T) {
	for _, text := range []string{
		"faults: [{kind: dorp}]", "faults: [{kind: drop, probability: 2}]", "faults: [{kind: drop, probability: .nan}]",
		"faultz: []",
		"faults: [{kind: drop, from: 2s, until: 1s}]", "faults: [{kind: noise, bytes: 65}]",
		"faults: [{kind: brownout, volts: -1}]",
		"faults: [{kind: drop, ids: [300]}]", "faults: [{}]", "faults: [{kind: late, by: soon}]", "faults: 1", "{",
		"faults:\n" + strings.Repeat("  - {kind: drop}\n", faultLinesMax+1),
		"faults: [{kind: voltage}]", "faults: [{kind: voltage, volts: 99}]", "faults: [{kind: encoder}]",
		"faults: [{kind: encoder, drift: .nan}]", "faults: [{kind: encoder, offset: 9999999}]",
		"faults: [{kind: block, at: 9999999}]", "faults: [{kind: block, at: here}]",
		"faults: [{kind: flood, bytes: 65}]",
		"faults: [{kind: power, until: -1s}]", "faults: [{kind: drop, probability: 0}]",
		"faults: [{kind: corrupt, bits: 65}]",
	} {
		rttest.FailsAs(t, rttest.Err(ParseScript([]byte(text))), errScript)
	}
	if _, err := LoadScript("nowhere.yaml"); !errors.Is(err, errScript) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file = %v", err)
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add([]byte("seed: 7\nfaults:\n  - {kind: drop, ids: [3], probability: 0.01}\n  - {kind: unplug, from: 8s, " +
		"until: 10s}\n"))
	f.Add([]byte("faults: [{kind: noise, bytes: 64, count: 3}]"))
	f.Add([]byte("faults: [{kind: encoder, offset: -9, drift: 1e3, stuck: true, silent: true}, {kind: block, at: 7, " +
		"holds: true}, {kind: flood, bytes: 3}, {kind: voltage, volts: 5}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseScript(text)
		if err != nil {
			if !errors.Is(err, errScript) {
				t.Fatalf("error %v is no ErrScript", err)
			}
			return
		}
		line := newTimeline(s, 2, 1)
		for i := range 3 {
			line.draw(i%2, &servo{table: stsTable}, 1)
		}
		if line.next() < 1 {
			t.Fatalf("a timeline from %q wants to be looked at before its start", text)
		}
	})
}

// The faults depend on the seed and on the replies, not on the clock.
func TestAScriptIsTheSameEveryTime(t *testing.T) {
	const text = "seed: 5\nfaults: [{kind: drop, probability: 0.3}, {kind: corrupt, ids: [2], probability: 0.5}]"
	run := func(text string) []byte {
		b, c := dialed(t, Config{Faults: parseScript(t, text), Clock: rttest.NewClock(1), IDs: []uint8{1, 2, 6}})
		for n := range uint64(40) {
			c.send(unhex(t, "FF FF FE 06 82 38 02 01 02 3C"))
			rttest.Eventually(t, "the request", func() bool { return b.Counters().Requests == n+1 })
		}
		c.send(ping)
		return bytes.Clone(c.receive(len(c.buf), patience/10))
	}
	first, again := run(text), run(text)
	other := run(strings.Replace(text, "5", "6", 1))
	if len(first) < 20 || !bytes.Equal(first, again) || bytes.Equal(first, other) {
		t.Errorf("the same script gave\n% X, then\n% X, and with another seed\n% X", first, again, other)
	}
}

func TestScriptedRepliesAreSpoiled(t *testing.T) {
	const request, reply = "FF FF FE 07 82 38 02 01 02 03 38",
		"FF FF 01 04 00 10 08 E2 | FF FF 02 04 00 20 08 D1 | FF FF 03 04 00 30 08 C0"
	whole := unhex(t, reply)
	first := whole[:8]
	second := whole[8:16]
	third := whole[16:]
	for _, tt := range []struct {
		fault string
		want  []byte
	}{
		{"{kind: drop, ids: [2]}", slices.Concat(first, third)},
		{"{kind: duplicate, ids: [2]}", slices.Concat(first, second, second, third)},
		{"{kind: truncate, ids: [2]}", slices.Concat(first, second[:4], third)},
		{"{kind: reorder, ids: [1]}", slices.Concat(second, first, third)},
		{"{kind: drop, ids: [2], from: 1h}", whole},
		{"{kind: mute, ids: [3]}", slices.Concat(first, second)},
		{"{kind: late, ids: [1], by: 1us}", slices.Concat(first, second, third)},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			_, c := dialed(t, Config{Plant: newPosed(), Clock: rttest.NewClock(1),
				Faults: parseScript(t, "faults: ["+tt.fault+"]")})
			c.send(unhex(t, request))
			if got := c.receive(len(tt.want), patience); !bytes.Equal(got, tt.want) {
				t.Errorf("got % X, want % X", got, tt.want)
			}
		})
	}
	for fault, forged := range map[string]bool{"{kind: wrong_id, ids: [1]}": true, "{kind: garble}": false,
		"{kind: corrupt}": false} {
		b, c := dialed(t, Config{Plant: newPosed(), Clock: rttest.NewClock(1),
			Faults: parseScript(t, "faults: ["+fault+"]")})
		c.send(unhex(t, request))
		if got := c.receive(24, patience); len(got) != 24 || bytes.Equal(got, whole) ||
			(b.Counters().Forged > 0) != forged {
			t.Errorf("%s: got % X, %d forged, want it spoiled, forged %v", fault, got, b.Counters().Forged, forged)
		}
	}
	_, c := dialed(t, Config{Plant: newPosed(), Clock: rttest.NewClock(1),
		Faults: parseScript(t, "faults: [{kind: noise, ids: [1], bytes: 5}]")})
	c.send(unhex(t, request))
	if got := c.receive(29, patience); len(got) != 29 || !bytes.Equal(got[5:], whole) {
		t.Errorf("noise: got % X, want five bytes before the replies", got)
	}
}

// A late reply comes during the next exchange.
func TestALateReplyComesWithTheNext(t *testing.T) {
	_, c := dialed(t, Config{Plant: newPosed(), Faults: parseScript(t,
		"faults: [{kind: late, ids: [1], by: 50ms, count: 1}]")})
	c.send(unhex(t, "FF FF 01 04 02 38 02 BE"))
	c.send(ping)
	late := unhex(t, "FF FF 01 04 00 10 08 E2")
	if got, want := c.receive(14, patience), slices.Concat(pong, late); !bytes.Equal(got, want) {
		t.Errorf("got % X, want the ping's answer and then the late reply", got)
	}
}

func TestAnAdapterMayEcho(t *testing.T) {
	_, c := dialed(t, Config{Echo: true, Clock: rttest.NewClock(1)})
	c.send(ping)
	if got, want := c.receive(12, patience), slices.Concat(ping, pong); !bytes.Equal(got, want) {
		t.Errorf("got % X, want the echo and the answer", got)
	}
}

// Two replies that arrive within one period of the adapter are delivered together.
func TestAnAdapterMayBeSlow(t *testing.T) {
	clock := rttest.NewClock(1)
	_, c := dialed(t, Config{Latency: 16 * time.Millisecond, Clock: clock})
	c.send(unhex(t, "FF FF FE 0A 82 38 02 01 02 03 04 05 06 26"))
	if got := c.receive(48, patience); len(got) != 48 {
		t.Fatalf("got %d bytes, want 48", len(got))
	}
	rttest.Want(t, time.Duration(clock.Now()), 16*time.Millisecond, "time of six replies")
}

func TestUnplugAndReplug(t *testing.T) {
	link := filepath.Join(t.TempDir(), "bus")
	plant := newPosed()
	b, c := dialed(t, Config{Plant: plant, Link: link})
	c.ask("FF FF 01 04 03 28 01 CE", "FF FF 01 02 00 FC")
	rttest.Do(t, b.Unplug())
	if _, err := unix.Write(c.fd, ping); err != unix.EIO {
		t.Errorf("write to an unplugged adapter = %v, want EIO", err)
	}
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link is still there: %v", err)
	}
	rttest.Do(t, b.Replug())
	rttest.Want(t, rttest.Must(os.Readlink(link))(t), b.Path(), "link")
	dial(t, b).ask("FF FF 01 02 01 FB", "FF FF 01 02 00 FC")
	if !b.TorqueEnabled()[0] || !plant.torque[0] {
		t.Error("pulling the adapter let the motor go")
	}
}

// To a servo, an unstuffed header inside a parameter is the header of another packet.
func TestUnstuffedHeadersAreHeaders(t *testing.T) {
	frame := []byte{0xFF, 0xFF, 0xFD, 0, 1, 9, 0, instWrite, xOffset, 0, 0xFF, 0xFF, 0xFD, 0xFF}
	frame = appendCRC(frame, crc(frame))
	if _, _, ok, bad := cutPacket(frame, make([]byte, 64)); ok || !bad {
		t.Errorf("taken %v, bad %v, want it dropped", ok, bad)
	}
}

func TestAFastReadEndsAtWhoIsNotThere(t *testing.T) {
	cfg := Config{Clock: rttest.NewClock(1)}
	for _, id := range []uint8{1, 2, 3} {
		cfg.Servos = append(cfg.Servos, Servo{id, "xl430-w250"})
	}
	cfg.Servos = append(cfg.Servos, Servo{4, "xl430-w250"}, Servo{5, "xl430-w250"}, Servo{6, "xl430-w250"},
		Servo{sentinel, "xl430-w250"})
	b := open(t, cfg)
	b.Mute(3, true)
	const fast = "FF FF FD 00 FE 0D 00 8A 84 00 04 00 01 02 03 04 05 06 B1 B1"
	if got := dial(t, b).exchange(b, fast); len(got) != 8+2*8 {
		t.Errorf("with motor 3 silent a fast read is answered by % X, want the blocks of 1 and 2", got)
	}
	cfg.NoFast = true
	old := open(t, cfg)
	c := dial(t, old)
	for _, fast := range []string{fast, "FF FF FD 00 FE 0D 00 9A 01 84 00 04 00 02 92 00 01 00 F9 56"} {
		if got := c.exchange(old, fast); len(got) != 0 {
			t.Errorf("old firmware answers a fast read with % X", got)
		}
	}
}

// The times of a script that is injected while the bus runs count from the injection. Lines that
// have ended make room for new lines.
func TestInject(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Hour))
	b, c := dialed(t, Config{Clock: clock, Unpaced: true})
	for range 3 * faultLinesMax {
		rttest.Do(t, b.Inject(Script{Faults: []Fault{{Kind: "mute", IDs: []uint8{3}, Until: time.Second}}}))
		clock.Advance(2 * time.Second)
		c.ask("FF FF 01 02 01 FB", "FF FF 01 02 00 FC") // makes the bus update its timeline
	}
	rttest.Do(t, b.Inject(Script{Faults: []Fault{{Kind: "mute", IDs: []uint8{3}, From: time.Second}}}))
	c.ask("FF FF 03 02 01 F9", "FF FF 03 02 00 FA")
	clock.Advance(time.Second)
	c.ask("FF FF 03 02 01 F9", "")
	rttest.FailsAs(t, b.Inject(Script{Faults: []Fault{{Kind: "mood"}}}), errScript)
}
