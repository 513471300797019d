//go:build linux

package v4l2

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	stdjpeg "image/jpeg"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// machineEnv marks the machine of `make test-v4l2`: /dev/video0 and video1 are the kernel's vivid
// driver, video10 is v4l2loopback. Everywhere else the tests below are skipped, because they break
// the cameras on purpose.
const machineEnv = "EDGERT_V4L2_MACHINE"

const (
	vivid    = "/dev/video0"
	loopback = "/dev/video10"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv(machineEnv) != "" && code == 0 {
		code = leaks()
	}
	os.Exit(code)
}

// leaks prints the resources that the tests have not released, and returns an exit status.
func leaks() int {
	left := 0
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(target, "/dev/video") {
			fmt.Println("LEFT descriptor", target)
			left++
		}
	}
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "/dev/video") {
			fmt.Print("LEFT mapping ", line)
			left++
		}
	}
	for end := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > 1 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // rttest.Eventually needs a testing.T, which TestMain does not have
	}
	if n := runtime.NumGoroutine(); n > 1 {
		buf := make([]byte, 1<<16)
		fmt.Printf("LEFT %d goroutines\n%s\n", n-1, buf[:runtime.Stack(buf, true)])
		left++
	}
	if left > 0 {
		return 1
	}
	fmt.Println("LEFT nothing: no descriptor, no mapping, no goroutine")
	return 0
}

func machine(t *testing.T) {
	t.Helper()
	if os.Getenv(machineEnv) == "" {
		t.Skip("runs in the machine of make test-v4l2")
	}
}

// small has a picture size that vivid can paint at full rate even on an emulated processor.
var small = Want{Width: 320, Height: 180, FPS: 25, Pixels: camera.YUYV}

