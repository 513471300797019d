package servosim

import (
	"bytes"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// spoil injects one fault.
func spoil(f Fault) func(*Bus) {
	return func(b *Bus) {
		rttest.PanicOn(b.Inject(Script{Faults: []Fault{f}}))
	}
}

func TestScriptedFaults(t *testing.T) {
	const (
		ping1     = "FF FF 01 02 01 FB"
		syncRead3 = "FF FF FE 07 82 38 02 01 02 03 38"
	)
	for _, tt := range []struct {
		name           string
		set            func(*Bus)
		request, reply string
		next           string // reply to the same request after the fault
	}{
		{"a mute servo", func(b *Bus) { b.Mute(1, true) }, ping1, "", ""},
		{"back again", func(b *Bus) {
			b.Mute(1, true)
			b.Mute(1, false)
		}, ping1, "FF FF 01 02 00 FC", "FF FF 01 02 00 FC"},
		{"a dropped reply", spoil(Fault{Kind: "drop", IDs: []uint8{2}, Count: 1}), syncRead3,
			"FF FF 01 04 00 10 08 E2 | FF FF 03 04 00 30 08 C0",
			"FF FF 01 04 00 10 08 E2 | FF FF 02 04 00 20 08 D1 | FF FF 03 04 00 30 08 C0"},
		{"a corrupt reply", spoil(Fault{Kind: "garble", IDs: []uint8{1}, Count: 1}), ping1, "FF FF 01 02 55 FC",
			"FF FF 01 02 00 FC"},
		{"an error byte", func(b *Bus) {
			b.SetFault(1, 0x20)
		}, "FF FF 01 04 02 38 02 BE", "FF FF 01 04 20 10 08 C2", "FF FF 01 04 20 10 08 C2"},
		{"an error byte in an acknowledgement", func(b *Bus) {
			b.SetFault(1, 1)
		}, "FF FF 01 04 03 28 00 CF", "FF FF 01 02 01 FB", "FF FF 01 02 01 FB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := dialed(t, Config{Plant: newPosed(), Clock: rttest.NewClock(1)})
			tt.set(b)
			c.ask(tt.request, tt.reply)
			c.ask(tt.request, tt.next)
		})
	}
}

func TestALateReplyHoldsUpTheLine(t *testing.T) {
	clock := rttest.NewClock(1)
	b, c := dialed(t, Config{Clock: clock})
	spoil(Fault{Kind: "stall", IDs: []uint8{1}, Count: 1, By: 50 * time.Millisecond})(b)
	c.ask("FF FF 01 02 01 FB", "FF FF 01 02 00 FC")
	if now := time.Duration(clock.Now()); now < 50*time.Millisecond || b.Counters().Faults != 1 {
		t.Errorf("both replies after %v with %d faults, want 50ms at least and 1", now, b.Counters().Faults)
	}
}

func TestAnIDChangeIsAcknowledgedByTheOldID(t *testing.T) {
	_, c := dialed(t, Config{Clock: rttest.NewClock(1)})
	c.ask("FF FF 01 04 03 05 09 E9", "FF FF 01 02 00 FC")
	c.ask("FF FF 01 02 01 FB", "")
	c.ask("FF FF 09 04 03 37 01 B7", "FF FF 09 02 00 F4")
}

func TestTwoServosOfOneIDAnswerOnTopOfEachOther(t *testing.T) {
	b, c := dialed(t, Config{IDs: []uint8{1, 1, 6}, Clock: rttest.NewClock(1)})
	c.send(append(unhex(t, "FF FF 01 02 01 FB"), ping...))
	got := bytes.Clone(c.receive(12, patience))
	if len(got) != 12 || checksum(got[2:5]) == got[5] || b.Counters().Collisions != 1 {
		t.Errorf("two servos answer % X with %d collisions, want a wrong checksum and 1", got, b.Counters().Collisions)
	}
}

func TestReturnLevelZeroAnswersReadsOnly(t *testing.T) {
	_, c := dialed(t, Config{Plant: newPosed(), Clock: rttest.NewClock(1)})
	// the answer still follows the return level from before the write
	c.ask("FF FF 01 04 03 08 00 EF", "FF FF 01 02 00 FC")
	c.ask("FF FF 01 04 03 28 01 CE", "")
	c.ask("FF FF 01 02 01 FB", "FF FF 01 02 00 FC")
	c.ask("FF FF 01 04 02 38 02 BE", "FF FF 01 04 00 10 08 E2")
}

// setBaud sets the client's baud rate.
func (c *client) setBaud(baud int) {
	t := rttest.OrPanic(unix.IoctlGetTermios(c.fd, unix.TCGETS2))
	t.Cflag = t.Cflag&^unix.CBAUD | unix.BOTHER
	t.Ispeed, t.Ospeed = uint32(baud), uint32(baud)
	rttest.PanicOn(unix.IoctlSetTermios(c.fd, unix.TCSETS2, t))
}

func TestTheWrongBaudRateIsNotHeard(t *testing.T) {
	b, c := dialed(t, Config{Clock: rttest.NewClock(1)})
	c.setBaud(500_000)
	c.send(unhex(t, "FF FF 01 02 01 FB"))
	rttest.Eventually(t, "the request", func() bool { return b.Counters().WrongBaud == 1 })
	c.setBaud(1_000_000)
	c.ask("FF FF 01 04 03 06 01 F0", "FF FF 01 02 00 FC") // from now on the servo is at 500,000 bit/s
	c.ask("FF FF 01 02 01 FB", "")
	c.setBaud(500_000)
	c.send(unhex(t, "FF FF 01 02 01 FB"))
	if got := c.receive(6, patience); !bytes.Equal(got, unhex(t, "FF FF 01 02 00 FC")) {
		t.Errorf("at its new rate servo 1 answers % X", got)
	}
}

// A client that never reads loses bytes. The bus continues and counts them.
func TestAClientThatDoesNotReadLosesBytes(t *testing.T) {
	b, c := dialed(t, Config{Unpaced: true})
	request := unhex(t, "FF FF 01 04 02 00 F8 00") // its answer has 254 bytes
	for b.Counters().Overflow == 0 {
		if _, err := unix.Write(c.fd, request); err != nil && err != unix.EAGAIN {
			t.Fatal(err)
		}
		if b.Counters().Replies > 10_000 {
			t.Fatal("10,000 unread replies fit into the terminal")
		}
	}
	c.close()
	again := dial(t, b)
	rttest.Eventually(t, "an answer after the flood", func() bool {
		unix.Write(again.fd, ping) // the ping may get lost while old requests and replies fill the buffers
		return bytes.HasSuffix(again.receive(len(again.buf), 20*time.Millisecond), pong)
	})
}
