package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/tinylib/msgp/msgp"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
	robotclient "github.com/edge-rt/edge-rt/server/front/lerobot"
	"github.com/edge-rt/edge-rt/server/front/openpi"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// serveOpenPI serves the fake policy to openpi's clients at the returned host and port.
func serveOpenPI(t *testing.T, settings manifest.OpenPIFront) (b *bench, address string) {
	t.Helper()
	f := rttest.Must(openpi.Open("127.0.0.1:0", &settings))(t)
	cfg := config()
	cfg.Memory = "64MiB"
	b = newBench(t, cfg, func(d *Deps) { d.Fronts = []front.Front{f} })
	b.start()
	t.Cleanup(b.end)
	return b, f.Addr().String()
}

// dialed is a client that has received its metadata.
type dialed struct {
	*testing.T
	conn *websocket.Conn
}

// withKey returns the options of a client that shows a key.
func withKey(key string) *websocket.DialOptions {
	return &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Api-Key " + key}}}
}

func dialOpenPI(t *testing.T, address, key string) (*dialed, ndarray.Map) {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws://"+address, withKey(key))
	rttest.Do(t, err)
	t.Cleanup(func() { conn.CloseNow() })
	c := &dialed{t, conn}
	_, meta := c.next()
	return c, rttest.Must(ndarray.ParseMap(meta))(t)
}

func (c *dialed) next() (websocket.MessageType, []byte) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
	defer cancel()
	kind, data, err := c.conn.Read(ctx)
	if err != nil {
		c.Fatal(err)
	}
	return kind, data
}

// ask sends an observation and returns the answer or, for an error, its text.
func (c *dialed) ask(message []byte) (answer ndarray.Map, text string) {
	c.Helper()
	rttest.PanicOn(c.conn.Write(c.Context(), websocket.MessageBinary, message))
	kind, data := c.next()
	if kind == websocket.MessageText {
		return nil, string(data)
	}
	return rttest.OrPanic(ndarray.ParseMap(data)), ""
}

// answers expects an answer to an observation.
func (c *dialed) answers(message []byte) {
	c.Helper()
	if answer, text := c.ask(message); answer == nil {
		c.Errorf("no answer: %s", text)
	}
}

// refuses expects an error whose text contains these words.
func (c *dialed) refuses(message []byte, words string) {
	c.Helper()
	_, text := c.ask(message)
	rttest.Contains(c, text, words)
}

// entry is an array of an observation, with its key.
type entry struct {
	key, dtype string
	shape      []int
	data       []byte
}