func open(t *testing.T, cfg Config) *Source {
	t.Helper()
	machine(t)
	if cfg.Path == "" {
		cfg.Path = vivid
	}
	if cfg.Want == (Want{}) {
		cfg.Want = small
	}
	s := rttest.Must(Open(cfg, rt.KernelClock()))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// grab fills f with the next frame. It tries again when the emulated processor was too slow.
func grab(t *testing.T, s *Source, f *camera.Frame) {
	t.Helper()
	for range 10 {
		err := s.Grab(f)
		if err == nil {
			return
		}
		if !errors.Is(err, camera.ErrStalled) {
			t.Fatalf("Grab() = %v", err)
		}
	}
	t.Fatal("Grab() stalls for ten watchdogs")
}

// set changes a control as another program does.
func set(t *testing.T, name, value string) {
	t.Helper()
	d := rttest.Must(openDevice(vivid))(t)
	defer d.close()
	rttest.Do(t, d.apply([]Setting{{name, value}}))
}

func TestMachineLists(t *testing.T) {
	machine(t)
	all, denied := List()
	if len(all) < 2 || len(denied) > 0 || all[0].Path != vivid || all[0].Card != "vivid" {
		t.Fatalf("List() = %d cameras, %v, want vivid's two", len(all), denied)
	}
	seen := map[camera.PixelFormat]int{}
	for _, m := range all[0].Modes {
		seen[m.Pixels]++
	}
	for _, p := range []camera.PixelFormat{camera.YUYV, camera.NV12, camera.Gray8, camera.RGB8} {
		if seen[p] < 4 {
			t.Errorf("%d modes of %v, want several", seen[p], p)
		}
	}
	if len(all[0].Controls) < 10 {
		t.Errorf("%d controls, want vivid's dozens", len(all[0].Controls))
	}
	t.Logf("%d modes, %d controls", len(all[0].Modes), len(all[0].Controls))
}

// In every pixel format the source delivers whole pictures in order, with the driver's instants, and red is red.
func TestMachineFormats(t *testing.T) {
	machine(t)
	set(t, "test-pattern", "100-red")
	defer set(t, "test-pattern", "75-colorbar")
	set(t, "osd-text-mode", "none")
	for _, p := range []camera.PixelFormat{camera.YUYV, camera.NV12, camera.Gray8, camera.RGB8} {
		t.Run(p.String(), func(t *testing.T) {
			s := open(t, Config{Want: Want{Width: 320, Height: 180, FPS: 25, Pixels: p}})
			if f := s.Format(); f.Pixels != p || f.Width != 320 || f.Height != 180 || f.FPS != 25 {
				t.Fatalf("Format() = %+v", f)
			}
			var f camera.Frame
			last := camera.Frame{}
			for range 8 {
				grab(t, s, &f)
				now := rt.KernelClock().Now()
				if f.At > now || now.Sub(f.At) > 5*time.Second || f.At <= last.At || f.Sequence <= last.Sequence {
					t.Fatalf("frame %d at %v after frame %d at %v, now %v", f.Sequence, f.At, last.Sequence, last.At,
						now)
				}
				last = f
				last.Pix = nil
			}
			if got, want := middle(&f), colour(p); !near(got, want) {
				t.Errorf("a red picture holds %v in the middle, want %v", got, want)
			}
			_, picked, _ := s.Describe()
			t.Log(picked)
		})
	}
}

// middle returns the bytes of the picture's middle pixel.
func middle(f *camera.Frame) []byte {
	row := f.Pix[90*f.Stride:]
	switch f.Pixels {
	case camera.YUYV:
		return row[2*160:][:4]
	case camera.RGB8:
		return row[3*160:][:3]
	case camera.NV12:
		uv := f.Pix[f.Stride*180:][f.Stride*45+160:]
		return []byte{row[160], uv[0], uv[1]}
	}
	return row[160:][:1]
}

// colour returns the bytes of a pure red pixel in a format, by ITU-R BT.601, narrow range.
func colour(p camera.PixelFormat) []byte {
	switch p {
	case camera.YUYV:
		return []byte{81, 90, 81, 240}
	case camera.RGB8:
		return []byte{255, 0, 0}
	case camera.NV12:
		return []byte{81, 90, 240}
	}
	return nil // grey: vivid's own levels
}

func near(got, want []byte) bool {
	for i := range want {
		if d := int(got[i]) - int(want[i]); d < -3 || d > 3 {
			return false
		}
	}
	return true
}

func TestMachineRates(t *testing.T) {
	for _, fps := range []int{5, 10, 25} {
		s := open(t, Config{Want: Want{Width: 320, Height: 180, FPS: fps, Pixels: camera.YUYV}})
		rttest.Want(t, s.Format().FPS, fps, "asked for %d frames a second, got", fps)
		var f camera.Frame
		var steps []time.Duration
		for at, seq := rt.Instant(0), uint64(0); len(steps) < 7; at, seq = f.At, f.Sequence {
			grab(t, s, &f)
			if at != 0 {
				steps = append(steps, f.At.Sub(at)/time.Duration(f.Sequence-seq))
			}
		}
		slices.Sort(steps)
		if m, want := steps[len(steps)/2], time.Second/time.Duration(fps); m < want*8/10 || m > want*12/10 {
			t.Errorf("%d frames a second: a frame takes %v, want %v", fps, m, want)
		}
		s.Close()
	}
}

func TestMachineControls(t *testing.T) {
	s := open(t, Config{Controls: []Setting{{"brightness", "77"}, {"gain", "50"}, {"horizontal-flip", "on"}}})
	defer set(t, "horizontal-flip", "off")
	all := map[string]int32{}
	for _, c := range s.stream.controls() {
		all[c.Name] = c.Value
	}
	if all["brightness"] != 77 || all["gain"] != 50 || all["gain-automatic"] != 0 || all["horizontal-flip"] != 1 {
		t.Errorf("brightness %d, gain %d, automatic %d, flip %d, want 77, 50, 0, 1", all["brightness"], all["gain"],
			all["gain-automatic"], all["horizontal-flip"])
	}
	s.Close()
	for _, bad := range []Setting{{"brightness", "256"}, {"exposure", "100"}, {"nonsense", "1"}, {"gain", "much"}} {
		if _, err := Open(Config{Path: vivid, Want: small, Controls: []Setting{bad}},
			rt.KernelClock()); !errors.Is(err, ErrControl) {
			t.Errorf("%v: Open() = %v, want %v", bad, err, ErrControl)
		}
	}
	s = open(t, Config{Controls: []Setting{{"gain", "auto"}}}) // an Open after the error can use the camera
	if c, _ := find(s.stream.controls(), cidAutogain); c.Value != 1 {
		t.Errorf("gain=auto leaves the automatic at %d", c.Value)
	}
}

// A late reader gets the newest frame, and every gap has a reason.
func TestMachineDrainsToTheNewest(t *testing.T) {
	rttest.RealTime(t)
	s := open(t, Config{})
	var f camera.Frame
	grab(t, s, &f)
	first, before := f.Sequence, s.Counts()
	taken := uint64(0)
	for range 3 {
		time.Sleep(400 * time.Millisecond) // the driver's frames come in real time
		grab(t, s, &f)
		taken++
		if age := rt.KernelClock().Now().Sub(f.At); age > 350*time.Millisecond {
			t.Errorf("after a pause the frame is %v old: the oldest of the queue, not the newest", age)
		}
	}
	c := since(before, s.Counts())
	if c.Skipped == 0 || f.Sequence-first != taken+c.Skipped+c.Missed+c.Broken {
		t.Errorf("frames %d to %d, %d taken, %+v: the gaps are not explained", first, f.Sequence, taken, c)
	}
}

// since returns by how much each count has grown from a to b.
func since(a, b camera.Counts) camera.Counts {
	return camera.Counts{
		Missed:   b.Missed - a.Missed,
		Skipped:  b.Skipped - a.Skipped,
		Broken:   b.Broken - a.Broken,
		Restarts: b.Restarts - a.Restarts,
	}
}

func TestMachineDropsAreCounted(t *testing.T) {
	s := open(t, Config{})
	var f camera.Frame
	grab(t, s, &f)
	first, before := f.Sequence, s.Counts()
	set(t, "percentage-of-dropped-buffers", "50")
	defer set(t, "percentage-of-dropped-buffers", "0")
	const n = 15
	for range n {
		grab(t, s, &f)
	}
	c := since(before, s.Counts())
	if c.Missed == 0 || f.Sequence-first != n+c.Skipped+c.Missed+c.Broken {
		t.Errorf("frames %d to %d, %d taken, %+v: want every gap counted", first, f.Sequence, n, c)
	}
	t.Logf("%d taken, %+v", n, c)
}

func TestMachineErrorFramesAreNotDelivered(t *testing.T) {
	s := open(t, Config{})
	var f camera.Frame
	grab(t, s, &f)
	set(t, "inject-v4l2-buf-flag-error", "1")
	for range 6 {
		grab(t, s, &f)
	}
	if c := s.Counts(); c.Broken != 1 || c.Restarts != 0 {
		t.Errorf("%+v after one error frame, want it counted and nothing else", c)
	}
}

// After a fatal error, Grab sets the stream up again.
func TestMachineFatalErrorIsRepaired(t *testing.T) {
	s := open(t, Config{Controls: []Setting{{"brightness", "99"}}})
	var f camera.Frame
	grab(t, s, &f)
	seq := f.Sequence
	set(t, "brightness", "10")
	set(t, "inject-fatal-streaming-error", "1")
	rttest.Do(t, until(s, &f, camera.ErrStream))
	for range 3 {
		grab(t, s, &f)
	}
	if c := s.Counts(); c.Restarts != 1 || f.Sequence <= seq {
		t.Errorf("%+v and frame %d after frame %d, want one restart and higher numbers", c, f.Sequence, seq)
	}
	if v, _ := s.stream.control(0x00980900); v != 99 {
		t.Errorf("brightness is %d after the repair, want 99 again", v)
	}
}

// until calls Grab until Grab returns the error want.
func until(s *Source, f *camera.Frame, want error) error {
	for range 50 {
		if err := s.Grab(f); errors.Is(err, want) {
			return nil
		} else if err != nil && !errors.Is(err, camera.ErrStalled) {
			return fmt.Errorf("Grab() = %w, want %w", err, want)
		}
	}
	return fmt.Errorf("Grab() never says %w", want)
}

// Grab reports an unplugged camera at once. Lent pictures stay unchanged although the device is closed, and the same
// source continues when the camera is plugged in again.
func TestMachineUnplugAndReplug(t *testing.T) {
	rttest.RealTime(t)
	s := open(t, Config{})
	var held [camera.LentMax]camera.Frame
	var copies [camera.LentMax][]byte
	for i := range held {
		grab(t, s, &held[i])
		copies[i] = bytes.Clone(held[i].Pix)
	}
	set(t, "disconnect", "1")
	began := time.Now()
	var f camera.Frame
	rttest.Do(t, until(s, &f, camera.ErrGone))
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("noticed after %v", took)
	}
	maps, _ := os.ReadFile("/proc/self/maps")
	if strings.Contains(string(maps), vivid) {
		t.Error("a page of the unplugged camera is still mapped")
	}
	for i := range held {
		if !bytes.Equal(held[i].Pix, copies[i]) {
			t.Errorf("the picture lent as %d changed", i)
		}
	}
	for i := range held { // vivid is plugged in again when its last user has closed it
		for range 40 {
			if err := s.Grab(&held[i]); err == nil {
				break
			} else if !errors.Is(err, camera.ErrGone) && !errors.Is(err, camera.ErrStalled) {
				t.Fatal(err)
			}
		}
		if held[i].Lent == 0 {
			t.Fatal("no frame after plugging in again")
		}
	}
	if c := s.Counts(); c.Restarts != 1 || len(s.ended) == 0 {
		t.Errorf("%+v, %d ended streams, want one restart", c, len(s.ended))
	}
	for _, o := range s.ended {
		for i, b := range o.buffers {
			if b.lent {
				t.Errorf("buffer %d of the old stream is still there", i)
			}
		}
	}
}

