package servosim

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// A control cycle of six servos at 1 Mbaud takes 260 us for a sync write, 140 us for a request and
// 80 us for each of six replies; each reply begins 50 us after the bytes before it.
func TestRepliesArriveAtTheWiresPace(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cfg     Config
		request string
		reply   int
		want    time.Duration
	}{
		{"sync read", Config{}, "FF FF FE 0A 82 38 02 01 02 03 04 05 06 26", 48, 920 * time.Microsecond},
		{"sync write and sync read at once", Config{},
			"FF FF FE 16 83 2A 02 01 00 08 02 00 08 03 00 08 04 00 08 05 00 08 06 00 08 F7" +
				"FF FF FE 0A 82 38 02 01 02 03 04 05 06 26", 48, 1180 * time.Microsecond},
		{"slower wire", Config{Baud: 500_000}, "FF FF 01 02 01 FB", 6, 290 * time.Microsecond},
		{"no pace", Config{Unpaced: true}, "FF FF FE 0A 82 38 02 01 02 03 04 05 06 26", 48, 0},
		{"a return delay of 100 units", Config{}, "FF FF 01 04 03 07 64 8C FF FF 01 02 01 FB", 12,
			500 * time.Microsecond},
		{"a slot stays empty", Config{}, "FF FF FE 07 82 38 02 01 09 02 32", 16, 500 * time.Microsecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := rttest.NewClock(1_000_000)
			tt.cfg.Clock = clock
			_, c := dialed(t, tt.cfg)
			c.send(unhex(t, tt.request))
			if got := c.receive(tt.reply, patience); len(got) != tt.reply {
				t.Fatalf("got %d bytes, want %d", len(got), tt.reply)
			}
			rttest.Want(t, clock.Now().Sub(1_000_000), tt.want, "time of the last reply")
		})
	}
}

func TestADroppedReplyStillTakesItsTime(t *testing.T) {
	clock := rttest.NewClock(1_000_000)
	b, c := dialed(t, Config{Clock: clock})
	spoil(Fault{Kind: "drop", IDs: []uint8{1}, Count: 1})(b)
	c.send(append(unhex(t, "FF FF 01 02 01 FB"), ping...))
	if got := c.receive(6, patience); !bytes.Equal(got, pong) {
		t.Fatalf("got % X, want % X", got, pong)
	}
	// In microseconds: the request takes 60, the turnaround 50, the lost answer of the first servo
	// 60, the second turnaround 50, and the second answer 60.
	rttest.Want(t, clock.Now().Sub(1_000_000), 280*time.Microsecond, "time of the second reply")
}

// diary is a plant that records the instants of its calls.
type diary struct {
	*posed
	clock   rt.Clock
	goals   []rt.Instant
	present []rt.Instant
	early   bool // the bus made a call for an instant that lies in the future
}

func (d *diary) Goal(now rt.Instant, joint, raw int) {
	d.goals = append(d.goals, now)
	d.early = d.early || d.clock.Now() < now
}

func (d *diary) Present(now rt.Instant, joint int) int {
	d.present = append(d.present, now)
	return d.posed.Present(now, joint)
}

// A goal takes effect when its frame has left the wire. A servo measures its position when it
// begins to answer.
func TestThePlantIsAskedAtTheInstantsOfTheWire(t *testing.T) {
	const start = 1_000_000
	clock := rttest.NewClock(start)
	plant := &diary{posed: newPosed(), clock: clock}
	b, c := dialed(t, Config{Plant: plant, Clock: clock, IDs: []uint8{1, 6}})
	c.send(unhex(t, "FF FF FE 0A 83 2A 02 01 00 08 06 00 08 31 FF FF FE 06 82 38 02 01 06 38"))
	if got := c.receive(16, patience); len(got) != 16 {
		t.Fatalf("got %d bytes, want 16", len(got))
	}
	b.Close() // from now on only the test uses the plant
	us := func(n int) rt.Instant { return start + rt.Instant(n)*rt.Instant(time.Microsecond) }
	if want := []rt.Instant{us(140), us(140)}; !slices.Equal(plant.goals, want) || plant.early {
		t.Errorf("goals at %v, early %v, want %v", plant.goals, plant.early, want)
	}
	if want := []rt.Instant{us(290), us(420)}; !slices.Equal(plant.present[len(plant.present)-2:], want) {
		t.Errorf("positions at %v, want %v in the end", plant.present, want)
	}
}

