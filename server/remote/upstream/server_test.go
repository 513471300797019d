package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// serve starts testdata/servers.py as the server that args choose, and returns its port and process.
func serve(t testing.TB, args ...string) (port string, process *exec.Cmd) {
	t.Helper()
	python := os.Getenv("EDGERT_PYTHON")
	if python == "" {
		python = "../../../.venv/bin/python"
	}
	if exec.Command(python, "-c", "import openpi_server, zmq, msgpack").Run() != nil {
		t.Skipf("%s has no openpi-server or pyzmq: run make setup with tools/setup.sh test", python)
	}
	cmd := exec.Command(python, append([]string{"testdata/servers.py"}, args...)...)
	cmd.Stderr = io.Discard // tracebacks that tests provoke
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	rttest.Do(t, err)
	started = append(started, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v ended before it printed its port: %v", args, err)
	}
	port = strings.TrimSpace(line)
	rttest.Eventually(t, "the server listens at port "+port, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return port, cmd
}

// shared has the ports of the servers that all tests may use, by kind. Each server is started at
// its first use.
var shared = map[string]string{}

// serveShared returns the port of the shared server of a kind.
func serveShared(t testing.TB, kind string) (port string) {
	t.Helper()
	if shared[kind] == "" {
		shared[kind], _ = serve(t, kinds[kind].args...)
	}
	return shared[kind]
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, cmd := range started {
		cmd.Process.Kill()
		cmd.Wait()
	}
	os.Exit(code)
}

// started are the processes that TestMain has to end.
var started []*exec.Cmd

// joints returns the description of a policy with n joints.
func joints(n, horizon int, cameras []Camera) (meta policy.Meta) {
	meta = policy.Meta{FPS: 30, ChunkSize: horizon, ActionDim: n}
	for i := range n {
		name := "j" + strconv.Itoa(i) + ".pos"
		meta.StateNames, meta.ActionNames = append(meta.StateNames, name), append(meta.ActionNames, name)
	}
	for _, c := range cameras {
		meta.Cameras = append(meta.Cameras, policy.Camera{Name: c.Name, H: c.Height, W: c.Width})
	}
	return meta
}

// configure returns the configuration of a preset with pictures of one size.
func configure(t testing.TB, kind, preset, url string, dim, horizon int) Config {
	t.Helper()
	spec := rttest.Must(presetOf(kind, preset))(t)
	for i := range spec.Cameras {
		spec.Cameras[i].Height, spec.Cameras[i].Width = 48, 64
	}
	rttest.Do(t, spec.resolve(dim, dim))
	return Config{
		Kind: kind,
		URL:  url,
		Spec: spec,
		Meta: joints(dim, horizon, spec.Cameras),
		Log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// row returns a row whose state counts from 1 and whose pictures have one colour.
func row(c *Config, task string) *remote.Row {
	r := &remote.Row{
		ChunkRobot: make([]float32, c.Meta.ChunkSize*c.Meta.ActionDim),
		ChunkModel: make([]float32, c.Meta.ChunkSize*c.Meta.ActionDim),
	}
	r.Task = task
	for i := range c.Meta.StateNames {
		r.State = append(r.State, float32(i+1))
	}
	for _, camera := range c.Spec.Cameras {
		picture := make([]byte, camera.Height*camera.Width*channels)
		for i := range picture {
			picture[i] = byte(10 * (1 + i%channels))
		}
		r.Images = append(r.Images, picture)
	}
	return r
}

func open(t testing.TB, c Config) *remote.Policy {
	t.Helper()
	p := rttest.Must(Open(context.Background(), c))(t)
	t.Cleanup(func() { p.Runtime.Close() })
	return p
}

const token = "secret"

// kinds has the arguments of a server of each kind, and the preset of its tests.
var kinds = map[string]struct {
	preset, scheme string
	dim            int
	args           []string
}{
	openPI: {presetLibero, "ws://", 8, []string{openPI}},
	GR00T:  {presetSO100, "tcp://", 6, []string{GR00T, "--cameras", "front,wrist", "--token", token}},
}

// configured returns a configuration for the server of a kind at a port.
func configured(t testing.TB, kind, port string) Config {
	t.Helper()
	k := kinds[kind]
	c := configure(t, kind, k.preset, k.scheme+"127.0.0.1:"+port, k.dim, 16)
	if kind == GR00T {
		c.Key = token
	}
	return c
}

func TestPresetsWithTheirServers(t *testing.T) {
	for _, tt := range []struct {
		kind, preset string
		dim          int
	}{
		{openPI, presetDroid, 8},
		{openPI, presetAloha, 14},
		{openPI, presetLibero, 8},
		{GR00T, presetSO100, 6},
	} {
		t.Run(tt.kind+" "+tt.preset, func(t *testing.T) {
			c := configure(t, tt.kind, tt.preset, kinds[tt.kind].scheme+"127.0.0.1:"+serveShared(t, tt.kind), tt.dim,
				16)
			c.Key = token
			p := open(t, c)
			r := row(&c, "pick up the cube")
			rttest.Do(t, p.Runtime.Batch([]*remote.Row{r}))
			for i, v := range r.ChunkRobot {
				step, joint := i/tt.dim, i%tt.dim
				want := float64(joint+1) + float64(step)/100
				if step == 15 && joint < channels {
					want = float64(10 * (1 + joint)) // a value in the middle of the picture
				}
				if math.Abs(float64(v)-want) > 1e-5 {
					t.Fatalf("row %d, joint %d is %v, want %v", step, joint, v, want)
				}
			}
			if now := p.Runtime.Condition(); !now.Ready || now.Failures+now.Errors != 0 {
				t.Errorf("condition %+v, want ready without failures", now)
			}
		})
	}
}

func TestServersOfAnotherForm(t *testing.T) {
	for _, tt := range []struct {
		name, kind string
		change     func(*Config)
		want       string
	}{
		{"openpi, horizon", openPI, func(c *Config) { c.Meta.ChunkSize = 10 }, "write chunk_size: 16"},
		{"openpi, joints", openPI, func(c *Config) { c.Task = "shape" }, "want [16 8]"},
		{"openpi, error", openPI, func(c *Config) { c.Task = "fail" }, "ValueError: no policy for the task 'fail'"},
		{"openpi, key of the actions", openPI, func(c *Config) {
			c.Spec.Actions[0].Key = "chunk"
		}, "it has the keys actions"},
		{"gr00t, horizon", GR00T, func(c *Config) { c.Meta.ChunkSize = 50 }, "write chunk_size: 16"},
		{"gr00t, cameras", GR00T, func(c *Config) {
			c.Spec.Cameras[1].Key = "video.top"
		}, "the server wants video.wrist"},
		{"gr00t, state", GR00T, func(c *Config) {
			c.Spec.State[1].Key = "state.hand"
		}, "the server wants state.gripper"},
		{"gr00t, token", GR00T, func(c *Config) { c.Key = "" }, "Unauthorized"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := configured(t, tt.kind, serveShared(t, tt.kind))
			tt.change(&c)
			p, err := Open(context.Background(), c)
			if err == nil {
				p.Runtime.Close()
			}
			rttest.FailsAs(t, err, ErrFit, tt.want)
		})
	}
}

// TestFaults sends a running server each faulty request, and a good request after each.
func TestFaults(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			c := configured(t, kind, serveShared(t, kind))
			p := open(t, c)
			for task, want := range map[string]string{"fail": "no policy for the task 'fail'", "shape": "want"} {
				err := p.Runtime.Batch([]*remote.Row{row(&c, task)})
				if !errors.Is(err, policy.ErrRun) || errors.Is(err, policy.ErrAway) || !rttest.Says(err, want) {
					t.Errorf("task %s: %v, want policy.ErrRun with %s", task, err, want)
				}
				good(t, p, &c)
			}
			rttest.Want(t, p.Runtime.Condition().Errors, 2, "counted errors")
		})
	}
}

