//go:build linux

package whole

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	machineEnv = "EDGERT_V4L2_MACHINE"
	endpoint   = "tcp/127.0.0.1:7447"

	// The load that an emulated processor can bear. The tick has no real-time priority, because a
	// slow tick would starve the driver's threads there.
	fps            = 5
	width, height  = 320, 180
	pictures       = ":320x180@5,format=yuyv"
	warmUp, length = 5 * time.Second, 60 * time.Second
	attempts       = 10
)

// names are the names of the cameras on vivid's two devices. The driver loses one frame in five of
// the first camera.
var (
	names   = []string{"top", "wrist"}
	options = []string{",percentage-of-dropped-buffers=20", ""}
)

// still is a policy that keeps the arm where it is, and counts how often its pictures change.
type still struct {
	images                        [][]byte
	state, noise, prefix, outputs []float32
	seen                          []uint32 // checksum of each camera's last picture
	changes                       []int    // number of changes of each camera's picture
}

func newStill(m *policy.Meta) *still {
	s := &still{
		state:   make([]float32, len(m.StateNames)),
		prefix:  make([]float32, m.ChunkSize*m.ActionDim),
		outputs: make([]float32, m.ChunkSize*m.ActionDim),
		seen:    make([]uint32, len(m.Cameras)),
		changes: make([]int, len(m.Cameras)),
	}
	for _, c := range m.Cameras {
		s.images = append(s.images, make([]byte, c.Bytes()))
	}
	return s
}

func (s *still) Image(_, cam int) []byte          { return s.images[cam] }
func (s *still) State(int) []float32              { return s.state }
func (*still) Tokens(int) []int64                 { return nil }
func (*still) TokenMask(int) []bool               { return nil }
func (s *still) Noise(int) []float32              { return s.noise }
func (s *still) Prefix(int) []float32             { return s.prefix }
func (s *still) SetControls(int, policy.Controls) {}
func (s *still) ChunkModel(int) []float32         { return s.outputs }
func (s *still) ChunkRobot(int) []float32         { return s.outputs }
func (s *still) Finite(int) bool                  { return true }
func (s *still) Terminate() error                 { return nil }
func (s *still) MaxBatch() int                    { return 1 }
func (s *still) Buffers() int                     { return 1 }
func (s *still) Stage(int, int) error             { return nil }
func (s *still) RunBuffer(int, int) error {
	for i := range s.outputs {
		s.outputs[i] = s.state[i%len(s.state)]
	}
	for cam, pix := range s.images {
		if sum := crc32.ChecksumIEEE(pix); sum != s.seen[cam] {
			s.seen[cam] = sum
			s.changes[cam]++
		}
	}
	return nil
}

