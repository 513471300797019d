package policyserver

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/wire/lerobot"
	"github.com/edge-rt/edge-rt/wire/pickle"
)

const full = `model:
  runtime: lerobot-async
  url: "URL"
  policy_type: act
  repo_or_path: user/model
  inputs:
    fps: 10
    chunk_size: 2
    action_names: [a.pos, b.pos]
    action_units: [degrees, degrees]
    cameras: [{name: top, key: front, height: 2, width: 3}]
`

// fake is a server like LeRobot's policy_server. The values of row i of its chunk are the state plus i.
type fake struct {
	policy atomic.Pointer[lerobot.Policy]
	obs    chan *lerobot.Observation
	cols   atomic.Int64 // columns of an answer; 0: as described; -1: no answer
	slow   atomic.Bool  // true: no answer comes before the call ends
	nan    atomic.Bool  // true: the answers are not finite
}

func (f *fake) answer(ctx context.Context, path string, next lerobot.Next) ([]byte, error) {
	switch path {
	case lerobot.PathInstructions:
		m, err := next(make([]byte, 1<<16))
		if err != nil {
			return nil, err
		}
		p, err := lerobot.ParsePolicy(m.Data)
		f.policy.Store(p)
		return nil, err
	case lerobot.PathObservations:
		data, err := lerobot.Gather(next, 1<<20)
		if err != nil {
			return nil, err
		}
		o, err := lerobot.ParseObservation(data)
		if err == nil {
			f.obs <- o
		}
		return nil, err
	case lerobot.PathActions:
		return f.actions(ctx)
	}
	return nil, nil
}

func (f *fake) actions(ctx context.Context) ([]byte, error) {
	o := <-f.obs
	if f.slow.Load() {
		<-ctx.Done()
	}
	if f.cols.Load() < 0 {
		return nil, nil
	}
	a, _ := o.Number("a.pos")
	b, _ := o.Number("b.pos")
	data := []float32{float32(a), float32(b), float32(a) + 1, float32(b) + 1}
	if f.nan.Load() {
		data[3] = float32(math.NaN())
	}
	cols := 2
	if f.cols.Load() > 0 {
		cols = int(f.cols.Load())
	}
	return pickle.AppendActions(nil, &pickle.Actions{First: o.Timestep, Cols: cols, Data: data}), nil
}

// serve returns a function that ends the server.
func serve(t *testing.T, address string, answer lerobot.Call) (bound string, stop func()) {
	t.Helper()
	listener := rttest.Must(net.Listen("tcp", address))(t)
	server := lerobot.NewServer(answer)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String(), func() { _ = server.Close() }
}

// begin returns a fake at an address. The function stop ends the fake.
func begin(t *testing.T, address string) (f *fake, bound string, stop func()) {
	t.Helper()
	f = &fake{obs: make(chan *lerobot.Observation, 1)}
	bound, stop = serve(t, address, f.answer)
	return f, bound, stop
}

func load(t *testing.T, text string) (manifest.Config, error) {
	t.Helper()
	path := rttest.WriteFile(t, t.TempDir(), "server.yaml", text)
	return manifest.Load(path)
}

func open(t *testing.T, url string) (*remote.Policy, error) {
	t.Helper()
	cfg := rttest.Must(load(t, strings.Replace(full, "URL", url, 1)))(t)
	p, err := Open(t.Context(), &cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Cleanup(func() { rttest.Do(t, p.Runtime.Close()) })
	}
	return p, err
}

func row() *remote.Row {
	return &remote.Row{
		Request:    policy.Request{Task: "pick"},
		State:      []float32{10, 20},
		Images:     [][]byte{make([]byte, 18)},
		ChunkRobot: make([]float32, 4),
		ChunkModel: make([]float32, 4),
	}
}

func TestChunksOfAPolicyServer(t *testing.T) {
	f, address, stop := begin(t, "127.0.0.1:0")
	p := rttest.Must(open(t, address))(t)
	asked := f.policy.Load()
	if asked.Path != "user/model" || asked.Type != "act" || asked.ActionsPerChunk != 2 ||
		asked.Features[1].Name != "observation.images.front" || asked.Features[0].Names[1] != "b.pos" {
		t.Errorf("the server is asked for %+v", asked)
	}
	r := row()
	rttest.Do(t, p.Runtime.Batch([]*remote.Row{r}))
	if r.ChunkRobot[3] != 21 || r.ChunkModel[0] != 10 {
		t.Errorf("chunk = %v", r.ChunkRobot)
	}
	f.cols.Store(4)
	if err := p.Runtime.Batch([]*remote.Row{r}); !errors.Is(err, policy.ErrRun) || errors.Is(err, policy.ErrAway) ||
		!rttest.Says(err, "1 actions of 4 values, want 2 of 2") {
		t.Errorf("an answer of another size: %v", err)
	}
	f.cols.Store(0)
	stop()
	rttest.FailsAs(t, p.Runtime.Batch([]*remote.Row{r}), policy.ErrAway) // the server has ended
	again, _, _ := begin(t, address)
	rttest.Eventually(t, "the next connection", func() bool { return p.Runtime.Condition().Ready })
	rttest.Do(t, p.Runtime.Batch([]*remote.Row{r}))
	again.cols.Store(-1)
	err := p.Runtime.Batch([]*remote.Row{r})
	if rttest.FailsAs(t, err, policy.ErrRun, "answers without actions"); errors.Is(err, policy.ErrAway) {
		t.Errorf("an empty answer ends the connection: %v", err)
	}
	again.cols.Store(0)
	rttest.Do(t, p.Runtime.Batch([]*remote.Row{r}))
	if c := p.Runtime.Condition(); c.Failures != 1 || c.Restarts != 1 || c.Errors != 2 {
		t.Errorf("condition = %+v", c)
	}
}

