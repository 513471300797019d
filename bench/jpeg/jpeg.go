// Package jpeg measures how long it takes to turn a camera's picture into a message, and a message's picture
// into a tensor. It compares these times with libjpeg-turbo's tjbench on the same picture and, if built with
// the tag pixiv, with github.com/pixiv/go-libjpeg. On a shared machine speed changes by the second, so the
// subjects take turns of a fraction of a second, at a real-time priority where the kernel grants it. The
// results are the median quotient of adjacent turns, and the quotient of the best turns.
package jpeg

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/sim/pattern"
	"github.com/edge-rt/edge-rt/wire"
)

// Config configures a measurement; its tags are the flags of `bench jpeg`.
type Config struct {
	Size     Size          `default:"640x480" help:"Of the picture."`
	Quality  int           `range:"1..100" default:"90" help:"1 to 100."`
	Duration time.Duration `default:"30s" help:"In all; a round of all subjects takes some 3 s."`
	bench.Env
}

// Size is the size of a picture, in pixels.
type Size struct{ W, H int }

// UnmarshalText reads 640x480.
func (s *Size) UnmarshalText(text []byte) error {
	w, h, _ := strings.Cut(string(text), "x")
	var errs [2]error
	s.W, errs[0] = strconv.Atoi(w)
	s.H, errs[1] = strconv.Atoi(h)
	if errs != [2]error{} {
		return fmt.Errorf("got %q, want WxH, such as 640x480", text)
	}
	return nil
}

func (s Size) String() string { return fmt.Sprintf("%dx%d", s.W, s.H) }

// turn is how long one subject runs before the next.
const turn = 150 * time.Millisecond

// Limits of the picture's size, so that a turn contains several pictures.
const (
	minSide = 64
	maxSide = 4096
)

// subject is one operation on a picture.
type subject struct {
	name string
	reference
	run   func() error
	pixiv func() error // the same operation with go-libjpeg; nil: not measured
}

// inputs are the pictures and buffers of the subjects.
type inputs struct{ rgb, yuyv, j422, j420 []byte }

// reference selects tjbench's figure for the same work: RGB or planar YUV, the chroma, compressing
// or decompressing. Without a chroma tjbench has no figure.
type reference struct {
	chroma string
	yuv    bool
	decode bool
}

// Measure runs all subjects.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	w, h := cfg.Size.W, cfg.Size.H
	if min(w, h) < minSide || max(w, h) > maxSide || w%2 != 0 {
		return nil, exit.Errorf(exit.Usage, "--size %v: want sides of %d to %d, the width even", cfg.Size, minSide,
			maxSide)
	}
	tool, err := exec.LookPath("tjbench")
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "tjbench is missing: apt-get install libjpeg-turbo-progs")
	}
	dir, err := os.MkdirTemp("", "bench-jpeg-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	pix := pattern.Scenery(w, h)
	file := filepath.Join(dir, "picture.ppm")
	if err := os.WriteFile(file, slices.Concat(fmt.Appendf(nil, "P6\n%d %d\n255\n", w, h), pix), 0o600); err != nil {
		return nil, err
	}
	subjects, done, err := newSubjects(cfg, pix)
	if err != nil {
		return nil, err
	}
	defer done()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	report := newReport(cfg, subjects)
	undo, err := raisePriority()
	if err != nil {
		report.Shared = err.Error()
	}
	defer undo()
	report.Machine = bench.ReadMachine(os.DirFS("/"))
	for end := time.Now().Add(cfg.Duration); report.Rounds == 0 || time.Now().Before(end); report.Rounds++ {
		for _, s := range bench.Turned(subjects, report.Rounds) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			theirs := 0.0
			if s.chroma != "" {
				if theirs, err = tjbench(ctx, tool, file, cfg, s.reference); err != nil {
					return nil, err
				}
			}
			ours, allocs, err := measure(s.run)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			report.add(s.name, ours, theirs, allocs)
			if s.pixiv != nil {
				if theirs, allocs, err = measure(s.pixiv); err != nil {
					return nil, fmt.Errorf("%s through go-libjpeg: %w", s.name, err)
				}
				report.addPixiv(s.name, ours, theirs, allocs)
			}
		}
		cfg.Progress("round %d\n", report.Rounds+1)
	}
	report.finish()
	return report, nil
}

// measure calls the function run for the length of a turn, and returns the milliseconds and the allocated objects of
// one call.
func measure(run func() error) (ms, allocs float64, err error) {
	var before, after runtime.MemStats
	if err := run(); err != nil { // this call allocates the memory that later calls reuse
		return 0, 0, err
	}
	runtime.ReadMemStats(&before)
	n, start := 0, time.Now()
	for time.Since(start) < turn {
		if err := run(); err != nil {
			return 0, 0, err
		}
		n++
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return took.Seconds() * 1e3 / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n), nil
}

// tjbench returns the reference's time for a picture in milliseconds.
func tjbench(ctx context.Context, tool, file string, cfg Config, ref reference) (ms float64, err error) {
	args := []string{file, strconv.Itoa(cfg.Quality), "-rgb", "-quiet", "-nowrite", "-subsamp", ref.chroma,
		"-benchtime", fmt.Sprint(turn.Seconds()), "-warmup", "0.02"}
	if ref.yuv {
		args = append(args, "-yuv")
	}
	out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("tjbench: %w: %s", err, bytes.TrimSpace(out))
	}
	speed, err := speedOf(string(out), ref)
	if err != nil {
		return 0, err
	}
	return float64(cfg.Size.W*cfg.Size.H) / speed / 1e3, nil
}

