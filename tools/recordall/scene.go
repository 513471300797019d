package main

import (
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
)

const (
	width, height = 640, 480
	scenes        = 60 // number of pictures in a camera's loop: two seconds
	quality       = 80 // JPEG quality as in webcams: some 40 kB
)

// writeScenes writes the pictures of a camera, one per file: ramps, edges, the noise of a sensor,
// and a moving object.
func writeScenes(folder string, seed uint32) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	noise := seed
	for n := range scenes {
		pic := image.NewRGBA(image.Rect(0, 0, width, height))
		cx, cy := 60+n*520/scenes, 240+n%7
		for y := range height {
			for x := range width {
				noise = noise*1664525 + 1013904223
				grain := byte(noise >> 28)
				c := color.RGBA{byte(x*200/width) + grain, byte(y*200/height) + grain, byte(x/40*y/60*9) + grain, 255}
				if dx, dy := x-cx, y-cy; dx*dx+dy*dy < 50*50 {
					c = color.RGBA{200 + grain, 40 + grain, 30 + grain, 255}
				}
				pic.SetRGBA(x, y, c)
			}
		}
		f, err := os.Create(filepath.Join(folder, fmt.Sprintf("%03d.jpg", n)))
		if err != nil {
			return err
		}
		if err := jpeg.Encode(f, pic, &jpeg.Options{Quality: quality}); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