func floats(values ...float32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// packed returns an observation of openpi; a key such as images.top is nested.
func packed(entries ...entry) []byte {
	b := msgp.AppendMapHeader(nil, uint32(len(entries)+1))
	b = msgp.AppendString(msgp.AppendString(b, "prompt"), "pick")
	for _, e := range entries {
		outer, inner, nested := strings.Cut(e.key, ".")
		if b = msgp.AppendString(b, outer); nested {
			b = msgp.AppendString(msgp.AppendMapHeader(b, 1), inner)
		}
		b = ndarray.OpenPI.AppendArray(b, e.dtype, e.shape, e.data)
	}
	return b
}

const pixels = servertest.PictureH * servertest.PictureW

// Entries that fit the fake policy.
var (
	statePart = entry{"observation/state", "<f4", []int{2}, floats(10, 20)}
	hwc       = entry{"observation/image", "|u1", []int{servertest.PictureH, servertest.PictureW, 3},
		make([]byte, 3*pixels)}
	chw  = entry{"images.top", "|u1", []int{3, servertest.PictureH, servertest.PictureW}, make([]byte, 3*pixels)}
	unit = entry{"top", "<f4", []int{servertest.PictureH, servertest.PictureW, 3}, make([]byte, 12*pixels)}
)

func TestOpenPIClientsAreRobots(t *testing.T) {
	b, address := serveOpenPI(t, manifest.OpenPIFront{})
	c, meta := dialOpenPI(t, address, "any")
	if n, _ := ndarray.Number(meta["action_horizon"]); n != 8 {
		t.Errorf("metadata = %v, want an action_horizon of 8", meta)
	}
	double := entry{"state", "<f8", []int{2}, binary.LittleEndian.AppendUint64(
		binary.LittleEndian.AppendUint64(nil, math.Float64bits(10)), math.Float64bits(20))}
	joint := entry{"observation/joint_position", "<f4", []int{1}, floats(10)}
	gripper := entry{"observation/gripper_position", "<f4", []int{1}, floats(20)}
	scalar := append(packed(hwc, joint), msgp.AppendFloat64(msgp.AppendString(nil, gripper.key), 20)...)
	scalar[0]++ // increases the map's number of entries by one
	for i, message := range [][]byte{packed(statePart, hwc), packed(chw, double), packed(unit, joint, gripper),
		scalar} {
		answer, text := c.ask(message)
		a, ok := answer["actions"].(*ndarray.Array)
		if !ok || !a.Is(8, 2) {
			t.Fatalf("message %d: %v %s", i, answer, text)
		}
		values := make([]float32, a.Len())
		if a.Floats(values); !near(values[:2], []float32{10.01, 20.01}, 1e-5) {
			t.Errorf("message %d: actions begin with %v", i, values[:2])
		}
		timing, _ := answer["server_timing"].(ndarray.Map)
		_, first := timing["infer_ms"].(float64)
		if _, later := timing["prev_total_ms"].(float64); !first || later != (i > 0) {
			t.Errorf("message %d: server_timing = %v", i, timing)
		}
	}
	list := b.server.sessions.all()
	if len(list) != 1 || list[0].uuid != "openpi-127.0.0.1" || list[0].episode.Load() != 1 {
		t.Errorf("sessions = %v, want one of the client, with an episode of the task", list)
	}
	if k := &b.server.stats.fronts; k.Answered[front.OpenPI].Load() != 4 || k.Clients[front.OpenPI].Load() != 1 {
		t.Errorf("counts = %+v", k)
	}
	for range 2 { // the second observation is sent before the answer to the first
		rttest.PanicOn(c.conn.Write(t.Context(), websocket.MessageBinary, packed(statePart, hwc)))
	}
	for range 2 {
		if _, data := c.next(); !bytes.Contains(data, []byte("actions")) {
			t.Errorf("the answer is %q", data)
		}
	}
	c.conn.Close(websocket.StatusNormalClosure, "")
	rttest.Eventually(t, "the session ends", func() bool { return len(b.server.sessions.all()) == 0 })
}

func TestOpenPIObservationsThatDoNotFit(t *testing.T) {
	b, address := serveOpenPI(t, manifest.OpenPIFront{})
	c, _ := dialOpenPI(t, address, "")
	part := func(key, dtype string, data []byte, shape ...int) entry { return entry{key, dtype, shape, data} }
	for name, tt := range map[string]struct {
		message []byte
		want    string
	}{
		"no picture": {packed(statePart),
			"no key has the picture of camera top; it has the keys observation/state, prompt"},
		"no state": {packed(hwc), "fronts.openpi.state_keys"},
		"short state": {packed(hwc, part("state", "<f4", floats(1), 1)),
			"state has 1 values, want 2: a.pos, b.pos"},
		"endless state":      {packed(hwc, part("state", "|u1", make([]byte, 9999), 9999)), "and 2 in all"},
		"state of a square":  {packed(hwc, part("state", "<f4", floats(1, 2, 3, 4), 2, 2)), "numbers along one axis"},
		"state not a number": {packed(hwc, part("state", "<f4", floats(1, float32(math.NaN())), 2)), "b.pos is NaN"},
		"two dimensions":     {packed(statePart, part("top", "|u1", []byte{1}, 1, 1)), "want a picture"},
		"empty picture":      {packed(statePart, part("top", "|u1", nil, 0, 5, 3)), "want a picture"},
		"wide picture": {packed(statePart, part("top", "|u1", make([]byte, 3*9999), 1, 9999, 3)),
			"sides to 8192"},
		"bright picture": {packed(statePart, part("top", "<f4", floats(0, 2, 0), 1, 1, 3)),
			"has the value 2, want 0 to 1"},
	} {
		if answer, text := c.ask(tt.message); answer != nil || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %v, text %q, want %q", name, answer, text, tt.want)
		}
	}
	c.answers(packed(statePart, hwc))
	rttest.Want(t, b.server.stats.fronts.Refused[front.OpenPI][front.Mismatch].Load(), 10, "mismatches counted")
}

