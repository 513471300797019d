package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/jpeg"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/pattern"
)

// stage is a page with a run that tests control.
type stage struct {
	*Page
	ticks atomic.Uint64
	well  atomic.Bool
	stop  atomic.Bool
	blind atomic.Int32
	ends  sync.WaitGroup
}

const patience = 20 * time.Second // long enough for a busy machine

func newStage(t testing.TB) *stage {
	t.Helper()
	p := rttest.Must(listenAt(config{Address: "127.0.0.1:0", Clock: rt.KernelClock(),
		Log: slog.New(slog.DiscardHandler)}))(t)
	s := &stage{Page: p}
	s.well.Store(true)
	t.Cleanup(func() {
		s.stop.Store(true)
		s.ends.Wait()
		p.Close()
	})
	return s
}

// cam is a camera of bars; quality is its JPEG quality, 0: raw.
type cam struct {
	name    string
	quality int
	times   int // factor on the size 80x60
	on      bool
}

// watch shows a run whose sender has nothing to send.
func (s *stage) watch(t testing.TB, cams ...cam) []*capture.Preview {
	t.Helper()
	var previews []*capture.Preview
	for _, c := range cams {
		source := pattern.NewSource(s.clock, camera.Format{
			Width:  80 * c.times,
			Height: 60 * c.times,
			Pixels: camera.RGB8,
			FPS:    50,
		})
		e := capture.New(c.name, source, 0)
		v, err := capture.NewEncoder(e, &capture.Config{Name: c.name}, capture.Encoding{Quality: c.quality})
		if err != nil {
			t.Skipf("no libjpeg-turbo: %v", err)
		}
		t.Cleanup(v.Close)
		p := rttest.Must(capture.NewPreview(v))(t)
		t.Cleanup(p.Close)
		previews = append(previews, p)
		if c.on {
			s.ends.Go(func() { e.Run(s.clock, &s.stop, &s.blind) })
		}
	}
	s.ends.Go(func() {
		for !s.stop.Load() {
			for _, p := range previews {
				p.Refresh(s.clock.Now())
			}
			s.ticks.Add(1)
			time.Sleep(5 * time.Millisecond) // a sender that leaves the processor to others
		}
	})
	s.Watch(Run{
		Status: func() any { return map[string]any{"ticks": s.ticks.Load(), "state": "STREAMING"} },
		Healthy: func() (bool, string) {
			if s.well.Load() {
				return true, "ok"
			}
			return false, "no tick for 3 s"
		},
		Ticks: s.ticks.Load, Previews: previews,
	})
	return previews
}

type answer struct {
	code int
	head http.Header
	body []byte
}

func (s *stage) do(t testing.TB, method, path, host string, body io.Reader) answer {
	t.Helper()
	r := rttest.Must(http.NewRequest(method, s.url()+strings.TrimPrefix(path, "/"), body))(t)
	if host != "" {
		r.Host = host
	}
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	a := rttest.Must(client.Do(r))(t)
	defer a.Body.Close()
	text := rttest.Must(io.ReadAll(a.Body))(t)
	return answer{a.StatusCode, a.Header, text}
}

func (s *stage) get(t testing.TB, path string) answer { return s.do(t, "GET", path, "", nil) }

// wants checks the code and a part of the text of an answer, and the properties that all answers have.
func (a answer) wants(t *testing.T, what string, code int, kind, says string) {
	t.Helper()
	if a.code != code || !strings.HasPrefix(a.head.Get("Content-Type"), kind) ||
		!strings.Contains(string(a.body), says) {
		t.Errorf("%s: %d, %s, %.200q; want %d, %s and %q", what, a.code, a.head.Get("Content-Type"), a.body, code, kind,
			says)
	}
	if a.head.Get("Cache-Control") != "no-store" || a.head.Get("X-Content-Type-Options") != "nosniff" ||
		a.head.Get("Cross-Origin-Resource-Policy") != "same-origin" {
		t.Errorf("%s: headers %v, want no-store, nosniff and same-origin", what, a.head)
	}
}

