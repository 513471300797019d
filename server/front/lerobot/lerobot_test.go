package lerobot_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/front"
	foreign "github.com/edge-rt/edge-rt/server/front/lerobot"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire/lerobot"
	"github.com/edge-rt/edge-rt/wire/pickle"
)

// stand is a server of the fake policy with this front.
type stand struct {
	front   *foreign.Front
	address string
	log     *bytes.Buffer
}

func start(t *testing.T, change ...func(*foreign.Front)) *stand {
	t.Helper()
	return startFor(t, 2, change...)
}

func startFor(t *testing.T, sessions int, change ...func(*foreign.Front)) *stand {
	t.Helper()
	s := &stand{log: new(bytes.Buffer)}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	opened := rttest.Must(foreign.Listen("127.0.0.1:0", log))(t)
	s.front = opened.(*foreign.Front)
	s.address = s.front.Address()
	for _, f := range change {
		f(s.front)
	}
	cfg := manifest.Default()
	cfg.Model.RepoOrPath = "bundle"
	cfg.Service = "demo"
	cfg.MaxSessions = manifest.Capacity(sessions)
	cfg.Memory = "128MiB"
	served := rttest.Must(server.New(cfg, server.Deps{
		Meta:    servertest.Meta(),
		SHA256:  "5ha",
		Repo:    "test/fake",
		Prefix:  "@lerobot/test-fake/main/demo",
		Model:   servertest.NewModel(),
		Network: servertest.NewNetwork().Session(),
		Clock:   rt.KernelClock(),
		Log:     log,
		Fronts:  []front.Front{opened},
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- served.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		rttest.Do(t, <-ended)
	})
	return s
}

// refused returns how often the front refused for a reason.
func (s *stand) refused(r front.Reason) uint64 {
	return s.front.Counts().Refused[front.LeRobot][r].Load()
}

// released makes the calls of LeRobot's released client, as they look on the wire.
type released struct {
	t    *testing.T
	conn *grpc.ClientConn
}

func (s *stand) dial(t *testing.T) *released {
	t.Helper()
	conn := rttest.Must(grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(lerobot.Codec{}))))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return &released{t, conn}
}

func (c *released) call(path string, data []byte) ([]byte, error) {
	var out lerobot.Message
	err := c.conn.Invoke(c.t.Context(), path, &lerobot.Message{Data: data}, &out)
	return out.Data, err
}

