package link

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	return rttest.Must(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
}

func framed(batch []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(nil, uint16(len(batch))), batch...)
}

// Goal: a bad handshake is refused, with a reason if the official code sends one.
func TestAcceptRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, send, want string
		err              string
	}{
		{"version 8", "0108f211223344", "0302", "version"},
		{"role 3", "01093311223344", "0302", "out of range"},
		{"zero id", "01093200000000", "0302", "zero"},
		{"batch of 10 bytes", "4109 32 11223344 0a 0a00", "0302", "want at least 64"},
		{"mandatory extension", "810932112233441e", "0302", "mandatory"},
		{"InitAck", "2109321122334404deadbeef", "0302", "want InitSyn"},
		{"keep-alive first", "04", "0302", "want InitSyn"},
		{"frame first", "2505", "0302", "want InitSyn"},
		{"close first", "0300", "0302", "normal"},
		{"empty", "", "0302", "want InitSyn"},
		{"cut", "0109f211", "0302", "ends"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := tcpPair(t)
			a.Write(framed(unhex(t, tt.send)))
			_, err := Accept(b, config(2, codec.Peer), anyone)
			b.Close()
			rttest.Fails(t, err, tt.err)
			if got, _ := io.ReadAll(a); hex.EncodeToString(got) != hex.EncodeToString(framed(unhex(t, tt.want))) {
				t.Errorf("refusal = %x, want %s", got, tt.want)
			}
		})
	}
	t.Run("larger than a handshake", func(t *testing.T) {
		a, b := tcpPair(t)
		a.Write([]byte{0xff, 0xff, 1})
		rttest.FailsAs(t, rttest.Err(Accept(b, config(2, codec.Peer), nil)), ErrForeign)
	})
}

// answer acts as an acceptor with the given answers.
func answer(t *testing.T, conn net.Conn, replies ...string) {
	buf := make([]byte, 1024)
	for _, r := range replies {
		if _, err := conn.Read(buf); err != nil {
			return
		}
		conn.Write(framed(unhex(t, r)))
	}
}

func TestDialRefuses(t *testing.T) {
	const ack = "a109 31 aabbccdd 04deadbeef 01"
	for _, tt := range []struct {
		name    string
		replies []string
		err     string
	}{
		{"client at the other end", []string{"2109 32 aabbccdd 04deadbeef"}, "both ends are clients"},
		{"raised resolution", []string{"6109 31 aabbccdd 0f ffff 04deadbeef"}, "raised the resolution"},
		{"batch of 10 bytes", []string{"6109 31 aabbccdd 0a 0a00 04deadbeef"}, "at least 64"},
		{"raised patch", []string{"a109 31 aabbccdd 04deadbeef 2702"}, "raised the patch"},
		{"InitSyn", []string{"0109 31 aabbccdd"}, "want InitAck"},
		{"closed by the peer", []string{"0304"}, "already connected"},
		{"closed after OpenSyn", []string{ack, "0302"}, "invalid"},
		{"OpenSyn", []string{ack, "02 9040 00 04deadbeef"}, "wrong side"},
		{"lease of 1 ms", []string{ack, "22 01 00"}, "lease is 1ms"},
		{"lease of 0", []string{ack, "62 00 00"}, "lease is 0s"},
		{"lease of a day", []string{ack, "62 80a305 00"}, "lease is 24h"},
		{"cookie longer than its batch", []string{"2109 31 aabbccdd ff0f dead"}, "ends"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := tcpPair(t)
			go answer(t, b, tt.replies...)
			rttest.Fails(t, rttest.Err(Dial(t.Context(), a, config(1, codec.Client))), tt.err)
		})
	}
	t.Run("silence until the context ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, _ := net.Pipe()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if _, err := Dial(ctx, a, config(1, codec.Client)); err == nil || time.Since(began) != time.Second {
				t.Errorf("Dial = %v after %v, want an error after 1s", err, time.Since(began))
			}
		})
	})
}