func TestWhatIsAnswered(t *testing.T) {
	s := newStage(t)
	s.get(t, "/").wants(t, "the page before the run", 200, "text/html", "/status.json")
	s.get(t, "/healthz").wants(t, "health before the run", 200, "text/plain", "starting")
	s.get(t, "/status.json").wants(t, "status before the run", 503, "text/plain", "starting")
	s.get(t, "/camera/front").wants(t, "a camera before the run", 503, "text/plain", "starting")

	s.watch(t, cam{"front", 90, 2, true}, cam{"wrist", 0, 2, true}, cam{"dark", 90, 2, false})
	s.get(t, "/healthz").wants(t, "health", 200, "text/plain", "ok")
	s.well.Store(false)
	s.get(t, "/healthz").wants(t, "health without ticks", 503, "text/plain", "no tick for 3 s")
	a := s.get(t, "/status.json")
	a.wants(t, "status", 200, "application/json", `"state":"STREAMING"`)
	if !json.Valid(a.body) {
		t.Errorf("status is no JSON: %s", a.body)
	}
	for _, name := range []string{"front", "wrist"} { // the sender encodes one camera's pictures, not the other's
		a := s.get(t, "/camera/"+name)
		a.wants(t, name, 200, "image/jpeg", "")
		m, err := jpeg.Decode(bytes.NewReader(a.body))
		if err != nil || m.Bounds().Dx() != 160 || m.Bounds().Dy() != 120 {
			t.Errorf("%s: %v, %v; want 160x120", name, m, err)
		}
		if age, err := strconv.Atoi(a.head.Get("X-Frame-Age-Ms")); err != nil || age < 0 ||
			age > int(patience.Milliseconds()) {
			t.Errorf("%s: age %q", name, a.head.Get("X-Frame-Age-Ms"))
		}
	}
	s.get(t, "/camera/dark").wants(t, "a camera without a picture", 503, "text/plain",
		"camera dark: no picture since the start")
	s.get(t, "/camera/nose").wants(t, "no camera", 404, "text/plain", `no camera "nose": there are front, wrist, dark`)
	s.get(t, "/etc/passwd").wants(t, "no page", 404, "text/plain", "not found")
	s.do(t, "HEAD", "/", "", nil).wants(t, "HEAD", 200, "text/html", "")
	s.do(t, "POST", "/status.json", "", nil).wants(t, "POST", 405, "text/plain", "")
	s.do(t, "GET", "/", "", strings.NewReader("x")).wants(t, "a body", 413, "text/plain",
		"only a task and a command have one")
	for host, code := range map[string]int{
		"evil.example": 421, "evil.example:80": 421, "127.0.0.1.evil.example": 421,
		"localhost:1": 200, "LOCALHOST": 200, "192.168.1.7:8080": 200, "[::1]:80": 200,
	} {
		rttest.Want(t, s.do(t, "GET", "/", host, nil).code, code, "Host %s", host)
	}
}