func (c *released) send(data []byte) error {
	stream, err := c.conn.NewStream(c.t.Context(), &grpc.StreamDesc{ClientStreams: true}, lerobot.PathObservations)
	if err != nil {
		return err
	}
	err = lerobot.Pieces(data, func(m *lerobot.Message) error { return stream.SendMsg(m) })
	if err != nil && !errors.Is(err, io.EOF) { // after EOF, the answer contains the reason
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(new(lerobot.Message))
}

func (c *released) begin() { c.beginWith(asked()) }

func (c *released) beginWith(p *lerobot.Policy) {
	rttest.OrPanic(c.call(lerobot.PathReady, nil))
	rttest.OrPanic(c.call(lerobot.PathInstructions, p.Encode()))
}

// actions returns the step and the rows of the next answer. It returns no rows when there was no
// observation.
func (c *released) actions() (first int64, rows [][]float32) {
	c.t.Helper()
	data := rttest.OrPanic(c.call(lerobot.PathActions, nil))
	if len(data) == 0 {
		return 0, nil
	}
	first, rows, err := lerobot.ParseActions(data)
	rttest.PanicOn(err)
	return first, rows
}

// served expects an answer that begins at a step.
func (c *released) served(step int64) {
	c.t.Helper()
	first, rows := c.actions()
	if rttest.Want(c.t, first, step, "the first step"); rows == nil {
		c.t.Error("no actions")
	}
}

func asked() *lerobot.Policy {
	return &lerobot.Policy{
		Type:            "fake",
		Path:            "/etc/passwd",
		ActionsPerChunk: 5,
		Device:          "cuda",
		Features: []lerobot.Feature{
			{Name: "observation.state", Kind: "float32", Shape: []int{2}, Names: []string{"a.pos", "b.pos"}},
			{Name: "observation.images.side", Kind: "image", Shape: []int{4, 4, 3}},
			{Name: "observation.images.top", Kind: "image", Shape: []int{servertest.PictureH, servertest.PictureW, 3}},
		},
	}
}

func observed(step int64, must bool, a, b float64) []byte {
	values := &pickle.Dict{}
	values.Set("a.pos", a)
	values.Set("b.pos", b)
	picture := func(h, w int) *pickle.Array {
		return &pickle.Array{Type: "u1", Shape: []int{h, w, 3}, Data: make([]byte, 3*h*w)}
	}
	values.Set("top", picture(servertest.PictureH, servertest.PictureW))
	values.Set("side", picture(4, 4))
	values.Set("task", "pick")
	return (&lerobot.Observation{Timestamp: 100, Timestep: step, MustGo: must, Values: values}).Encode()
}

func TestAClientGetsItsActions(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	c.begin()
	rttest.Do(t, c.send(observed(7, true, 10, 20)))
	first, rows := c.actions()
	if first != 7 || len(rows) != 5 || math.Abs(float64(rows[4][1])-20.05) > 1e-4 {
		t.Errorf("actions from step %d = %v, want 5 from step 7", first, rows)
	}
	rttest.Contains(t, s.log.String(), `policy is served" client=lerobot-127.0.0.1 session=`, "etc/passwd")
}

// The filter is the released server's: it drops an observation whose step was answered, or whose state is within 1 of
// the state answered last.
func TestFilter(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	c.begin()
	filtered := &s.front.Counts().Filtered[front.LeRobot]
	for i, tt := range []struct {
		name    string
		step    int64
		must    bool
		a, b    float64
		dropped bool
	}{
		{"the first", 0, false, 10, 20, false},
		{"the same step", 0, false, 50, 50, true},
		{"a near state", 1, false, 10.7, 20.7, true},
		{"a far state", 2, false, 10.8, 20.8, false},
		{"near the one answered last", 3, false, 11.5, 20.8, true},
		{"a step that must go", 2, true, 10.8, 20.8, false},
	} {
		before := filtered.Load()
		rttest.Do(t, c.send(observed(tt.step, tt.must, tt.a, tt.b)))
		if dropped := filtered.Load() > before; dropped != tt.dropped {
			t.Fatalf("%d, %s: dropped %v, want %v", i, tt.name, dropped, tt.dropped)
		}
		if !tt.dropped {
			c.served(tt.step)
		}
	}
}

func TestNewestObservationWins(t *testing.T) {
	c := start(t).dial(t)
	c.begin()
	rttest.Do(t, c.send(observed(1, true, 10, 20)))
	rttest.Do(t, c.send(observed(2, true, 30, 40)))
	if first, rows := c.actions(); first != 2 || rows[0][0] < 30 {
		t.Errorf("actions from step %d = %v", first, rows)
	}
	begun := time.Now()
	if _, rows := c.actions(); rows != nil || time.Since(begun) < foreign.ObservationWait {
		t.Errorf("without an observation: %v after %v", rows, time.Since(begun))
	}
}

func TestAnotherPolicyIsRefusedInWords(t *testing.T) {
	s := start(t)
	for _, tt := range []struct {
		name   string
		change func(*lerobot.Policy)
		says   string
	}{
		{"type", func(p *lerobot.Policy) { p.Type = "act" }, `asks for policy_type "act", this server serves "fake"`},
		{"rows", func(p *lerobot.Policy) { p.ActionsPerChunk = 9 }, "9 actions per chunk, the policy's chunks have 8"},
		{"no rows", func(p *lerobot.Policy) { p.ActionsPerChunk = 0 }, "0 actions per chunk"},
		{"joints", func(p *lerobot.Policy) { p.Features[0].Names = []string{"b.pos", "a.pos"} },
			"joints b.pos, a.pos, the policy reads a.pos, b.pos"},
		{"no state", func(p *lerobot.Policy) { p.Features = p.Features[1:] }, "has the joints none"},
		{"camera", func(p *lerobot.Policy) {
			p.Features = p.Features[:2]
		}, "needs camera top, the client's robot has side: give one that name in --robot.cameras"},
		{"channels", func(p *lerobot.Policy) { p.Features[2].Shape = []int{3, 16, 24} }, "shape [3 16 24]"},
		{"two of one name", func(p *lerobot.Policy) {
			p.Rename = map[string]string{"observation.images.side": "observation.images.top"}
		}, "top of the client and another one have the name observation.images.top after rename_map"},
	} {
		c, p := s.dial(t), asked()
		tt.change(p)
		rttest.Must(c.call(lerobot.PathReady, nil))(t)
		rttest.Fails(t, rttest.Err(c.call(lerobot.PathInstructions, p.Encode())), "FailedPrecondition", tt.says)
	}
	rttest.Want(t, s.refused(front.Mismatch), 8, "counted as mismatches")
	renamed := asked()
	renamed.Features[2].Name = "observation.images.front"
	renamed.Rename = map[string]string{"observation.images.front": "observation.images.top"}
	s.dial(t).beginWith(renamed)
}

func TestHostileMessages(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	rttest.Must(c.call(lerobot.PathReady, nil))(t)
	for _, tt := range []struct {
		name, path string
		data       []byte
		code       codes.Code
		says       string
		reason     front.Reason
	}{
		{"os.system", lerobot.PathInstructions, []byte("cos\nsystem\n(X\x02\x00\x00\x00idtR."), codes.InvalidArgument,
			`name outside the table: "os.system"`, front.Global},
		{"LeRobot 0.3", lerobot.PathInstructions, []byte("clerobot.scripts.server.helpers\nRemotePolicyConfig\n."),
			codes.InvalidArgument, "a LeRobot before 0.4: update", front.Global},
		{"a list", lerobot.PathInstructions, []byte("]."), codes.InvalidArgument, "got a list of 0", front.Malformed},
		{"EXT1", lerobot.PathInstructions, []byte("\x80\x02\x82\x01."), codes.InvalidArgument, "EXT1", front.Opcode},
		{"an observation", lerobot.PathInstructions, observed(1, true, 1, 2), codes.InvalidArgument,
			"got a TimedObservation, want a RemotePolicyConfig", front.Malformed},
		{"nothing", lerobot.PathInstructions, nil, codes.InvalidArgument, "it ends at byte 0", front.Malformed},
		{"no instructions before", lerobot.PathActions, nil, codes.FailedPrecondition, "SendPolicyInstructions first",
			front.NumReasons},
	} {
		before := uint64(0)
		if tt.reason < front.NumReasons {
			before = s.refused(tt.reason)
		}
		rttest.Fails(t, rttest.Err(c.call(tt.path, tt.data)), tt.code.String(), tt.says)
		if tt.reason < front.NumReasons && s.refused(tt.reason) != before+1 {
			t.Errorf("%s is not counted", tt.name)
		}
	}
	c.begin()
	rttest.Fails(t, c.send([]byte("cposix\nsystem\n.")), "InvalidArgument")
	rttest.Fails(t, c.send(make([]byte, foreign.Slack+1<<16)), "ResourceExhausted", "send pictures of uint8")
	rttest.Fails(t, c.send(observed(1, true, math.NaN(), 0)), "InvalidArgument", "joint a.pos is NaN, want")
	rttest.Do(t, c.send(bytes.Replace(observed(1, true, 1, 2), []byte("u1"), []byte("i1"), 1)))
	rttest.Fails(t, rttest.Err(c.call(lerobot.PathActions, nil)), "InvalidArgument", "camera top is an array i1 [")
	rttest.Do(t, c.send(observed(1, true, 1, 2))) // later than all observations above
	c.served(1)
}

// A full server refuses a client and gives the reason. When a client has gone, its session is free again.
func TestSessionsOfClients(t *testing.T) {
	s := start(t)
	one := s.dial(t)
	two := s.dial(t)
	three := s.dial(t)
	one.begin()
	two.begin()
	rttest.Must(three.call(lerobot.PathReady, nil))(t)
	rttest.Fails(t, rttest.Err(three.call(lerobot.PathInstructions, asked().Encode())), "ResourceExhausted",
		"server full: 2/2")
	rttest.Must(two.call(lerobot.PathReady, nil))(t) // the call ends the client's own session
	rttest.Must(three.call(lerobot.PathInstructions, asked().Encode()))(t)
	rttest.Equal(t, s.front.Names(), []string{"lerobot-127.0.0.1", "lerobot-127.0.0.1-2"}, "names of the clients")
}

// A client whose connection broke continues its session on the next connection.
func TestAClientReconnects(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	c.begin()
	rttest.Do(t, c.conn.Close())
	rttest.Eventually(t, "the end of the connection", func() bool { return s.front.Ended() == 1 })
	again := s.dial(t)
	rttest.Do(t, again.send(observed(4, true, 10, 20)))
	again.served(4)
	rttest.Want(t, s.front.Names()[0], "lerobot-127.0.0.1", "the first of %q", s.front.Names())
}

// When the connections of two clients of one host break together, each client continues with a session, and neither
// gets an answer to an observation of the other.
func TestTwoClientsReconnect(t *testing.T) {
	s := start(t)
	lost := []*released{s.dial(t), s.dial(t)}
	for i, c := range lost {
		c.begin()
		rttest.Do(t, c.send(observed(int64(i), true, 10, 20)))
	}
	for _, c := range lost {
		rttest.Do(t, c.conn.Close())
	}
	rttest.Eventually(t, "the ends of the connections", func() bool { return s.front.Ended() == 2 })
	for i := range lost {
		c := s.dial(t)
		rttest.Do(t, c.send(observed(int64(10+i), true, 30, 40)))
		c.served(int64(10 + i))
	}
	if n := s.front.Ended(); n != 0 || len(s.front.Names()) != 2 {
		t.Errorf("%d without a connection, names %q", n, s.front.Names())
	}
}

// Clients of one host with different views, here of the actions per chunk, cannot be distinguished after their
// connections have ended, so neither may continue in the place of the other.
func TestUnlikeClientsDoNotReconnect(t *testing.T) {
	s := start(t)
	lost := []*released{s.dial(t), s.dial(t)}
	for i, c := range lost {
		p := asked()
		p.ActionsPerChunk += i
		c.beginWith(p)
	}
	for _, c := range lost {
		rttest.Do(t, c.conn.Close())
	}
	rttest.Eventually(t, "the ends of the connections", func() bool { return s.front.Ended() == 2 })
	rttest.Fails(t, s.dial(t).send(observed(1, true, 10, 20)), "FailedPrecondition", "SendPolicyInstructions first")
}

// Clients without a session hold few bytes, and do not keep other clients out.
func TestManyCallsWithoutASession(t *testing.T) {
	s := start(t)
	served := s.dial(t)
	served.begin()
	calls := &grpc.StreamDesc{ClientStreams: true}
	for range 10 {
		c := s.dial(t)
		for range 2 {
			stream := rttest.Must(c.conn.NewStream(t.Context(), calls, lerobot.PathInstructions))(t)
			_ = stream.SendMsg(&lerobot.Message{Data: make([]byte, 2<<20)})
			rttest.Want(t, status.Code(stream.RecvMsg(new(lerobot.Message))), codes.ResourceExhausted,
				"the code for a large message without a session")
			rttest.Must(c.conn.NewStream(t.Context(), calls, lerobot.PathInstructions))(t) // this call has no end
		}
	}
	rttest.Do(t, served.send(observed(1, true, 10, 20)))
	served.served(1)
	s.dial(t).begin()
	rttest.Want(t, s.refused(front.TooLarge), 20, "messages counted as too large")
}

// The front serves few of the connections of a host that opens them at a high rate, and still serves those of other
// hosts.
func TestConnectionsAtAHighRate(t *testing.T) {
	s := start(t)
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	began := time.Now()
	for range 400 {
		rttest.Must(from.Dial("tcp", s.address))(t).Close()
	}
	s.dial(t).begin()
	most := 130 + uint64(time.Since(began)/(50*time.Millisecond))
	if n := s.front.Counts().Clients[front.LeRobot].Load(); n > most {
		t.Errorf("%d connections are served, want at most %d", n, most)
	}
}

// A call that the front reads after the call's connection has ended leaves no client in the front's maps.
func TestACallAfterTheEnd(t *testing.T) {
	s := start(t)
	s.dial(t).begin()
	ended, end := context.WithCancel(t.Context())
	end()
	rttest.Want(t, s.front.Call(ended, lerobot.PathReady), 1, "clients with a connection")
}

// The front ends calls without a session that would never end, such as a call of a client that sends a byte a second.
func TestACallWithoutAnEnd(t *testing.T) {
	s := start(t, func(f *foreign.Front) { f.ReceiveWithin(50 * time.Millisecond) })
	c := s.dial(t)
	for range 4 {
		slow := rttest.Must(c.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
			lerobot.PathInstructions))(t)
		rttest.Want(t, status.Code(slow.RecvMsg(new(lerobot.Message))), codes.Aborted,
			"the code of the call's end")
	}
	rttest.Must(c.call(lerobot.PathReady, nil))(t)
}