// A server whose answers have values that are not finite, even its answer to blank inputs, is not
// ready. It is ready again when its answers are finite.
func TestAnswersThatAreNotFinite(t *testing.T) {
	f, address, _ := begin(t, "127.0.0.1:0")
	p := rttest.Must(open(t, address))(t)
	f.nan.Store(true)
	p.Runtime.Fail(errors.New("blank inputs fail, too"))
	rttest.Eventually(t, "the reason", func() bool {
		now := p.Runtime.Condition()
		return !now.Ready && strings.Contains(now.Text(), "waiting to reconnect: a blank observation: ") &&
			strings.Contains(now.Text(), "action 1 has NaN for b.pos")
	})
	f.nan.Store(false)
	rttest.Eventually(t, "the next connection", func() bool { return p.Runtime.Condition().Ready })
	f.nan.Store(true)
	// Open of a server whose answers are not finite
	rttest.FailsAs(t, rttest.Err(open(t, address)), manifest.ErrInvalid, "action 1 has NaN for b.pos")
}

func TestInterrupt(t *testing.T) {
	f, address, _ := begin(t, "127.0.0.1:0")
	p := rttest.Must(open(t, address))(t)
	f.slow.Store(true)
	time.AfterFunc(50*time.Millisecond, p.Runtime.Interrupt)
	rttest.FailsAs(t, p.Runtime.Batch([]*remote.Row{row()}), policy.ErrAway)
}

// Open detects, with blank inputs, a server whose answers have another size, or that gives no answers.
func TestAPolicyThatDoesNotFit(t *testing.T) {
	for cols, want := range map[int64]string{4: "1 actions of 4 values, want 2 of 2", -1: "answers without actions"} {
		f, address, _ := begin(t, "127.0.0.1:0")
		f.cols.Store(cols)
		rttest.FailsAs(t, rttest.Err(open(t, address)), manifest.ErrInvalid, want)
	}
}

func TestMissingEntries(t *testing.T) {
	for _, key := range []string{"policy_type", "repo_or_path", "fps", "chunk_size", "action_names", "action_units"} {
		var text strings.Builder
		for line := range strings.Lines(strings.Replace(full, "URL", "127.0.0.1:1", 1)) {
			if !strings.HasPrefix(strings.TrimSpace(line), key+":") {
				text.WriteString(line)
			}
		}
		cfg, err := load(t, text.String())
		if err == nil {
			_, err = Open(t.Context(), &cfg, slog.New(slog.DiscardHandler))
		}
		rttest.FailsAs(t, err, manifest.ErrInvalid, key+" is required")
	}
	for _, url := range []string{"http://127.0.0.1:1", "127.0.0.1", ":8080", "127.0.0.1:http"} {
		rttest.FailsAs(t, rttest.Err(open(t, url)), manifest.ErrInvalid, "'"+url+"', want HOST:PORT")
	}
	for _, password := range []string{"user:secret", "secret"} {
		_, err := open(t, password+"@127.0.0.1:1")
		rttest.FailsAs(t, err, manifest.ErrInvalid, "'xxxxx@127.0.0.1:1', want")
	}
	// there is no server
	rttest.FailsAs(t, rttest.Err(open(t, "127.0.0.1:1")), policy.ErrAway)
}

// An observation has each key once: the entry of a camera would replace an earlier entry with the same key.
func TestAKeyOfTwoEntries(t *testing.T) {
	const one = "{name: top, key: front, height: 2, width: 3}"
	for _, cameras := range []string{one + ", {name: side, key: front}", one + ", {name: front}",
		"{name: top, key: a.pos}", "{name: task}"} {
		cfg := rttest.Must(load(t, strings.NewReplacer("URL", "127.0.0.1:1", one, cameras).Replace(full)))(t)
		_, err := Open(t.Context(), &cfg, slog.New(slog.DiscardHandler))
		rttest.FailsAs(t, err, manifest.ErrInvalid, "want a separate key for each camera")
	}
}

// When a policy_server runs but cannot load the policy, the error names the entries to change.
func TestAPolicyThatTheServerRefuses(t *testing.T) {
	for raised, want := range map[string]string{
		"Policy type acd not supported":             "model.policy_type",
		"No module named 'lerobot.async_inference'": "before 0.4: update",
	} {
		address, _ := serve(t, "127.0.0.1:0", func(_ context.Context, path string, _ lerobot.Next) ([]byte, error) {
			if path != lerobot.PathInstructions {
				return nil, nil
			}
			// the form in which grpcio reports an exception of the server
			return nil, status.Error(codes.Unknown, "Exception calling application: "+raised)
		})
		rttest.FailsAs(t, rttest.Err(open(t, address)), manifest.ErrInvalid, want)
	}
}

// A server that ends while lean-server connects counts as away, not as a program with another protocol.
func TestAServerThatEnds(t *testing.T) {
	listener := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0) // Close then resets the connection, as for a killed server
			_ = conn.Close()
		}
	}()
	_, err := open(t, listener.Addr().String())
	if rttest.FailsAs(t, err, policy.ErrAway); rttest.Says(err, "speak gRPC") {
		t.Error(err)
	}
}

// The client does not take an answer to another client, whose steps begin at 0 or 1, for its own.
func TestAnswersToAnotherClient(t *testing.T) {
	address, _ := serve(t, "127.0.0.1:0", func(_ context.Context, path string, _ lerobot.Next) ([]byte, error) {
		if path != lerobot.PathActions {
			return nil, nil
		}
		return pickle.AppendActions(nil, &pickle.Actions{First: 1, Cols: 2, Data: make([]float32, 4)}), nil
	})
	rttest.FailsAs(t, rttest.Err(open(t, address)), policy.ErrAway, "end others, such as a second lean-server")
}