// rawSession returns a link whose remote is simulated by raw bytes. sn is the first sequence number of the remote, as
// agreed in the handshake.
func rawSession(t testing.TB) (l *Link, raw net.Conn, sn uint32) {
	t.Helper()
	ours, theirs := anyPair(t)
	return theirs, ours.conn, ours.out.sn[0]
}

// Goal: malformed bytes end the link with Close INVALID and never cause a panic. Old or unknown messages do not end the
// link.
func TestInboundBytes(t *testing.T) {
	frame := func(sn uint32, body string) []byte {
		return append(codec.AppendFrame(nil, codec.Lane{Reliable: true, SN: sn, Priority: 5}), unhex(t, body)...)
	}
	const put = "7d00066465 6d6f2f6101026869"
	for _, tt := range []struct {
		name    string
		batch   func(sn uint32) []byte
		pushes  int
		invalid bool
	}{
		{"two pushes", func(sn uint32) []byte { return frame(sn, put+put) }, 2, false},
		{"two frames", func(sn uint32) []byte { return append(frame(sn, put), frame(sn+1, put)...) }, 2, false},
		{"the same frame twice", func(sn uint32) []byte { return append(frame(sn, put), frame(sn, put)...) }, 1, false},
		{"an older frame", func(sn uint32) []byte { return append(frame(sn+5, put), frame(sn+1, put)...) }, 1, false},
		{"a frame from half the circle away", func(sn uint32) []byte {
			return frame((sn+1<<27)&0x0fffffff, put)
		}, 0, false},
		{"a gap", func(sn uint32) []byte { return frame(sn+100, put) }, 1, false},
		{"OAM", func(sn uint32) []byte { return frame(sn, "df0121080100"+put) }, 1, false},
		{"empty batch", func(sn uint32) []byte { return nil }, 0, false},
		{"keep-alive before a frame", func(sn uint32) []byte { return append([]byte{4}, frame(sn, put)...) }, 1, false},
		{"push cut short", func(sn uint32) []byte { return frame(sn, put[:len(put)-2]) }, 0, true},
		{"payload length of 4 GiB", func(sn uint32) []byte {
			return frame(sn, "7d000664656d6f2f6101ffffffff0f68")
		}, 0, true},
		{"payload length of 9 bytes", func(sn uint32) []byte {
			return frame(sn, "7d000664656d6f2f6101ffffffffffffffffff")
		}, 0, true},
		{"scope beyond 16 bits", func(sn uint32) []byte { return frame(sn, "7d808004") }, 0, true},
		{"key that is not UTF-8", func(sn uint32) []byte { return frame(sn, "7d0002fffe01026869") }, 0, true},
		{"key of 1025 bytes", func(sn uint32) []byte {
			return append(frame(sn, "7d008108"), append(bytes.Repeat([]byte{'a'}, 1025), 1, 0)...)
		}, 0, true},
		{"unknown mandatory extension", func(sn uint32) []byte {
			return frame(sn, "7d000664656d6f2f618116026869")
		}, 0, true},
		{"unknown extension", func(sn uint32) []byte { return frame(sn, "7d000664656d6f2f618106026869") }, 1, false},
		{"17 extensions", func(sn uint32) []byte {
			return frame(sn, "7d000664656d6f2f6181"+strings.Repeat("86", 16)+"06026869")
		}, 0, true},
		{"reserved extension encoding", func(sn uint32) []byte {
			return frame(sn, "7d000664656d6f2f618166026869")
		}, 0, true},
		{"number beyond the mask", func(sn uint32) []byte { return frame(1<<28, put) }, 0, true},
		{"Init in an open session", func(sn uint32) []byte { return unhex(t, "01093211223344") }, 0, true},
		{"transport message 8", func(sn uint32) []byte { return []byte{8} }, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, raw, sn := rawSession(t)
			raw.Write(framed(tt.batch(sn)))
			raw.Write(framed([]byte{codec.IDClose, 0}))
			pushes := 0
			err := l.Run(func(m *codec.Message) error {
				if m.Kind == codec.KindPush {
					pushes++
				}
				return nil
			})
			var malformed codec.Error
			if errors.As(err, &malformed) != tt.invalid || pushes != tt.pushes {
				t.Errorf("Run = %v after %d pushes, want invalid %v after %d", err, pushes, tt.invalid, tt.pushes)
			}
			if tt.invalid && l.cfg.Counters.Malformed.Load() != 1 {
				t.Errorf("counted %d malformed, want 1", l.cfg.Counters.Malformed.Load())
			}
			got, _ := io.ReadAll(raw)
			if tt.invalid && !bytes.Contains(got, framed([]byte{codec.IDClose, byte(codec.CloseInvalid)})) {
				t.Errorf("the peer got % x, want a Close INVALID", got)
			}
		})
	}
}