// A browser on this machine can set a task, but not from another site's page. A browser on another machine cannot set
// one. A long task is refused, not cut.
func TestSetTask(t *testing.T) {
	s := newStage(t)
	put := func(origin string, body io.Reader) (int, string) {
		r := httptest.NewRequest("PUT", taskPath, body)
		r.Host, r.RemoteAddr = "127.0.0.1:8080", "127.0.0.1:40000"
		if strings.Contains(origin, " ") {
			r.RemoteAddr, origin = origin[:strings.Index(origin, " ")], ""
		}
		if origin == "JSON" {
			r.Header.Set("Content-Type", "application/json; charset=utf-8")
		} else if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, text := put("", strings.NewReader("pick")); code != 503 {
		t.Errorf("before the run: %d %s, want 503", code, text)
	}
	var given []string
	task := func(_ context.Context, text string) (bool, error) {
		if len(text) > maxTaskBytes {
			return false, errors.New("too long")
		}
		if given = append(given, text); text == "fly" {
			return false, errors.New("the task stays as it was")
		}
		return true, nil
	}
	s.Watch(Run{Ticks: s.ticks.Load, Panel: &operator.Panel{
		Actions: map[string]operator.Action{operator.Task: {Do: task}},
		State:   func() operator.Reply { return operator.Reply{} },
		Note:    func(string, error) {},
	}})
	long := strings.Repeat("x", maxTaskBytes+1)
	for _, c := range []struct {
		what, origin string
		body         io.Reader
		code         int
		says         string
	}{
		{"from the page", "http://127.0.0.1:8080", strings.NewReader(" pick it up\n"), 204, ""},
		{"without a browser", "", strings.NewReader("pick it up"), 204, ""},
		{"refused by the server", "", strings.NewReader("fly"), 409, "stays as it was"},
		{"as JSON", "JSON", strings.NewReader(`{"task":"fly"}`), 415, "text/plain"},
		{"from another site", "http://evil.example", strings.NewReader("fly"), 403, "evil.example"},
		{"from another port", "http://127.0.0.1:9090", strings.NewReader("fly"), 403, "9090"},
		{"from another machine", "192.168.1.9:4000 ", strings.NewReader("fly"), 403, "on the robot itself"},
		{"longer than a task", "", strings.NewReader(long), 413, "at most 4096"},
		{"longer than a task, of no declared length", "", io.MultiReader(strings.NewReader(long)), 409, "too long"},
	} {
		if code, text := put(c.origin, c.body); code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %q, want %d with %q", c.what, code, text, c.code, c.says)
		}
	}
	rttest.Equal(t, given, []string{"pick it up", "pick it up", "fly"}, "given")
}

// A page without cameras answers a request for a picture with 404.
func TestWithoutCameras(t *testing.T) {
	s := newStage(t)
	s.watch(t)
	s.get(t, "/camera/front").wants(t, "no camera at all", 404, "text/plain",
		"there are no cameras (--camera NAME=SOURCE)")
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"8080": "127.0.0.1:8080", ":8080": "127.0.0.1:8080", "0.0.0.0:8080": "0.0.0.0:8080", "[::1]:80": "[::1]:80",
		"robot.lan:1": "robot.lan:1",
	} {
		rttest.Want(t, rttest.Must(address(text))(t), want, "%q", text)
	}
	for _, text := range []string{"", "0", ":0", "65536", "-1", "localhost", "localhost:", "localhost:http", "::1",
		"a:b:80", "8080/"} {
		rttest.Fails(t, rttest.Err(address(text)), strconv.Quote(text))
	}
}

// Goal: a host name for Prometheus works without a page, and a flag without an effect is refused.
func TestFlagsThatNothingUses(t *testing.T) {
	for _, tt := range []struct {
		flags Flags
		says  string
	}{
		{Flags{Metrics: "9101", HTTPName: []string{"arm-1.lan"}}, ""},
		{Flags{HTTP: "8080", HTTPName: []string{"arm-1.lan"}}, ""},
		{Flags{Metrics: "9101", HTTPName: []string{"arm-1.lan:9101"}}, "want a name without port"},
		{Flags{HTTPName: []string{"arm-1.lan"}}, "--http-name is for the page of --http or for --metrics"},
		{Flags{Metrics: "9101", HTTPToken: "file"}, "--http-token is for the page of --http"},
		{Flags{Metrics: "8080", HTTP: ":8080"}, "are both 127.0.0.1:8080"},
	} {
		if err := tt.flags.Check(slog.Default()); (err == nil) != (tt.says == "") ||
			err != nil && !rttest.Says(err, tt.says) {
			t.Errorf("%+v: %v, want %q", tt.flags, err, tt.says)
		}
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	s := newStage(t)
	address := s.listener.Addr().String()
	if _, err := listenAt(config{Address: address, Clock: rt.KernelClock(),
		Log: slog.New(slog.DiscardHandler)}); !rttest.Says(err, address) || rttest.Says(err, "\n") {
		t.Errorf("a taken port: %v, want one line with %s", err, address)
	}
}

// Clients that send half a request occupy all slots, and lose them at the time limit for reading. The next client waits
// until then, and the page starts no further goroutine.
func TestSlowClientsCostTheirSeatsOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.watch(t)
	for i := range 3 * maxConnections { // the clients are on several machines, each of which has only its share
		io.WriteString(s.dial(t, fmt.Sprintf("127.0.0.%d", 2+i%6)), "GET / HTTP/1.1\r\nHost: localhost\r\nX-")
	}
	rttest.Eventually(t, "all connections taken", func() bool { return s.listener.accepted.Load() >= maxConnections })
	most := len(s.listener.slots)
	s.get(t, "/healthz").wants(t, "after the slow ones", 200, "text/plain", "ok")
	if n := s.listener.accepted.Load(); n < 2*maxConnections || most > maxConnections {
		t.Errorf("%d accepted, %d at once; want the slow ones to have lost their slots, %d at most at once", n, most,
			maxConnections)
	}
}