// Grab gives up a silent driver after the watchdog's time.
func TestMachineWatchdog(t *testing.T) {
	rttest.RealTime(t)
	s := open(t, Config{})
	var f camera.Frame
	grab(t, s, &f)
	set(t, "percentage-of-dropped-buffers", "100")
	began := time.Now()
	var err error
	for range 3 { // the driver may already have a frame
		if err = s.Grab(&f); err != nil {
			break
		}
	}
	took := time.Since(began)
	set(t, "percentage-of-dropped-buffers", "0")
	if !errors.Is(err, camera.ErrStalled) || took < minWatchdog || took > minWatchdog+3*time.Second {
		t.Errorf("Grab() = %v after %v, want %v after %v", err, took, camera.ErrStalled, minWatchdog)
	}
	grab(t, s, &f)
	if c := s.Counts(); c.Restarts == 0 {
		t.Errorf("%+v, want a restart", c)
	}
}

func TestMachineBusy(t *testing.T) {
	open(t, Config{})
	rttest.FailsAs(t, rttest.Err(Open(Config{Path: vivid, Want: small}, rt.KernelClock())), errBusy) // a second Open()
	if info, err := describe(vivid); err != nil || len(info.Modes) == 0 {
		t.Errorf("describe() at a camera in use = %d modes, %v", len(info.Modes), err)
	}
	rttest.FailsAs(t, rttest.Err(Open(Config{Path: "/dev/video77"}, rt.KernelClock())), ErrAbsent)
	rttest.FailsAs(t, rttest.Err(Open(Config{Path: "/dev/null"}, rt.KernelClock())), ErrNoVideo)
}