// Goal: fragments are joined to whole messages, or dropped and counted. They never take more memory than the limits
// allow.
func TestReassembly(t *testing.T) {
	msg := codec.AppendPush(nil, numbered(7, 5000))
	third := len(msg) / 3
	a := msg[:third]
	b := msg[third : 2*third]
	c := msg[2*third:]
	first := codec.Lane{First: true, More: true}
	more := codec.Lane{More: true}
	last := codec.Lane{}
	type step struct {
		lane  codec.Lane
		piece []byte
		skip  uint32 // sequence numbers lost before this fragment
	}
	for _, tt := range []struct {
		name  string
		steps []step
		whole int
		lost  uint64
	}{
		{"three fragments", []step{{first, a, 0}, {more, b, 0}, {last, c, 0}}, 1, 0},
		{"one is missing", []step{{first, a, 0}, {more, b, 1}, {last, c, 0}}, 0, 1},
		{"begins anew", []step{{first, a, 0}, {first, a, 0}, {more, b, 0}, {last, c, 0}}, 1, 1},
		{"no first", []step{{more, b, 0}, {last, c, 0}}, 0, 0},
		{"dropped by the sender", []step{{first, a, 0}, {codec.Lane{Drop: true}, nil, 0}, {first, a, 0}, {more, b, 0},
			{last, c, 0}}, 1, 1},
		{"does not decode", []step{{first, []byte{0x7d, 0xff}, 0}, {last, []byte{0xff}, 0}, {first, a, 0}, {more, b, 0},
			{last, c, 0}}, 1, 1},
		{"larger than a message may be", append([]step{{first, a, 0}},
			slices.Repeat([]step{{more, make([]byte, 60_000), 0}}, 80)...), 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, raw, sn := rawSession(t)
			go func() {
				for _, s := range tt.steps {
					s.lane.Reliable, s.lane.Priority = true, 5
					s.lane.SN = (sn + s.skip) & l.mask
					sn += 1 + s.skip
					raw.Write(framed(append(codec.AppendFragment(nil, s.lane), s.piece...)))
				}
				raw.Write(framed([]byte{codec.IDClose, 0}))
			}()
			whole := 0
			l.Run(func(m *codec.Message) error {
				if m.Kind == codec.KindPush && bytes.Equal(m.Push.Data.Payload, numbered(7, 5000).Data.Payload) {
					whole++
				}
				return nil
			})
			if got := l.cfg.Counters.Unassembled.Load(); whole != tt.whole || got != tt.lost {
				t.Errorf("%d messages whole and %d lost, want %d and %d", whole, got, tt.whole, tt.lost)
			}
			rttest.Want(t, l.cfg.Budget.Used(), 0, "bytes of the budget that are still taken")
		})
	}
}

