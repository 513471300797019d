// Animation makes the recording of the README: the simulated arm's camera in a run like make demo's, as
// an animated GIF. It needs ffmpeg (Debian: apt install ffmpeg).
//
//	go run ./tools/animation
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

const (
	startLimit   = 30 * time.Second // longest wait for the first picture
	pictureLimit = time.Second      // for each
	maxPicture   = 1 << 20
)

type options struct {
	Bin      string        `default:"bin" help:"folder of the two programs"`
	Manifest string        `default:"testdata/demo/server.yaml" help:"what the server serves"`
	Out      string        `default:"docs/page/demo.gif" help:"the recording"`
	Duration time.Duration `default:"20s" help:"of the recording"`
	Rate     int           `default:"10" help:"pictures a second"`
	Seed     uint64        `default:"1" help:"seed of the simulated world"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	stage.Tool(func(o options) error { return animation(ctx, &o) })
}

func animation(ctx context.Context, o *options) (err error) {
	dir, err := os.MkdirTemp("", "edgert-animation-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := stage.NewServer(o.Bin, o.Manifest)
	if err != nil {
		return err
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	address, err := freeAddress()
	if err != nil {
		return err
	}
	edge, err := stage.Start(stage.Edge(o.Bin, dir, stage.SimArm(server.Endpoint, "--seed",
		strconv.FormatUint(o.Seed, 10), "--http", address, "--quiet", "--record", "off")...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, edge.Stop()) }()
	if err := takePictures(ctx, o, "http://"+address+"/camera/top", dir); err != nil {
		return err
	}
	return encode(ctx, o, dir)
}

// freeAddress returns an address on this machine at which no program listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// takePictures saves the newest picture at each instant of the recording. If a picture is missing,
// it saves the picture before it again.
func takePictures(ctx context.Context, o *options, address, dir string) error {
	var picture []byte
	for end := time.Now().Add(startLimit); picture == nil; time.Sleep(100 * time.Millisecond) {
		if picture, _ = fetch(ctx, address); picture == nil && (time.Now().After(end) || ctx.Err() != nil) {
			return errors.Join(ctx.Err(), errors.New("no picture of the simulated camera came"))
		}
	}
	began, every := time.Now(), time.Second/time.Duration(o.Rate)
	for n := range int(o.Duration / every) {
		time.Sleep(time.Until(began.Add(time.Duration(n) * every)))
		if newer, err := fetch(ctx, address); err == nil {
			picture = newer
		}
		if err := errors.Join(ctx.Err(),
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d.jpg", n)), picture, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

func fetch(ctx context.Context, address string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, pictureLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, answer.Status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, maxPicture))
}

// encode makes the GIF, with a palette that is computed from the pictures.
func encode(ctx context.Context, o *options, dir string) error {
	const filter = "scale=480:-1:flags=lanczos,split[a][b];[a]palettegen=max_colors=32:stats_mode=full[p];" +
		"[b][p]paletteuse=dither=none:diff_mode=rectangle"
	cmd := exec.CommandContext(ctx, "ffmpeg", "-loglevel", "error", "-y", "-framerate", strconv.Itoa(o.Rate),
		"-i", filepath.Join(dir, "%05d.jpg"), "-filter_complex", filter, o.Out)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