// Clients that do not read their pictures hold all memory for pictures until the write limit ends
// their connections.
func TestClientsThatTakeNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.watch(t, cam{"front", 90, 16, true})
	s.guard.Rate.Interval = 0
	asks := bytes.Repeat(asking("/camera/front"), 1000) // requests for more pictures than the kernel buffers
	for range maxPictures {
		c := s.dial(t, "127.0.0.1")
		c.SetWriteDeadline(time.Now().Add(patience))
		rttest.Must(c.Write(asks))(t)
	}
	stuck, before := 0, s.pictures.Load()
	rttest.Eventually(t, "all memory held by the slow ones, for 200 looks", func() bool {
		if stuck++; len(s.buffers) > 0 || s.pictures.Load() != before {
			stuck, before = 0, s.pictures.Load()
		}
		return stuck >= 200
	})
	s.get(t, "/healthz").wants(t, "meanwhile", 200, "text/plain", "ok")
	for end := time.Now().Add(patience); ; {
		a := s.get(t, "/camera/front")
		if a.code == 200 {
			break
		}
		a.wants(t, "meanwhile", 503, "text/plain", "busy")
		if time.Now().After(end) {
			t.Fatal("no picture for others")
		}
	}
}

// keep is a persistent connection. Its requests allocate nothing in the test.
type keep struct {
	net.Conn
	buf [64 << 10]byte
}

func (k *keep) ask(t testing.TB, request []byte) (code int) {
	t.Helper()
	k.SetDeadline(time.Now().Add(patience))
	rttest.Must(k.Write(request))(t)
	for n, want := 0, -1; ; {
		m := rttest.Must(k.Read(k.buf[n:]))(t)
		n += m
		if end := bytes.Index(k.buf[:n], []byte("\r\n\r\n")); want < 0 && end >= 0 {
			_, rest, _ := bytes.Cut(k.buf[:end], []byte("Content-Length: "))
			length := 0
			for _, c := range rest {
				if c < '0' || c > '9' {
					break
				}
				length = 10*length + int(c-'0')
			}
			want = end + 4 + length
		}
		if n == want {
			return int(k.buf[9]-'0')*100 + int(k.buf[10]-'0')*10 + int(k.buf[11]-'0')
		}
	}
}

