package edge

import (
	"context"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/wire"
)

// openCameraFiles refuses malformed sources and opens the sources that are files. Open calls it
// before every other step.
func (e *Edge) openCameraFiles(context.Context) (err error) {
	e.files = make([]openedFile, len(e.cfg.Cameras))
	for i := range e.cfg.Cameras {
		f := &e.files[i]
		if f.source, f.picked, err = capture.OpenFiles(&e.cfg.Cameras[i], e.clock); err != nil {
			return err
		}
	}
	return nil
}

// openCameras opens every camera, and waits for absent cameras.
func (e *Edge) openCameras(ctx context.Context) error {
	e.onCloseUnlessStuck(e.closeCameras)
	d := capture.Encoding{Quality: e.cfg.JPEGQuality, Reencode: e.cfg.Reencode}
	for i := range e.cfg.Cameras {
		c := &e.cfg.Cameras[i]
		d.WantW, d.WantH = e.trainedSize(c.Name)
		p := capture.Options{
			Clock:    e.clock,
			World:    func() *sim.Live { return e.sims.World(c.Name) },
			WantW:    d.WantW,
			WantH:    d.WantH,
			SimFPS:   simCameraFPS,
			Decoded:  d.Quality == 0 || d.Reencode,
			Canceled: func() bool { return ctx.Err() != nil },
		}
		source, picked := e.files[i].source, e.files[i].picked
		if source == nil {
			var err error
			if source, picked, err = e.retryCamera(ctx, c, p); err != nil {
				return err
			}
		}
		cam := capture.New(c.Name, source, c.MaxAge)
		if c.Live != nil {
			cam.SetLive(*c.Live)
		}
		e.cameras = append(e.cameras, cam)
		v, err := capture.NewEncoder(cam, c, d)
		if err != nil {
			return err
		}
		e.encoders = append(e.encoders, v)
		if err := e.recording.Tap(cam, *c, d); err != nil {
			return err
		}
		e.log.Info("camera "+c.Name, "picked", picked, "pictures", v.String())
	}
	return e.checkRaw()
}

// checkRaw refuses raw pictures that do not fit into a message. A message has the pictures of all
// steps that the policy looks at together.
func (e *Edge) checkRaw() error {
	var raw []wire.CameraShape
	for _, v := range e.encoders {
		if shape, ok := v.Raw(); ok {
			raw = append(raw, shape)
		}
	}
	if err := wire.CheckRaw(raw, e.contract.Steps); err != nil {
		return exit.Errorf(exit.Config, "%w (--jpeg-quality 1 to 100, or a camera's send=WxH)", err)
	}
	return nil
}

func (e *Edge) retryCamera(ctx context.Context, c *capture.Config, o capture.Options) (source camera.Source,
	picked string, err error) {
	e.waitFor("camera " + c.Name)
	err = e.retry(ctx, "camera "+c.Name, func() (passes bool, err error) {
		source, picked, err = capture.Open(c, o)
		return capture.MayAppear(err), err
	})
	return source, picked, err
}

// trainedSize returns the size of a camera's pictures in the policy's training, 0 when the server
// does not send it.
func (e *Edge) trainedSize(name string) (w, h int) {
	for _, shape := range e.contract.Shapes {
		if shape.Name == capture.ImageKey+name {
			return shape.W, shape.H
		}
	}
	return 0, 0
}

// closeCameras frees the encoders and decoders, then the cameras' memory.
func (e *Edge) closeCameras() {
	for _, v := range e.encoders {
		v.Close()
	}
	e.recording.Close()
	for _, cam := range e.cameras {
		cam.Source.Close()
	}
}
