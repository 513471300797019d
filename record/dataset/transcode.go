package dataset

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/record"
)

// size is the size of a picture in pixels.
type size struct{ w, h int }

// sizedBy is the number of whole pictures of a camera that determine the size of its pictures. A
// damaged picture, or the first pictures after the camera was opened, may have another size.
const sizedBy = 31

// sizeOf returns the size of a picture; an error means that the picture does not decode.
func sizeOf(check *jpeg.Decoder, data []byte) (size, error) {
	if err := check.Check(data); err != nil {
		return size{}, err
	}
	p, err := jpeg.Inspect(data)
	return size{p.W, p.H}, err
}

// measure sets each camera's size: the most frequent size of its first pictures.
func (r *run) measure(ctx context.Context) error {
	r.sizes = map[string]size{}
	if len(r.cams) == 0 {
		return nil
	}
	check, err := jpeg.NewDecoder()
	if err != nil {
		return err
	}
	defer check.Close()
	seen := map[string][]size{}
	wanted := len(r.cams) // cameras with fewer than sizedBy pictures so far
	err = r.visit(ctx, record.Visitor{Image: func(m *record.Image) error {
		switch {
		case wanted == 0:
			return record.ErrEnough
		case len(seen[m.Camera]) == sizedBy || !slices.Contains(r.cams, m.Camera):
			return nil
		}
		if s, err := sizeOf(check, m.Data.A); err == nil { // the others are torn, and have no size
			seen[m.Camera] = append(seen[m.Camera], s)
		}
		if len(seen[m.Camera]) == sizedBy {
			wanted--
		}
		return nil
	}})
	for _, name := range r.cams {
		s, known := commonest(seen[name])
		switch {
		case known && (s.w%2 != 0 || s.h%2 != 0 || max(s.w, s.h) > maxSide):
			return refuse("%s: pictures of camera %s are %dx%d, and videos have even sides of at most %d: crop them "+
				"where they are taken (--camera ...,crop=WxH+X+Y)", r.name, name, s.w, s.h, maxSide)
		case !known && err == nil:
			return refuse("%s has no picture of camera %s that is whole: leave out that record, or the camera "+
				"(--cameras NAMES, '' for none)", r.name, name)
		}
		r.sizes[name] = s
	}
	return err
}

// commonest returns the most frequent size, the earliest if several are equally frequent. ok is false for an empty
// list.
func commonest(all []size) (most size, ok bool) {
	count := map[size]int{}
	for _, s := range all {
		count[s]++
	}
	for _, s := range all {
		if count[s] > count[most] {
			most = s
		}
	}
	return most, len(all) > 0
}

// transcoder turns the pictures of a run's episodes into videos. Each camera progresses at its own pace.
type transcoder struct {
	ctx     context.Context
	x       *export
	of      *run
	streams []*stream
	stats   []map[string]featureStats // statistics of each episode, by the names of its finished videos
	all     []episode
	done    int // complete episodes
	decoder *jpeg.Decoder
}

// stream is the progress of one camera.
type stream struct {
	camera  int // index of the camera
	size    size
	seen    int // pictures of the camera so far
	episode int
	frame   int
	video   *encoder
	stats   imageStats
	samples []int
	rgb     []byte
}

func newTranscoder(ctx context.Context, x *export, r *run, all []episode) (*transcoder, error) {
	f := &transcoder{
		ctx: ctx,
		x:   x,
		of:  r,
		all: all,
	}
	for range all {
		f.stats = append(f.stats, map[string]featureStats{})
	}
	for i, name := range r.cams {
		s := r.sizes[name]
		f.streams = append(f.streams, &stream{camera: i, size: s, rgb: make([]byte, 3*s.w*s.h)})
	}
	if len(r.cams) == 0 {
		return f, nil
	}
	var err error
	f.decoder, err = jpeg.NewDecoder()
	return f, err
}

// picture adds a picture to all frames that show it.
func (f *transcoder) picture(m *record.Image) error {
	l := f.streams[slices.Index(f.of.cams, m.Camera)]
	n := l.seen
	l.seen++
	for l.episode < len(f.all) {
		frames := f.all[l.episode].frames
		if frames[l.frame].pictures[l.camera] != n {
			return nil
		}
		if err := f.frame(l, m, len(frames)); err != nil {
			return fmt.Errorf("%s, camera %s: %w", f.of.name, m.Camera, err)
		}
		if l.frame++; l.frame < len(frames) {
			continue
		}
		if err := f.end(l); err != nil {
			return err
		}
	}
	return nil
}

// frame adds the picture as the next frame of the camera's episode, which has this number of frames.
func (f *transcoder) frame(l *stream, m *record.Image, frames int) error {
	data := m.Data.A
	p, err := jpeg.Inspect(data)
	if err != nil {
		return fmt.Errorf("a picture: %w", err)
	}
	if p.W != l.size.w || p.H != l.size.h {
		return refuse("a picture of %dx%d among those of %dx%d: one dataset has one size", p.W, p.H, l.size.w, l.size.h)
	}
	if l.frame == 0 {
		// The journal holds the episodes before f.all, and the f.done complete episodes of f.all.
		path, err := f.x.create(pathOf(imagePrefix+m.Camera, len(f.x.journal.entries)-f.done+l.episode))
		if err != nil {
			return err
		}
		if l.video, err = newEncoder(f.ctx, f.x.cfg.VCodec, f.x.cfg.CRF, f.of.fps, frames, path); err != nil {
			return err
		}
		l.stats, l.samples = imageStats{}, samples(frames)
	}
	if len(l.samples) > 0 && l.samples[0] == l.frame {
		if err := f.decoder.DecodeRGB(l.rgb, data, p.W, p.H); err != nil {
			return fmt.Errorf("a picture: %w", err)
		}
		for len(l.samples) > 0 && l.samples[0] == l.frame {
			l.stats.add(l.rgb, p.W, p.H)
			l.samples = l.samples[1:]
		}
	}
	if err := l.video.write(data[:p.End]); err != nil {
		return err
	}
	if l.camera == 0 {
		f.x.progress.Frames++
		f.x.cfg.Progress(f.x.progress)
	}
	return nil
}

// end finishes the camera's episode. The last camera to finish an episode also completes the
// episode.
func (f *transcoder) end(l *stream) error {
	if err := l.video.finish(f.ctx); err != nil {
		return err
	}
	if err := syncFile(l.video.path); err != nil {
		return err
	}
	f.stats[l.episode][imagePrefix+f.of.cams[l.camera]] = l.stats.stats()
	l.video = nil
	l.episode, l.frame = l.episode+1, 0
	return f.complete()
}

// complete completes the episodes whose videos are all finished. Without cameras it completes all episodes.
func (f *transcoder) complete() error {
	for f.done < len(f.all) && len(f.stats[f.done]) == len(f.streams) {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		if err := f.x.complete(&f.all[f.done], f.stats[f.done]); err != nil {
			return err
		}
		f.done++
	}
	return nil
}

func (f *transcoder) close() {
	for _, l := range f.streams {
		if l.video != nil {
			l.video.stop()
		}
	}
	if f.decoder != nil {
		f.decoder.Close()
	}
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