// good sends good requests until the server answers one, because it may have closed the connection after an error.
func good(t testing.TB, p *remote.Policy, c *Config) {
	t.Helper()
	rttest.Eventually(t, "the server answers", func() bool {
		r := row(c, "")
		err := p.Runtime.Batch([]*remote.Row{r})
		if err != nil && !errors.Is(err, policy.ErrAway) || err == nil && r.ChunkRobot[0] != 1 {
			t.Fatalf("the chunk begins with %v, want 1; %v", r.ChunkRobot[0], err)
		}
		return err == nil
	})
}

func TestServerThatHangsAndRestarts(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			port, process := serve(t, kinds[kind].args...)
			c := configured(t, kind, port)
			p := open(t, c)
			time.AfterFunc(100*time.Millisecond, p.Runtime.Interrupt)
			// the server computes for a minute; Interrupt ends only the wait
			err := p.Runtime.Batch([]*remote.Row{row(&c, "slow")})
			rttest.FailsAs(t, err, policy.ErrAway, remote.ErrInterrupted.Error())
			process.Process.Kill()
			process.Wait()
			// the error of a request to the dead server
			rttest.FailsAs(t, p.Runtime.Batch([]*remote.Row{row(&c, "")}), policy.ErrAway)
			serve(t, append(kinds[kind].args, "--port", port)...)
			good(t, p, &c)
			if now := p.Runtime.Condition(); !now.Ready || now.Failures != 1 || now.Restarts != 1 || now.Why == "" {
				t.Errorf("condition %+v, want ready after one failure and one restart, with its reason", now)
			}
		})
	}
}