// After a restart of the server, the released client asks for actions without a session again and again. Each refusal
// comes after a wait, during which such a client takes no place from new clients.
func TestClientsOfAnEndedServer(t *testing.T) {
	s := start(t)
	began := time.Now()
	refused := make(chan error)
	for range 6 {
		c := s.dial(t)
		go func() {
			_, err := c.call(lerobot.PathActions, nil)
			refused <- err
		}()
	}
	time.Sleep(100 * time.Millisecond) // time in which the calls above begin to wait
	s.dial(t).begin()
	for range 6 {
		if err := <-refused; status.Code(err) == codes.FailedPrecondition && time.Since(began) < foreign.RefusalWait {
			t.Errorf("refused after %v: %v", time.Since(began), err)
		}
	}
}

// Clients that send observations and never ask for actions together use a bounded amount of memory. A client that asks
// gets its answers. Only the budget of the fronts bounds their pictures: the policy does not use their camera, so the
// bound on the memory of robots does not count it.
func TestHostileSessionsShareABudget(t *testing.T) {
	const hostile = 20
	s := startFor(t, hostile+1)
	piled := asked()
	piled.Features[1].Shape = []int{1000, 1000, 3}
	var all []*released
	for range hostile {
		c := s.dial(t)
		c.beginWith(piled)
		_ = c.send(observed(1, true, 10, 20)) // the observation waits, or there is no room for it
		stream := rttest.Must(c.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
			lerobot.PathObservations))(t)
		_ = stream.SendMsg(&lerobot.Message{State: 1, Data: make([]byte, 1<<20)}) // this observation has no end
		all = append(all, c)
	}
	rttest.Eventually(t, "refusals", func() bool { return s.refused(front.NoMemory) >= hostile })
	rttest.Fails(t, all[hostile-1].send(observed(2, true, 10, 20)), "ResourceExhausted",
		"raise memory in the server's manifest")
	budget, works := s.front.Budget(), s.dial(t)
	works.begin()
	for step := range int64(5) {
		rttest.Do(t, works.send(observed(step, true, 10, 20)))
		works.served(step)
	}
	if budget.Most() > budget.Limit() || budget.Used() < budget.Limit()/2 {
		t.Errorf("%d bytes are held, at most %d were, of %d", budget.Used(), budget.Most(), budget.Limit())
	}
	for _, c := range append(all, works) {
		rttest.Must(c.call(lerobot.PathReady, nil))(t) // the call ends the client's session
		rttest.Do(t, c.conn.Close())
	}
	rttest.Eventually(t, "the memory of the clients", func() bool { return budget.Used() == 0 })
}

// A client marks one observation with must_go and then waits for its answer. When that observation
// is refused, the front keeps the client's next observation, so that the client gets an answer.
func TestTheOneAfterARefusedObservationGoes(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	c.begin()
	rttest.Do(t, c.send(observed(1, true, 10, 20)))
	c.served(1)
	ctx, cancel := context.WithCancel(t.Context())
	stream := rttest.Must(c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, lerobot.PathObservations))(t)
	rttest.Do(t, stream.SendMsg(&lerobot.Message{State: 1, Data: make([]byte, 1)}))
	rttest.Eventually(t, "a refusal", func() bool {
		return status.Code(c.send(observed(2, false, 10, 20))) == codes.ResourceExhausted
	})
	cancel()
	for range 2 { // the front refuses one observation unread, and the other because of NaN
		rttest.Eventually(t, "an accepted one", func() bool { return c.send(observed(3, false, 10, 20)) == nil })
		c.served(3)
		rttest.Fails(t, c.send(observed(4, true, math.NaN(), 20)), "NaN")
	}
}