// watchedClock counts the wire's readings of the time.
type watchedClock struct {
	*rttest.Clock
	looks atomic.Int64
}

func (c *watchedClock) Now() rt.Instant {
	defer c.looks.Add(1)
	return c.Clock.Now()
}

// Half a request of a killed client does not swallow the next client's request.
func TestHalfAFrameIsForgottenAfterASilence(t *testing.T) {
	clock := &watchedClock{Clock: rttest.NewClock(1)}
	b, c := dialed(t, Config{Clock: clock})
	looks := clock.looks.Load()
	c.send([]byte{0xFF, 0xFF, 1, 200, 3}) // 199 bytes are missing
	rttest.Eventually(t, "the wire to read", func() bool { return clock.looks.Load() > looks })
	clock.Advance(interByteMax + time.Millisecond)
	c.ask("FF FF 01 02 01 FB", "FF FF 01 02 00 FC")
	rttest.Want(t, b.Counters().GarbageBytes, 5, "GarbageBytes")
}

func TestAFrameMayComeInPieces(t *testing.T) {
	clock := &watchedClock{Clock: rttest.NewClock(1)}
	_, c := dialed(t, Config{Clock: clock})
	for _, part := range []byte{0xFF, 0xFF, 1, 2, 1} {
		looks := clock.looks.Load()
		c.send([]byte{part})
		rttest.Eventually(t, "the wire to read", func() bool { return clock.looks.Load() > looks })
		clock.Advance(interByteMax)
	}
	c.ask("FB", "FF FF 01 02 00 FC")
}

func TestCloseHangsUpAndRemovesTheLink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus")
	rttest.Do(t, os.Symlink("/nowhere", path))
	b := open(t, Config{Link: path})
	rttest.Want(t, rttest.Must(os.Readlink(path))(t), b.Path(), "link")
	c := dial(t, b)
	b.Close()
	b.Close() // does nothing
	if n, err := unix.Write(c.fd, ping); err != unix.EIO {
		t.Errorf("write after Close = %d, %v, want EIO", n, err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the link is still there: %v", err)
	}
}

func TestALinkSparesWhatIsNotALink(t *testing.T) {
	path := rttest.WriteFile(t, t.TempDir(), "file", "precious")
	if b, err := Open(Config{Link: path}); !errors.Is(err, ErrLink) {
		b.Close()
		t.Errorf("Open with a file at its link = %v, want ErrLink", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "precious" {
		t.Errorf("the file now holds %q", got)
	}
}

func TestALinkIsOfOneRunningBus(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bus")
	alias := filepath.Join(dir, "alias")
	rttest.Do(t, os.Symlink(dir, alias))
	first := open(t, Config{Link: path})
	for _, name := range []string{path, dir + "/./bus", filepath.Join(alias, "bus")} {
		b, err := Open(Config{Link: name})
		if err == nil {
			b.Close()
		}
		rttest.FailsAs(t, err, ErrLink, name, "another link")
	}
	if target, _ := os.Readlink(path); target != first.Path() {
		t.Errorf("link = %q, want the first bus at %s", target, first.Path())
	}
	open(t, Config{Link: filepath.Join(dir, "other")})
	rttest.Do(t, first.Unplug())
	if b, err := Open(Config{Link: path}); !errors.Is(err, ErrLink) {
		b.Close()
		t.Errorf("a second bus while the first is unplugged: %v, want ErrLink", err)
	}
	first.Close()
	open(t, Config{Link: path})
}

// When Open fails, its link stays free for the next bus.
func TestAFailedOpenHoldsNoLink(t *testing.T) {
	path := rttest.WriteFile(t, t.TempDir(), "bus", "")
	if _, err := Open(Config{Link: path}); !errors.Is(err, ErrLink) {
		t.Fatalf("Open with a file at its link = %v, want ErrLink", err)
	}
	rttest.Do(t, os.Remove(path))
	open(t, Config{Link: path})
}

func TestCloseLeavesAnothersLink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus")
	b := open(t, Config{Link: path})
	rttest.Do(t, link("/nowhere", path))
	b.Close()
	if target, _ := os.Readlink(path); target != "/nowhere" {
		t.Errorf("link = %q, want that of somebody else", target)
	}
}

func TestCloseEndsTheGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		b := open(t, Config{})
		b.Close()
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines after 20 buses, %d before", after, before)
	}
}