func TestServerThatEndsBetweenRequests(t *testing.T) {
	port, process := serve(t, kinds[openPI].args...)
	p := open(t, configured(t, openPI, port))
	process.Process.Kill()
	rttest.Eventually(t, "the end of the server is noticed", func() bool { return !p.Runtime.Condition().Ready })
}

func TestAbsentServer(t *testing.T) {
	for url, kind := range map[string]string{"ws://127.0.0.1:1": openPI, "tcp://127.0.0.1:1": GR00T} {
		c := configured(t, kind, "")
		c.URL = url
		_, err := Open(context.Background(), c)
		rttest.FailsAs(t, err, policy.ErrAway, url)
	}
}

// Property: whatever a server answers, the chunk is filled or an error names the fault.
func FuzzAnswer(f *testing.F) {
	chunk := ndarray.OpenPI.AppendArray([]byte("\x81\xA7actions"), "<f8", []int{2, 3}, make([]byte, 48))
	f.Add(chunk, false)
	arm := ndarray.GR00T.AppendArray([]byte("\x92\x82\xA3arm"), ndarray.Float32, []int{1, 2, 2}, make([]byte, 16))
	hand := ndarray.GR00T.AppendArray(append(arm, "\xA4hand"...), ndarray.Float32, []int{1, 2, 1}, make([]byte, 8))
	f.Add(append(hand, 0x80), true)
	f.Add([]byte("\x81\xA5error\xA2no"), true)
	f.Fuzz(func(t *testing.T, b []byte, isGroot bool) {
		kind, parts := openPI, []Part{{"actions", 3}}
		if isGroot {
			kind, parts = GR00T, []Part{{"action.arm", 2}, {"action.hand", 1}}
		}
		m := newMessages(kind, &Spec{Actions: parts}, &policy.Meta{ChunkSize: 2, ActionDim: 3})
		v, err := ndarray.Parse(b)
		if err != nil {
			return
		}
		if err := m.answer(make([]float32, 6), v); err != nil && !isAnswer(err) {
			t.Fatalf("error %v is not about an answer", err)
		}
		if meta, ok := v.(ndarray.Map); ok {
			_ = compareModalities(meta, &Spec{Actions: parts, Nested: true}, 2)
		}
	})
}