// Grab allocates nothing when it fills three slots in turn, as rt.Latest has them.
func TestMachineGrabNoAlloc(t *testing.T) {
	s := open(t, Config{})
	var slots [camera.LentMax]camera.Frame
	i := 0
	if n := testing.AllocsPerRun(30, func() {
		for s.Grab(&slots[i%len(slots)]) != nil {
		}
		i++
	}); n != 0 && s.Counts().Restarts == 0 {
		t.Errorf("Grab allocates %v times, want 0", n)
	}
}

// feed writes motion JPEG into v4l2loopback until stop is closed. Every second picture has no Huffman tables, and
// padding at its end.
func feed(t *testing.T, stop <-chan struct{}) (done chan struct{}) {
	t.Helper()
	fd := rttest.Must(unix.Open(loopback, unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
	const outputType = 2
	f := format{kind: outputType, pix: pixFormat{
		width:       320,
		height:      240,
		pixelformat: fourcc("MJPG"),
		field:       1,
		sizeImage:   320 * 240 * 2,
	}}
	if errno := ioctl(fd, vidiocSFmt, unsafe.Pointer(&f)); errno != 0 {
		t.Fatalf("the loopback refuses MJPEG: %v", errno)
	}
	var whole bytes.Buffer
	im := image.NewYCbCr(image.Rect(0, 0, 320, 240), image.YCbCrSubsampleRatio422)
	for i := range im.Y {
		im.Y[i] = byte(i%320*200/320 + i/320/8)
	}
	for i := range im.Cb {
		im.Cb[i], im.Cr[i] = 90, 240
	}
	rttest.Do(t, stdjpeg.Encode(&whole, im, &stdjpeg.Options{Quality: 85}))
	pictures := [2][]byte{whole.Bytes(), append(bare(whole.Bytes()), 0, 0, 0, 0)}
	done = make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(fd)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(60 * time.Millisecond):
				unix.Write(fd, pictures[i%2])
			}
		}
	}()
	return done
}