func TestOpenPIMessagesThatAreNoObservations(t *testing.T) {
	b, address := serveOpenPI(t, manifest.OpenPIFront{})
	for _, message := range [][]byte{{}, {0xC1}, []byte("\x80\x04\x95"), bytes.Repeat([]byte{0x91}, 1000),
		{0xDF, 0xFF, 0xFF, 0xFF, 0xFF}, packed(entry{"a", "|O", []int{1}, []byte("12345678")})} {
		c, _ := dialOpenPI(t, address, "")
		if answer, text := c.ask(message); answer != nil || !strings.HasPrefix(text, "lean-server: ndarray: ") {
			t.Errorf("%.20x: %v %q", message, answer, text)
		}
		_, _, err := c.conn.Read(t.Context())
		rttest.Want(t, websocket.CloseStatus(err), websocket.StatusInternalError, "%.20x: the code of %v", message, err)
		// otherwise the server, which has room for two clients, may refuse a later one
		rttest.Eventually(t, "the session ends", func() bool { return len(b.server.sessions.all()) == 0 })
	}
	rttest.Want(t, b.server.stats.fronts.Refused[front.OpenPI][front.Malformed].Load(), 6,
		"malformed messages counted")
}

func TestOpenPIKeyHealthAndRoom(t *testing.T) {
	b, address := serveOpenPI(t, manifest.OpenPIFront{APIKey: "secret"})
	for _, key := range []string{"", "wrong"} {
		_, response, err := websocket.Dial(t.Context(), "ws://"+address, withKey(key))
		if err == nil || response.StatusCode != http.StatusUnauthorized {
			t.Errorf("key %q: %v", key, err)
		}
	}
	page := withKey("secret")
	page.Host = "stranger.example"
	page.HTTPHeader.Set("Origin", "http://stranger.example")
	if _, got, err := websocket.Dial(t.Context(), "ws://"+address, page); err == nil ||
		got.StatusCode != http.StatusForbidden {
		t.Errorf("a page by DNS rebinding: %v", err)
	}
	response := rttest.Must(http.Get("http://" + address + "/healthz"))(t)
	rttest.Want(t, string(rttest.Must(io.ReadAll(response.Body))(t)), "OK\n", "answer of /healthz")
	for range config().MaxSessions {
		dialOpenPI(t, address, "secret")
	}
	conn, _, err := websocket.Dial(t.Context(), "ws://"+address, withKey("secret"))
	if err == nil {
		_, _, err = conn.Read(t.Context())
	}
	if websocket.CloseStatus(err) != websocket.StatusTryAgainLater || !rttest.Says(err, "server full") {
		t.Errorf("one more than there is room for: %v", err)
	}
	rttest.Want(t, b.server.stats.fronts.Refused[front.OpenPI][front.Session].Load(), 3, "refusals counted")
}