// speedOf reads the figure, in megapixels a second, from the line of results: pixel format, row
// order, chroma, quality, width, height, and then the speeds. With -yuv the first and the last
// speed are those of the colour conversion alone.
func speedOf(out string, ref reference) (float64, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "RGB" {
			continue
		}
		f = f[6:] // the speeds are comp, ratio, decomp; with -yuv encode, comp, ratio, decomp, decode
		if ref.yuv {
			f = f[1:]
		}
		at := 0
		if ref.decode {
			at = 2
		}
		if speed, err := strconv.ParseFloat(f[at], 64); err == nil && speed > 0 {
			return speed, nil
		}
	}
	return 0, fmt.Errorf("tjbench: no results in %q", out)
}

// newSubjects prepares the subjects; done frees them.
func newSubjects(cfg Config, pix []byte) (all []subject, done func(), err error) {
	e, err := jpeg.NewEncoder(cfg.Quality, jpeg.ChromaOfPicture)
	if err != nil {
		return nil, nil, exit.With(exit.Usage, err)
	}
	e420, err := jpeg.NewEncoder(cfg.Quality, jpeg.Chroma420)
	if err != nil {
		return nil, nil, err
	}
	d, err := jpeg.NewDecoder()
	if err != nil {
		return nil, nil, err
	}
	done = func() { e.Close(); e420.Close(); d.Close() }
	w, h := cfg.Size.W, cfg.Size.H
	picture := func(layout jpeg.Layout, pix []byte) *jpeg.Image {
		return &jpeg.Image{
			W:      w,
			H:      h,
			Layout: layout,
			Pix:    pix,
		}
	}
	rgb := picture(jpeg.RGB, pix)
	yuyv := picture(jpeg.YUYV, packed(pix, w, h))
	nv12 := picture(jpeg.NV12, planar(pix, w, h))
	dst, tensor := make([]byte, jpeg.MaxSize(w, h, jpeg.Chroma444)), make([]byte, 3*w*h)
	encode := func(e *jpeg.Encoder, m *jpeg.Image) func() error {
		return func() error { _, err := e.Encode(dst, m); return err }
	}
	file := func(e *jpeg.Encoder, m *jpeg.Image) []byte {
		n, encodeErr := e.Encode(dst, m)
		if encodeErr != nil {
			err = encodeErr
		}
		return bytes.Clone(dst[:n])
	}
	decode := func(src []byte) func() error {
		return func() error { return d.DecodeRGB(tensor, src, w, h) }
	}
	j422, j420 := file(e, yuyv), file(e, rgb)
	body := make([]byte, 0, 2*len(j422)+4096)
	images := []wire.Image{{Name: "observation.images.top", Codec: wire.JPEG}}
	observation := &wire.Observation{Images: images}
	pass := func() error {
		p, err := jpeg.Inspect(j422)
		if err != nil {
			return err
		}
		images[0].Data = j422[:p.End]
		images[0].Splice = jpeg.StandardTables
		images[0].SpliceAt = p.Insert
		body = wire.AppendObservation(body[:0], observation)
		return nil
	}
	all = []subject{
		{name: "encode YUYV to 4:2:2", reference: reference{"422", true, false}, run: encode(e, yuyv)},
		{name: "encode YUYV to 4:2:0", reference: reference{"420", true, false}, run: encode(e420, yuyv)},
		{name: "encode NV12 to 4:2:0", reference: reference{"420", true, false}, run: encode(e, nv12)},
		{name: "encode RGB to 4:2:0", reference: reference{"420", false, false}, run: encode(e, rgb)},
		{name: "decode 4:2:2 to RGB", reference: reference{"422", false, true}, run: decode(j422)},
		{name: "decode 4:2:0 to RGB", reference: reference{"420", false, true}, run: decode(j420)},
		{name: "pass MJPEG through", run: pass},
	}
	withPixiv(all, cfg, inputs{pix, yuyv.Pix, j422, j420})
	return all, done, err
}

// levels converts a pixel by ITU-R BT.601, narrow range.
func levels(p []byte) (y, cb, cr byte) {
	r := int(p[0])
	g := int(p[1])
	b := int(p[2])
	return byte((66*r+129*g+25*b+128)>>8 + 16), byte((-38*r-74*g+112*b+128)>>8 + 128),
		byte((112*r-94*g-18*b+128)>>8 + 128)
}

// planes converts a picture to a camera's levels. Each chroma value is the mean over a block, two pixels wide and rows
// pixels high.
func planes(pix []byte, w, h, rows int) (luma, cb, cr []byte) {
	for i := 0; i < 3*w*h; i += 3 {
		y, _, _ := levels(pix[i:])
		luma = append(luma, y)
	}
	for row := 0; row < h; row += rows {
		for x := 0; x < w; x += 2 {
			var mean [3]byte
			for c := range mean {
				sum := rows // the sum begins with half of the number of pixels, so that the division rounds
				for k := range rows {
					at := 3*(min(row+k, h-1)*w+x) + c
					sum += int(pix[at]) + int(pix[at+3])
				}
				mean[c] = byte(sum / (2 * rows))
			}
			_, b, r := levels(mean[:])
			cb, cr = append(cb, b), append(cr, r)
		}
	}
	return luma, cb, cr
}

// packed converts a picture to YUYV.
func packed(pix []byte, w, h int) (out []byte) {
	luma, cb, cr := planes(pix, w, h, 1)
	for i := range cb {
		out = append(out, luma[2*i], cb[i], luma[2*i+1], cr[i])
	}
	return out
}

// planar converts a picture to NV12.
func planar(pix []byte, w, h int) []byte {
	out, cb, cr := planes(pix, w, h, 2)
	for i := range cb {
		out = append(out, cb[i], cr[i])
	}
	return out
}
