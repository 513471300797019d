// Package files is a camera that plays files: one picture, or a folder of them in the order of
// their names, repeatedly at a constant rate.
//
// All files are read at the start, so that playing needs no disk access and allocates nothing. JPEG
// stays as it is, as from a camera that delivers motion JPEG; PNG becomes RGB. While the path is
// renamed or removed the camera counts as unplugged.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // for image.DecodeConfig
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/rt"
)

// Limits of the files.
const (
	maxFiles = 20_000
	maxBytes = 1 << 30 // bytes in memory, with each PNG unpacked
	maxSide  = 8192
)

// errFiles means that the files are missing, too many, too large, or of different kinds or sizes.
var errFiles = errors.New("replay: pictures")

// Source plays the files.
type Source struct {
	*camera.Paced
	files [][]byte
	path  []byte // path as a C string for the kernel
}

var (
	_ camera.Source = (*Source)(nil)
	_ camera.Lender = (*Source)(nil)
)

// Open reads a picture, or the pictures of a folder: *.jpg, *.jpeg and *.png, all
// of one size and one kind. fps is the rate to play at.
func Open(path string, fps int, clock rt.Clock) (*Source, error) {
	names, err := list(path)
	if err != nil {
		return nil, err
	}
	s := &Source{path: append([]byte(path), 0)}
	var all camera.Format // of all files
	total := 0
	for _, name := range names {
		pix, format, err := read(name)
		if err != nil {
			return nil, err
		}
		format.FPS = fps
		if total += len(pix); total > maxBytes {
			return nil, fmt.Errorf("%w of %s: more than %d MiB: play fewer at a time, or JPEG", errFiles, path,
				maxBytes>>20)
		}
		size := max(all.Size, len(pix))
		all.Size, format.Size = 0, 0
		if len(s.files) > 0 && format != all {
			return nil, fmt.Errorf("%w: %s is %v, the ones before are %v", errFiles, name, format, all)
		}
		all, s.files = format, append(s.files, pix)
		all.Size = size
	}
	s.Paced = camera.NewPaced(clock, all)
	return s, nil
}

func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFiles, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFiles, err)
	}
	var names []string
	for _, e := range entries {
		if playable(e.Name()) && e.Type()&^os.ModeSymlink == 0 { // the Hub's cache contains links
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if len(names) == 0 || len(names) > maxFiles {
		return nil, fmt.Errorf("%w: %s holds %d files of *.jpg, *.jpeg and *.png, want 1 to %d", errFiles, path,
			len(names), maxFiles)
	}
	slices.Sort(names)
	return names, nil
}

func playable(name string) bool {
	return slices.Contains([]string{".jpg", ".jpeg", ".png"}, strings.ToLower(filepath.Ext(name)))
}

// read returns the picture in a file, in the form in which Grab delivers it, and its format.
func read(name string) (pix []byte, f camera.Format, err error) {
	bad := func(why any) ([]byte, camera.Format, error) {
		return nil, f, fmt.Errorf("%w: %s: %v", errFiles, name, why)
	}
	b, err := userfile.Read(name, maxBytes/4)
	if err != nil {
		return bad(err)
	}
	if !playable(name) {
		return bad("want *.jpg, *.jpeg or *.png")
	}
	c, kind, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil || c.Width < 1 || c.Height < 1 || max(c.Width, c.Height) > maxSide {
		return bad(fmt.Sprintf("%dx%d, %v; want a picture with sides of 1 to %d", c.Width, c.Height, err, maxSide))
	}
	f = camera.Format{Width: c.Width, Height: c.Height, Pixels: camera.RGB8}
	if kind == "jpeg" {
		f.Pixels = camera.MJPEG
		return b, f, nil
	}
	im, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		return bad(err)
	}
	pix = make([]byte, 0, f.FrameBytes())
	for y := range f.Height {
		for x := range f.Width {
			r, g, b, _ := im.At(im.Bounds().Min.X+x, im.Bounds().Min.Y+y).RGBA()
			pix = append(pix, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	return pix, f, nil
}

// Lends makes Source a camera.Lender: frames point at the files in memory.
func (s *Source) Lends() {}

// Grab sleeps until the next frame's instant. A late caller skips frames.
//
//rt:noalloc
func (s *Source) Grab(dst *camera.Frame) error {
	if err := s.Wait(dst); err != nil {
		return err
	}
	if !exists(s.path) {
		return camera.ErrGone
	}
	dst.Pix = s.files[dst.Sequence%uint64(len(s.files))]
	return nil
}
