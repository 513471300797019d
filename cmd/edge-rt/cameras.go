package main

import (
	"io"

	"edgert/edge/capture"
	"edgert/internal/exit"
)

// defaultQuality is for pictures that are no JPEG yet.
const defaultQuality = 90

type camerasCmd struct {
	List struct {
		All bool `help:"Every mode and every control, not only what is usual."`
	} `cmd:"" default:"withargs" help:"List the cameras of this machine (what happens without a word)."`
	Snapshot struct {
		Out string `short:"o" required:"" help:"Where to write the picture, *.jpg or *.png." placeholder:"FILE"`
	} `cmd:"" help:"Take one picture of --camera, as the policy would get it: edge-rt cameras snapshot --camera front=/dev/video0 -o x.jpg"`
}

func (c *cli) snapshot(stdout, stderr io.Writer) exit.Code {
	if len(c.Camera) != 1 {
		return complain(stderr, exit.Errorf(exit.Usage, "%d cameras, want one: edge-rt cameras snapshot --camera front=/dev/video0 -o x.jpg", len(c.Camera)))
	}
	cfg, err := capture.Parse(c.Camera[0])
	if err != nil {
		return complain(stderr, err)
	}
	d := capture.Encoding{Quality: defaultQuality}
	if c.JPEGQuality != nil {
		d.Quality, d.Reencode = *c.JPEGQuality, true
	}
	return complain(stderr, capture.Snapshot(stdout, &cfg, d, c.Cameras.Snapshot.Out))
}