// serve serves the policy still for SO-101s until stop is called, which returns how often each
// camera's picture changed.
func serve(t *testing.T) (stop func() []int) {
	t.Helper()
	joints := []string{"shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos", "wrist_roll.pos",
		"gripper.pos"}
	meta := &policy.Meta{
		PolicyType:  "still",
		FPS:         fps,
		ChunkSize:   50,
		ActionDim:   len(joints),
		ActionNames: joints,
		StateNames:  joints,
		RTC:         "none",
	}
	for _, name := range names {
		meta.Cameras = append(meta.Cameras, policy.Camera{Name: name, W: width, H: height})
	}
	cfg := manifest.Default()
	cfg.Model.RepoOrPath, cfg.Service = "still", "still"
	network := rttest.Must(zenoh.Open(t.Context(), zenoh.Config{Listen: []string{endpoint}}))(t)
	model := newStill(meta)
	prefix := rttest.Must(cfg.Prefix("test/still"))(t)
	s := rttest.Must(server.New(cfg, server.Deps{
		Meta: meta, SHA256: "5ha", Repo: "test/still", Prefix: prefix, Model: model, Network: network,
		Clock: rt.KernelClock(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return func() []int {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := network.Close(); err != nil {
			t.Error(err)
		}
		return model.changes
	}
}

// drive runs the edge as `edge-rt --bus sim` with both cameras would.
func drive(t *testing.T, duration time.Duration) *edge.Summary {
	t.Helper()
	cfg := edge.Config{
		FPS:                     fps,
		Bus:                     "sim",
		Robot:                   "so101",
		Connect:                 []string{endpoint},
		Duration:                duration,
		CPU:                     rt.UnpinnedCPU,
		RT:                      rt.ModeOff,
		JPEGQuality:             90,
		OnExit:                  "off",
		Fallback:                "hold",
		Schedule:                chunk.Config{Schedule: "drtc", Epsilon: 1},
		Stages:                  smoothing.Config{Multiplier: 1},
		MaxActionAge:            10 * time.Second,
		DegradedAfter:           5 * time.Second,
		RequestTimeout:          10 * time.Second,
		ReconnectInitialBackoff: 500 * time.Millisecond,
		ReconnectMaxBackoff:     2 * time.Second,
		MaxOffline:              time.Minute,
		Log:                     slog.New(slog.DiscardHandler),
	}
	for i, name := range names {
		c := rttest.Must(capture.Parse(fmt.Sprintf("%s=/dev/video%d%s%s", name, i, pictures, options[i])))(t)
		cfg.Cameras = append(cfg.Cameras, c)
	}
	e, err := edge.Open(t.Context(), cfg)
	for range attempts { // the simulated arm answers late when the host is busy
		if err == nil {
			break
		}
		t.Logf("not open yet: %v", err)
		e, err = edge.Open(t.Context(), cfg)
	}
	rttest.Do(t, err)
	summary, err := e.Run(t.Context())
	if err != nil {
		t.Errorf("Run() = %v", err)
	}
	return summary
}

// held lists the resources that the process holds: descriptors, mappings of devices, and goroutines.
func held() (all []string) {
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // the kernel and the runtime release resources after a close
		runtime.GC()
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		// Readlink fails for the descriptor of the list itself, which is closed by now.
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			kind, _, _ := strings.Cut(target, ":[")
			all = append(all, "descriptor "+kind)
		}
	}
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if _, path, ok := strings.Cut(line, "/dev/"); ok {
			all = append(all, "mapping /dev/"+strings.TrimSpace(path))
		}
	}
	for range runtime.NumGoroutine() {
		all = append(all, "goroutine")
	}
	slices.Sort(all)
	return all
}

// Goal: the whole edge runs for a minute on two real cameras of the kernel: every gap in a camera's
// numbers has a reason, both cameras' pictures reach the policy, and no resource is left. The
// first, short run opens the descriptors that the process keeps.
func TestWholeEdge(t *testing.T) {
	if os.Getenv(machineEnv) == "" {
		t.Skip("runs in the machine of make test-v4l2 V4L2=--whole")
	}
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	stop := serve(t)
	drive(t, warmUp)
	stop()
	before := held()
	t.Logf("the short run is over; %d things held", len(before))
	stop = serve(t)
	s := drive(t, length)
	changes := stop()
	if after := held(); !slices.Equal(before, after) {
		stacks := make([]byte, 1<<16)
		t.Errorf("held before the run %q and after it %q, want the same\n%s", before, after,
			stacks[:runtime.Stack(stacks, true)])
	}
	t.Logf("%d ticks, %d requests, %d chunks, %d starved; before and after: %d things held", s.Ticks, s.Requests,
		s.Chunks, s.StarvedTicks, len(before))
	if s.Exit.Code != 0 || s.Seconds < 0.9*length.Seconds() || s.Chunks < 20 {
		t.Errorf("exit %+v after %.1f s with %d chunks, want a clean one after %v with 20 or more", s.Exit, s.Seconds,
			s.Chunks, length)
	}
	for i, name := range names {
		f := s.Frames[name]
		t.Logf("camera %s: %+v, %d pictures seen by the policy", name, f, changes[i])
		rttest.Want(t, f.Dropped, f.Missed+f.Skipped+f.Broken, "camera %s: gaps of frames", name)
		if lossy := options[i] != ""; lossy && f.Missed < 10 {
			t.Errorf("camera %s: %d frames missed, want some tens: the driver loses one in five", name, f.Missed)
		}
		if f.Captured < uint64(length.Seconds()) || f.Errors != 0 || changes[i] < 20 {
			t.Errorf("camera %s: %+v, %d pictures seen by the policy, want at least one frame a second, no error, 20 "+
				"pictures", name, f, changes[i])
		}
	}
}