// The front answers a message for which no memory is left with that reason, and its client stays connected. When a
// client ends, its memory is free.
func TestOpenPIBudget(t *testing.T) {
	b, address := serveOpenPI(t, manifest.OpenPIFront{})
	c, _ := dialOpenPI(t, address, "")
	budget := b.server.fronts.Budget()
	large := entry{"base", "|u1", []int{int(budget.Limit()) + 1}, make([]byte, budget.Limit()+1)}
	c.refuses(packed(statePart, large), "no memory for the observation")
	large.shape[0] = 9 << 20 // more than a client's share and the free half of the budget
	large.data = large.data[:9<<20]
	c.refuses(packed(statePart, hwc, large), "no memory for the observation")
	c.answers(packed(statePart, chw))
	if n := b.server.stats.fronts.Refused[front.OpenPI][front.NoMemory].Load(); n != 2 || budget.Used() == 0 {
		t.Errorf("%d refusals are counted, and %d bytes held", n, budget.Used())
	}
	c.conn.CloseNow()
	rttest.Eventually(t, "the memory of the client", func() bool { return budget.Used() == 0 })
}

// At a full server, a new client takes the session of a silent client. The silent client gets a session again with its
// next observation.
func TestOpenPIClientsThatNeverAsk(t *testing.T) {
	b, address := serveOpenPI(t, manifest.OpenPIFront{})
	first, _ := dialOpenPI(t, address, "")
	dialOpenPI(t, address, "")
	b.clock.Advance(idleGrace)
	works, _ := dialOpenPI(t, address, "")
	for _, c := range []*dialed{works, first} {
		c.answers(packed(statePart, hwc))
	}
	rttest.Want(t, b.server.stats.displaced.Load(), 2, "sessions that were displaced")
}

// A front with an IPv4 address does not answer on IPv6, for which a firewall may have no rule.
func TestFrontsListenWhereTheManifestSays(t *testing.T) {
	for _, open := range []func(string) (front.Front, error){
		func(address string) (front.Front, error) { return openpi.Open(address, &manifest.OpenPIFront{}) },
		func(address string) (front.Front, error) { return robotclient.Listen(address, nil) },
	} {
		f := rttest.Must(open("0.0.0.0:0"))(t)
		if address := f.(interface{ Addr() net.Addr }).Addr().String(); !strings.HasPrefix(address, "0.0.0.0:") {
			t.Errorf("%T listens on %s, want IPv4 alone", f, address)
		}
		rttest.Do(t, f.Close())
	}
}

func TestOpenPIKeysOfTheManifest(t *testing.T) {
	_, address := serveOpenPI(t, manifest.OpenPIFront{
		Cameras:   []manifest.CameraKey{{Name: "top", Key: "cam"}},
		StateKeys: []string{"left", "right"},
		PromptKey: "words",
	})
	c, _ := dialOpenPI(t, address, "")
	cam := hwc
	cam.key = "cam"
	left, right := entry{"left", "<f4", []int{1}, floats(10)}, entry{"right", "<f4", []int{1}, floats(20)}
	c.answers(packed(cam, left, right))
	c.refuses(packed(hwc, left, right), "its key cam, the picture of camera top")
	c.refuses(packed(cam, left), "its key right, a part of the state")
}

// TestReleasedOpenPIClient checks the front with openpi-client itself.
func TestReleasedOpenPIClient(t *testing.T) {
	python := os.Getenv("EDGERT_PYTHON")
	if python == "" {
		python = "../.venv/bin/python"
	}
	if exec.Command(python, "-c", "import openpi_client.websocket_client_policy").Run() != nil {
		t.Skipf("%s has no openpi-client: tools/setup.sh test installs it", python)
	}
	_, address := serveOpenPI(t, manifest.OpenPIFront{APIKey: "secret"})
	cmd := exec.Command(python, "front/openpi/testdata/client.py", "ws://"+address, "--key", "secret", "--size",
		"16x24",
		"--state", "observation/state:2", "--seconds", "0.3")
	out, err := cmd.Output()
	var got struct {
		Shape      []int
		First      []float32
		Requests   int
		Exceptions []string
		Health     string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err != nil || len(got.Exceptions) > 0 || got.Requests < 3 || got.Shape[0] != 8 ||
		!near(got.First, []float32{0.01, 0.01}, 1e-6) || got.Health != "OK\n" {
		t.Errorf("%+v, %v", got, err)
	}
}