// dial connects to the page from an address of this machine, until the end of the test.
func (s *stage) dial(t testing.TB, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c := rttest.Must(d.Dial("tcp", s.listener.Addr().String()))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func (s *stage) connect(t testing.TB) *keep {
	t.Helper()
	return &keep{Conn: s.dial(t, "127.0.0.1")}
}

func asking(path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
}

// With the collector off, many thousands of requests do not accumulate garbage: the page starts collections before the
// memory limit does.
func TestMemoryStaysBounded(t *testing.T) {
	s := newStage(t)
	s.watch(t, cam{"front", 90, 2, true})
	s.guard.Rate.Interval = 0 // there is no limit of the rate
	hold := rt.HoldGC(0)
	defer hold.Release()
	began := rt.ReadHeap()
	k := s.connect(t)
	status := asking("/status.json")
	picture := asking("/camera/front")
	made := uint64(0)
	for end := time.Now().Add(patience); made < 3*collectBytes ||
		s.collections.Load() == 0; made = rt.ReadHeap().Bytes - began.Bytes {
		for range 500 {
			if code := k.ask(t, status); code != 200 {
				t.Fatalf("status %d", code)
			}
		}
		if code := k.ask(t, picture); code != 200 {
			t.Fatalf("picture %d", code)
		}
		if time.Now().After(end) {
			break
		}
	}
	now := rt.ReadHeap()
	t.Logf("%d requests made %.1f MB of garbage, %d collections by hand, %d by the fuse", s.Stats().Requests,
		float64(made)/1e6, s.collections.Load(), now.Cycles-now.Forced-began.Cycles+began.Forced)
	if s.collections.Load() == 0 {
		t.Errorf("%d bytes of garbage and no collection", made)
	}
}

// All clients together have a bounded rate of requests.
func TestRequestsArePaced(t *testing.T) {
	s := newStage(t)
	s.watch(t)
	const asked = burst + 20
	var ends sync.WaitGroup
	began := time.Now()
	for range 4 {
		k := s.connect(t)
		ends.Go(func() {
			for range asked / 4 {
				k.ask(t, asking("/healthz"))
			}
		})
	}
	ends.Wait()
	if took := time.Since(began); took < (asked-burst-1)*requestInterval {
		t.Errorf("%d requests in %v, want %v at least", asked, took, (asked-burst-1)*requestInterval)
	}
}

// The guard also gets a request that net/http would answer by itself: it refuses and counts the request.
func TestNothingPassesBeside(t *testing.T) {
	s := newStage(t)
	k := s.connect(t)
	if code := k.ask(t, []byte("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")); code != 400 ||
		s.Stats().Requests != 1 {
		t.Errorf("OPTIONS *: %d, %d requests counted; want 400 and 1", code, s.Stats().Requests)
	}
}

// A page of another site gets no picture, and its request causes no capture. A link to this page works.
func TestForeignPages(t *testing.T) {
	s := newStage(t)
	s.watch(t, cam{"front", 90, 2, true})
	for head, code := range map[string]int{
		"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image":     403,
		"Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty":         403,
		"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe":   403,
		"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document": 200,
		"Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty":       200,
		"Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document":       200,
	} {
		request := "GET /camera/front HTTP/1.1\r\nHost: localhost\r\n" + head + "\r\n\r\n"
		rttest.Want(t, s.connect(t).ask(t, []byte(request)), code, "%s", strings.ReplaceAll(head, "\r\n", ", "))
	}
}

// The page loads nothing from elsewhere.
func TestThePageIsWhole(t *testing.T) {
	for _, word := range []string{"http://", "https://", "src=\"", "@import", "innerHTML"} {
		if bytes.Contains(index, []byte(word)) {
			t.Errorf("index.html holds %s", word)
		}
	}
	for _, path := range []string{"/status.json", "/camera/"} {
		if !bytes.Contains(index, []byte(path)) {
			t.Errorf("index.html does not ask for %s", path)
		}
	}
	if policy := newStage(t).get(t,
		"/").head.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
}

// After Close no part of the page is left.
func TestCloseEnds(t *testing.T) {
	s := newStage(t)
	s.watch(t)
	k := s.connect(t)
	k.ask(t, asking("/healthz"))
	s.Close()
	s.Close()
	if _, err := net.Dial("tcp", s.listener.Addr().String()); err == nil {
		t.Error("it listens still")
	}
	k.SetReadDeadline(time.Now().Add(patience))
	rttest.FailsAs(t, rttest.Err(k.Read(k.buf[:])), io.EOF) // a kept connection
}

// BenchmarkRequest measures the garbage of one request.
func BenchmarkRequest(b *testing.B) {
	for _, path := range []string{"/status.json", "/camera/front", "/healthz"} {
		b.Run(path, func(b *testing.B) {
			s := newStage(b)
			s.watch(b, cam{"front", 90, 2, true})
			s.guard.Rate.Interval = 0
			k, request := s.connect(b), asking(path)
			k.ask(b, request)
			b.ReportAllocs()
			for b.Loop() {
				if code := k.ask(b, request); code != 200 {
					b.Fatal(code)
				}
			}
		})
	}
}
