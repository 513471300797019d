package capture

import (
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// A program's pictures reach a message: JPEG pictures unchanged, raw pictures encoded.
func TestAProgramIsACamera(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg here")
	}
	const source = "ffmpeg -loglevel error -re -f lavfi -i testsrc2=size=64x48:rate=30"
	for text, how := range map[string]string{
		"a=pipe:" + source + " -f mjpeg -":                                                   "sent as they come",
		"a=pipe:'" + source + " -f rawvideo -pix_fmt yuyv422 -':64x48@30,format=yuyv":        "encoded",
		"a=pipe:'" + source + " -f rawvideo -pix_fmt rgb24 -':64x48,format=rgb24,rotate=180": "encoded",
	} {
		c := rttest.Must(Parse(text))(t)
		source, _, err := Open(&c, Options{Clock: rt.KernelClock()})
		for try := 1; MayAppear(err) && try < 6; try++ { // a loaded machine starts ffmpeg late
			source, _, err = Open(&c, Options{Clock: rt.KernelClock()})
		}
		rttest.Do(t, err)
		cam := New(c.Name, source, 0)
		encoder := rttest.Must(NewEncoder(cam, &c, Encoding{Quality: 90}))(t)
		var stop atomic.Bool
		var pending atomic.Int32
		done := make(chan struct{})
		go func() { cam.Run(rt.KernelClock(), &stop, &pending); close(done) }()
		rttest.Eventually(t, "three pictures", func() bool { return cam.Stats().Captured >= 3 })
		stop.Store(true)
		<-done
		var m wire.Image
		if _, err := encoder.Picture(&m); err != nil || len(m.Data) < 500 || !strings.Contains(encoder.String(), how) {
			t.Errorf("%s: a picture of %d bytes (%v), %s, want it %s", text, len(m.Data), err, encoder, how)
		}
		if n := cam.Stats(); n.Torn+n.Source.Broken != 0 {
			t.Errorf("%s: %+v, want no broken picture", text, n)
		}
		encoder.Close()
		source.Close()
	}
}

func TestAProgramIsRefused(t *testing.T) {
	for text, code := range map[string]exit.Code{
		"a=pipe:true,format=rgb":       exit.Usage, // a raw format without a size
		"a=pipe:'true',exposure=5":     exit.Config,
		"a=pipe:'true':8x8,exposure=5": exit.Config,
		"a=pipe:exit 3":                exit.Absent,
		"a=pipe:no-such-program":       exit.Config,
	} {
		c, err := Parse(text)
		rttest.Do(t, err)
		_, _, err = Open(&c, Options{Clock: rt.KernelClock()})
		if exit.Of(err) != code || MayAppear(err) != (code == exit.Absent) {
			t.Errorf("%s: %v (code %d), want code %d", text, err, exit.Of(err), code)
		}
	}
	rttest.Ends(t, rttest.Err(Parse("a=pipe:")), exit.Usage) // pipe: without a command
}