// Goal: when the budget is exhausted, the link that holds the most is ended and the present request is refused. Later
// requests can use the freed memory.
func TestBudgetIsShared(t *testing.T) {
	b := NewBudget(300 << 10)
	var ended []string
	a := b.join("", func() { ended = append(ended, "a") })
	c := b.join("", func() { ended = append(ended, "c") })
	one, two := partial{limit: 1 << 20, mem: &a}, partial{limit: 1 << 20, mem: &c}
	first := codec.Lane{First: true, More: true}
	one.add(make([]byte, 130<<10), first, true, true)
	if held := b.Used(); held < 130<<10 || held != cap(one.buf) {
		t.Errorf("130 kB are counted as %d, want the buffer's %d", held, cap(one.buf))
	}
	if _, lost := two.add(make([]byte, 70<<10), first, true, true); lost || len(ended) != 1 || ended[0] != "a" {
		t.Errorf("a smaller holder did not get the largest one's room: lost %v, ended %v", lost, ended)
	}
	if _, lost := one.add(make([]byte, 400<<10), codec.Lane{More: true}, true, true); !lost {
		t.Error("an ended link took more")
	}
	a.close()
	if _, lost := two.add(make([]byte, 240<<10), codec.Lane{More: true}, true, true); !lost || len(ended) != 1 {
		t.Errorf("who holds the most took more: lost %v, ended %v", lost, ended)
	}
	c.close()
	rttest.Want(t, b.Used(), 0, "bytes in use after all was given back")
}

// Goal: a message whose remaining fragments do not arrive frees its memory.
func TestFragmentTimeout(t *testing.T) {
	l, _, _ := rawSession(t)
	p := &l.in.partial[0]
	p.add(make([]byte, 5<<20)[:3<<20], codec.Lane{First: true, More: true}, true, true)
	l.in.expire(time.Now())
	if !p.open {
		t.Error("given up at once")
	}
	l.in.expire(time.Now().Add(fragmentTimeout + time.Second))
	if p.open || l.cfg.Counters.Unassembled.Load() != 1 {
		t.Errorf("still open: %v, counted %d", p.open, l.cfg.Counters.Unassembled.Load())
	}
}

// Goal: the announced length of a batch allocates nothing before the batch's bytes arrive.
func TestClaimedLengthCostsNothing(t *testing.T) {
	l, raw, _ := rawSession(t)
	raw.Write([]byte{0xff, 0xfe})
	raw.Write(make([]byte, 100))
	raw.Close()
	rttest.Fails(t, rttest.Err(l.in.stream.next()))
	rttest.Want(t, len(l.in.stream.buf), baseBuffer, "bytes of the buffer for 102 that came")
}

// Property: on any bytes, the reader of an open link neither panics nor hangs, and afterwards it holds nothing of the
// budget.
func FuzzInbox(f *testing.F) {
	f.Add(append(codec.AppendFrame(nil, codec.Lane{Reliable: true, Priority: 5}),
		codec.AppendPush(nil, numbered(1, 9))...))
	f.Add(append(codec.AppendFragment(nil, codec.Lane{First: true, More: true, Priority: 5}), 1, 2, 3))
	f.Add([]byte{codec.IDKeepAlive, codec.IDClose, 0})
	f.Add(unhex(f, "a500310 0be09210866 00000c64656d6f2f6c6976652f7231be0921081a"))
	f.Fuzz(func(t *testing.T, batch []byte) {
		cfg := config(1, codec.Client)
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		offer := cfg.offer()
		l := open(a, cfg, &offer, &offer, time.Second, 0, 0)
		for n := len(batch)/3 + 1; len(batch) > 0; {
			n = min(n, len(batch))
			if l.in.parse(batch[:n], func(m *codec.Message) error {
				if m.Kind == codec.KindPush && len(m.Push.Data.Payload) > 1<<20 {
					t.Errorf("payload of %d bytes from %d", len(m.Push.Data.Payload), len(batch))
				}
				return nil
			}) != nil {
				break
			}
			batch = batch[n:]
		}
		l.mem.close()
		rttest.Want(t, cfg.Budget.Used(), 0, "bytes of the budget that are still taken")
	})
}