// bare returns a JPEG without its Huffman tables.
func bare(src []byte) []byte {
	out := bytes.Clone(src[:2])
	for i := 2; ; {
		n := 2 + int(src[i+2])<<8 + int(src[i+3])
		switch src[i+1] {
		case 0xda:
			return append(out, src[i:]...)
		case 0xc4:
		default:
			out = append(out, src[i:i+n]...)
		}
		i += n
	}
}

func TestMachineMotionJPEG(t *testing.T) {
	machine(t)
	stop := make(chan struct{})
	done := feed(t, stop)
	defer func() { close(stop); <-done }()
	var s *Source
	var err error
	for range 50 { // with exclusive_caps, a loopback device is a camera only after its first picture
		if s, err = Open(Config{Path: loopback}, rt.KernelClock()); !errors.Is(err, ErrNoVideo) &&
			!errors.Is(err, ErrMode) {
			break
		}
		time.Sleep(100 * time.Millisecond) // the loopback device has no picture yet
	}
	rttest.Do(t, err)
	defer s.Close()
	if f := s.Format(); f.Pixels != camera.MJPEG || f.Width != 320 || f.Height != 240 || s.lends {
		t.Fatalf("Format() = %+v, lends %v, want MJPEG 320x240 in copies", f, s.lends)
	}
	var slots [camera.LentMax]camera.Frame
	with, without := 0, 0
	for i := 0; with < 4 || without < 4; i++ {
		if i == 100 {
			t.Fatalf("%d pictures with tables and %d without in 100, want 4 each", with, without)
		}
		f := &slots[i%len(slots)]
		grab(t, s, f)
		p, err := jpeg.Inspect(f.Pix)
		if err != nil {
			t.Logf("picture of %d bytes: %v", len(f.Pix), err) // torn by the loopback
			continue
		}
		file := bytes.Clone(f.Pix[:p.End])
		if p.Tables {
			with++
		} else {
			without++
			if _, err := stdjpeg.Decode(bytes.NewReader(file)); err == nil {
				t.Error("a picture without tables decodes as it is")
			}
			file = append(append(bytes.Clone(f.Pix[:p.Insert]), jpeg.StandardTables...), f.Pix[p.Insert:p.End]...)
		}
		if im, err := stdjpeg.Decode(bytes.NewReader(file)); err != nil || im.Bounds().Dx() != 320 {
			t.Errorf("picture with tables %v: %v", p.Tables, err)
		}
	}
	t.Logf("%d pictures with tables, %d without", with, without)
}