func TestClientsMayComeAndGo(t *testing.T) {
	b := open(t, Config{Unpaced: true})
	for range 50 {
		c := dial(t, b)
		c.ask("FF FF 01 02 01 FB", "FF FF 01 02 00 FC")
		c.close()
	}
}

// The bus has its own descriptor of the terminal. Nevertheless, the close of the last client has
// the effects of the last close of a real tty.
func TestTheLastCloseDropsTheReplyAndTheExclusiveUse(t *testing.T) {
	b := open(t, Config{Unpaced: true})
	first := dial(t, b)
	rttest.Do(t, unix.IoctlSetInt(first.fd, unix.TIOCEXCL, 0))
	first.send(ping)
	rttest.Eventually(t, "a reply", func() bool { return b.Counters().Replies == 1 })
	first.close()
	rttest.Eventually(t, "the claim to end", func() bool {
		v, err := unix.IoctlGetInt(b.pty.slave, unix.TIOCGEXCL)
		return err == nil && v == 0
	})
	dial(t, b).ask("FF FF 01 02 01 FB", "FF FF 01 02 00 FC")
}

func TestOpenRefusesWhatNoBusHas(t *testing.T) {
	for _, cfg := range []Config{{IDs: []uint8{}}, {IDs: []uint8{253}}, {IDs: make([]uint8, 254)}, {Baud: 9600}} {
		if b, err := Open(cfg); err == nil {
			b.Close()
			t.Errorf("Open(%d ids, %d baud) succeeds", len(cfg.IDs), cfg.Baud)
		}
	}
}

// A control cycle allocates nothing in the whole process, so a program that contains a bus can keep
// the same rule.
func TestACycleNoAlloc(t *testing.T) {
	b, c := dialed(t, Config{Unpaced: true})
	request := unhex(t, "FF FF FE 16 83 2A 02 01 00 08 02 00 08 03 00 08 04 00 08 05 00 08 06 00 08 F7"+
		"FF FF FE 0A 82 38 02 01 02 03 04 05 06 26 FF FF 01 04 03 28 01 CE")
	cycle := func() {
		c.send(request)
		if got := c.receive(54, patience); len(got) != 54 {
			t.Fatalf("got %d bytes, want 54", len(got))
		}
	}
	for range 50 {
		cycle()
	}
	rttest.NoAllocs(t, "a cycle allocates %v times, want 0", 500, cycle)
	if on := b.TorqueEnabled(); slices.Contains(on, false) {
		t.Errorf("TorqueEnabled() = %v, want all: a goal takes torque", on)
	}
}

func BenchmarkCycle(b *testing.B) {
	bus := open(b, Config{Unpaced: true})
	c := dial(b, bus)
	request := unhex(b, "FF FF FE 16 83 2A 02 01 00 08 02 00 08 03 00 08 04 00 08 05 00 08 06 00 08 F7"+
		"FF FF FE 0A 82 38 02 01 02 03 04 05 06 26")
	b.ReportAllocs()
	for b.Loop() {
		c.send(request)
		if got := c.receive(48, patience); len(got) != 48 {
			b.Fatalf("got %d bytes, want 48", len(got))
		}
	}
}
