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

// sizeOf returns the size of a picture; an error means that it does not decode.
func sizeOf(check *jpeg.Decoder, data []byte) (size, error) {
	if err := check.Check(data); err != nil {
		return size{}, err
	}
	p, err := jpeg.Inspect(data)
	return size{p.W, p.H}, err
}

// measure sets each camera's size: the most frequent size of its first pictures.
func (r *run) measure() error {
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
	err = r.visit(record.Visitor{Image: func(m *record.Image) error {
		if len(seen[m.Camera]) == sizedBy || !slices.Contains(r.cams, m.Camera) {
			return nil
		}
		s, err := sizeOf(check, m.Data.A)
		if err != nil { // a torn picture; others give the size
			return nil
		}
		if seen[m.Camera] = append(seen[m.Camera], s); len(seen[m.Camera]) == sizedBy {
			wanted--
		}
		if wanted == 0 {
			return errSeen
		}
		return nil
	}})
	if isSeen(err) {
		err = nil
	}
	for _, name := range r.cams {
		s, known := commonest(seen[name])
		switch {
		case known && (s.w%2 != 0 || s.h%2 != 0 || max(s.w, s.h) > maxSide):
			return refuse("%s: pictures of camera %s are %dx%d, and videos have even sides of at most %d: crop them "+
				"where they are taken (--camera ...,crop=WxH+X+Y)", r.name, name, s.w, s.h, maxSide)
		case !known && err == nil:
			return refuse("%s has no picture of camera %s that is whole: --cameras names those to take", r.name, name)
		}
		r.sizes[name] = s
	}
	return err
}

// commonest returns the most frequent size, the earliest of several; ok is false for an empty list.
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
	lanes   []*lane
	stats   []map[string]Stats // of each episode, by the video's name
	ends    []int              // of each episode, the cameras that have finished it
	all     []episode
	done    int // complete episodes
	decoder *jpeg.Decoder
}

// lane is the progress of one camera.
type lane struct {
	camera  int
	name    string
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
		ctx:   ctx,
		x:     x,
		of:    r,
		all:   all,
		stats: make([]map[string]Stats, len(all)),
		ends:  make([]int, len(all)),
	}
	for i := range f.stats {
		f.stats[i] = map[string]Stats{}
	}
	if len(r.cams) == 0 {
		return f, nil
	}
	var err error
	if f.decoder, err = jpeg.NewDecoder(); err != nil {
		return nil, err
	}
	for i, name := range r.cams {
		shape := x.journal.settings.Features[imagePrefix+name].Shape
		s := size{shape[1], shape[0]}
		f.lanes = append(f.lanes, &lane{
			camera: i,
			name:   name,
			size:   s,
			rgb:    make([]byte, 3*s.w*s.h),
		})
	}
	return f, nil
}

// first returns the number of the run's first new episode in the dataset. The journal holds the
// episodes before it.
func (f *transcoder) first() int { return len(f.x.journal.entries) - f.done }

// picture adds a picture to all frames that show it.
func (f *transcoder) picture(m *record.Image) error {
	for _, l := range f.lanes {
		if l.name == m.Camera {
			l.seen++
			return f.show(l, l.seen-1, m)
		}
	}
	return nil
}

func (f *transcoder) show(l *lane, n int, m *record.Image) error {
	for l.episode < len(f.all) {
		frames := f.all[l.episode].frames
		if frames[l.frame].pictures[l.camera] != n {
			return nil
		}
		if err := f.frame(l, m, len(frames)); err != nil {
			return fmt.Errorf("%s, camera %s: %w", f.of.name, l.name, err)
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

// frame adds the picture as the next frame of the lane's episode, whose number of frames is given.
func (f *transcoder) frame(l *lane, m *record.Image, frames int) error {
	data := m.Data.A
	p, err := jpeg.Inspect(data)
	if err != nil {
		return fmt.Errorf("a picture: %w", err)
	}
	if p.W != l.size.w || p.H != l.size.h {
		return refuse("a picture of %dx%d among those of %dx%d: one dataset has one size", p.W, p.H, l.size.w, l.size.h)
	}
	if l.frame == 0 {
		n := int64(f.first() + l.episode)
		path, err := f.x.create(fill(videoPath, imagePrefix+l.name, n/chunksSize, n%chunksSize))
		if err != nil {
			return err
		}
		if l.video, err = newEncoder(f.ctx, f.x.codec, f.x.journal.settings.CRF, f.x.journal.settings.FPS, frames,
			path); err != nil {
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

// end finishes the lane's episode. The last camera to finish it also completes the episode.
func (f *transcoder) end(l *lane) error {
	if _, err := l.video.finish(f.ctx); err != nil {
		return err
	}
	if err := syncFile(l.video.path); err != nil {
		return err
	}
	f.stats[l.episode][imagePrefix+l.name] = l.stats.stats()
	l.video = nil
	f.ends[l.episode]++
	l.episode, l.frame = l.episode+1, 0
	for f.done < len(f.all) && f.ends[f.done] == len(f.lanes) {
		if err := f.x.complete(&f.all[f.done], f.stats[f.done]); err != nil {
			return err
		}
		f.done++
	}
	return nil
}

// rest completes the episodes of a run without cameras, and otherwise checks that every episode has
// its pictures.
func (f *transcoder) rest() error {
	if len(f.lanes) == 0 {
		for i := range f.all {
			if err := f.ctx.Err(); err != nil {
				return err
			}
			if err := f.x.complete(&f.all[i], f.stats[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if f.done < len(f.all) {
		return fmt.Errorf("%s changed while it was read: %d of %d episodes have their pictures", f.of.name, f.done,
			len(f.all))
	}
	return nil
}

func (f *transcoder) close() {
	for _, l := range f.lanes {
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
