package page

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record/timeline"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

const rightOne = "a-token-of-more-than-22-characters"

// operated is a page with buttons, with the commands that the page received.
type operated struct {
	*stage
	mu    sync.Mutex
	lines []string
}

func newOperated(t *testing.T, token string) *operated {
	t.Helper()
	p := rttest.Must(listenAt(config{
		Address: "127.0.0.1:0",
		Names:   []string{"robot.lan"},
		Token:   token,
		Clock:   rt.KernelClock(),
		Log:     slog.New(slog.DiscardHandler),
	}))(t)
	t.Cleanup(p.Close)
	o := &operated{stage: &stage{Page: p}}
	p.Watch(Run{
		Ticks: o.ticks.Load, Status: func() any { return map[string]string{} }, Instance: "one",
		Panel: &operator.Panel{
			Actions: map[string]operator.Action{
				operator.Pause: {Do: operator.Simple(func() {})},
				operator.Stop:  {Do: operator.Simple(func() {})},
			},
			Source: "it has no wings",
			State:  func() operator.Reply { return operator.Reply{} },
			Note: func(line string, _ error) {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.lines = append(o.lines, line)
			},
		},
		Timeline: func(b []byte, since timeline.Since) []byte {
			return fmt.Appendf(b, `{"column":%d,"change":%d}`, since.Column, since.Change)
		},
	})
	return o
}

// exchange sends raw bytes from an address of this machine and returns the answer.
func (o *operated) exchange(t *testing.T, from, request string) (code int, text string) {
	t.Helper()
	c := o.dial(t, from)
	defer c.Close() // the page permits few open connections
	c.SetDeadline(time.Now().Add(patience))
	rttest.Must(io.WriteString(c, request))(t)
	r := rttest.Must(http.ReadResponse(bufio.NewReader(c), nil))(t)
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	if r.Header.Get("Access-Control-Allow-Origin") != "" || r.Header.Get("Set-Cookie") != "" {
		t.Errorf("headers %v, want no cookie and no other origin", r.Header)
	}
	return r.StatusCode, string(body)
}

// request is a valid request, which tests change.
type request struct {
	method, host, token, kind, body string
	head                            string // further header lines
}

func (o *operated) request(change func(*request)) string {
	host := o.listener.Addr().String()
	q := request{"POST", host, rightOne, "application/json", `{"command": "pause"}`, ""}
	if change != nil {
		change(&q)
	}
	text := fmt.Sprintf("%s /command HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s", q.method, q.host, len(q.body),
		q.head)
	if q.token != "" {
		text += "X-Edge-RT-Token: " + q.token + "\r\n"
	}
	if q.kind != "" {
		text += "Content-Type: " + q.kind + "\r\n"
	}
	return text + "\r\n" + q.body
}

// A button of the page jogs a joint, by a request with the token.
func TestJog(t *testing.T) {
	o := newOperated(t, rightOne)
	ask := func(token, body string) int {
		code, _ := o.exchange(t, "127.0.0.1", strings.Replace(o.request(func(q *request) {
			q.token, q.body = token, body
		}), commandPath, jogPath, 1))
		return code
	}
	const pan = `{"joint": "pan", "way": -1}`
	rttest.Want(t, ask(rightOne, pan), http.StatusConflict, "a run without jogging")
	run := *o.run.Load()
	run.Jog = leader.NewJog([]string{"pan"}, o.clock)
	o.run.Store(&run)
	for _, tt := range []struct {
		token, body string
		code, way   int
	}{
		{"another-token-of-22-characters", pan, http.StatusUnauthorized, 0},
		{rightOne, `{"joint": "lift", "way": 1}`, http.StatusConflict, 0},
		{rightOne, `{"joint": "pan", "way": 3}`, http.StatusConflict, 0},
		{rightOne, `{"joint": "pan", "way": 0.5}`, http.StatusBadRequest, 0},
		{rightOne, pan, http.StatusNoContent, -1},
		{rightOne, `{"joint": "pan", "way": 0}`, http.StatusNoContent, 0},
	} {
		if code := ask(tt.token, tt.body); code != tt.code || run.Jog.Way(0, o.clock.Now()) != tt.way {
			t.Errorf("%s: %d, way %d, want %d, %d", tt.body, code, run.Jog.Way(0, o.clock.Now()), tt.code, tt.way)
		}
	}
}

// A request moves the arm only if it has the token, goes to this machine's own address or name, and comes from this
// page or from a client other than a browser.
func TestWhoMayOperate(t *testing.T) {
	o := newOperated(t, rightOne)
	_, port, _ := net.SplitHostPort(o.listener.Addr().String())
	head := func(text string) func(*request) { return func(q *request) { q.head = text + "\r\n" } }
	for i, c := range []struct {
		what   string
		change func(*request)
		code   int
		says   string
	}{
		{"as it should be", nil, 200, `"ok":true`},
		{"from the page", head("Origin: http://127.0.0.1:" + port + "\r\nSec-Fetch-Site: same-origin"), 200, ""},
		{"by a name", func(q *request) {
			q.host, q.head = "robot.lan:"+port, "Origin: http://robot.lan:"+port+"\r\n"
		}, 200, ""},
		{"through a proxy with TLS", func(q *request) {
			q.host, q.head = "robot.lan", "Origin: https://robot.lan\r\n"
		}, 200, ""},
		{"by the tunnel's name", func(q *request) { q.host = "localhost:9999" }, 200, ""},
		{"refused by the edge", func(q *request) { q.body = `{"command": "reset"}` }, 409, "no wings"},
		{"another name that points here", func(q *request) { q.host = "evil.example" }, 421, "evil.example"},
		{"another address that points here", func(q *request) { q.host = "203.0.113.7:" + port }, 421, "203.0.113.7"},
		{"another site", head("Origin: http://evil.example"), 403, "evil.example"},
		{"another port of ours", head("Origin: http://127.0.0.1:1"), 403, "only this page"},
		{"a page from a file", head("Origin: null"), 403, "null"},
		{"another site that hides its origin", head("Sec-Fetch-Site: cross-site"), 403, "another site"},
		{"a neighbour that hides its origin", head("Sec-Fetch-Site: same-site\r\nSec-Fetch-Dest: document"), 403,
			"only this page"},
		{"a form", func(q *request) {
			q.kind, q.body = "application/x-www-form-urlencoded", "command=pause"
		}, 415, "application/json"},
		{"a form that looks like JSON", func(q *request) { q.kind = "text/plain" }, 415, "application/json"},
		{"by GET", func(q *request) { q.method, q.body = "GET", "" }, 405, ""},
		{"by GET, with a body", func(q *request) { q.method = "GET" }, 413, ""},
		{"what asks before", func(q *request) { q.method, q.body = "OPTIONS", "" }, 405, ""},
		{"no JSON", func(q *request) { q.body = "pause" }, 400, "want {"},
		{"more than is known", func(q *request) { q.body = `{"command": "pause", "sudo": true}` }, 400, "sudo"},
		{"two at once", func(q *request) {
			q.body = `{"command": "pause"}{"command": "stop"}`
		}, 400, "unexpected data"},
		{"two lines", func(q *request) { q.body = `{"command": "task", "text": "a\nstop"}` }, 400, "one line"},
		{"a word that is two", func(q *request) { q.body = `{"command": "task fly"}` }, 400, "one line"},
		{"a huge body", func(q *request) {
			q.body = `{"command": "` + strings.Repeat("x", maxCommandBytes) + `"}`
		}, 413, "at most"},
	} {
		o.lines = nil
		code, text := o.exchange(t, fmt.Sprintf("127.0.1.%d", 1+i), o.request(c.change))
		if code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %.200q, want %d with %q", c.what, code, text, c.code, c.says)
		}
		if done := len(o.lines) > 0; done != (c.code == 200 || c.code == 409) {
			t.Errorf("%s: the edge was told %q", c.what, o.lines)
		}
	}
	rttest.Want(t, o.Stats().WrongTokens, 0, "wrong tokens")
}

// A body without a declared length is cut off at the maximum length of a command.
func TestABodyWithoutALength(t *testing.T) {
	o := newOperated(t, rightOne)
	text := `{"command": "` + strings.Repeat("x", 2*maxCommandBytes) + `"}`
	code, said := o.exchange(t, "127.0.0.1", fmt.Sprintf("POST /command HTTP/1.1\r\nHost: "+
		"localhost\r\nX-Edge-RT-Token: %s\r\nContent-Type: application/json\r\nTransfer-Encoding: "+
		"chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", rightOne, len(text), text))
	if code != 400 || !strings.Contains(said, "too large") || len(o.lines) != 0 {
		t.Errorf("%d %q, told %q; want 400", code, said, o.lines)
	}
}

// A client whose body does not arrive loses its connection.
func TestABodyThatDoesNotCome(t *testing.T) {
	o := newOperated(t, rightOne)
	whole := o.request(nil)
	code, _ := o.exchange(t, "127.0.0.1", whole[:len(whole)-5])
	if code != 400 || len(o.lines) != 0 {
		t.Errorf("%d, told %q; want 400 after the read limit", code, o.lines)
	}
}

// Without --http-token no request can operate the arm, and the answer names the flag.
func TestWithoutATokenThePageOnlyShows(t *testing.T) {
	o := newOperated(t, "")
	if code, text := o.exchange(t, "127.0.0.1", o.request(nil)); code != 403 ||
		!strings.Contains(text, "--http-token") {
		t.Errorf("%d %q", code, text)
	}
	o.get(t, "/buttons.json").wants(t, "buttons", 200, "application/json", `{"token":false,"commands":[]}`)
	o = newOperated(t, rightOne)
	o.get(t, "/buttons.json").wants(t, "buttons", 200, "application/json",
		`{"token":true,"commands":[{"word":"pause","label":"Pause"},{"word":"stop","label":"Stop","ask":"End the run?`)
	if code, _ := o.exchange(t, "127.0.0.1",
		"PUT /task HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nfly"); code != 401 {
		t.Errorf("a task without the token: %d, want 401", code)
	}
}

// Wrong tokens are counted. After many wrong tokens from an address, the page ignores this address, and no other.
func TestWrongTokens(t *testing.T) {
	o := newOperated(t, rightOne)
	wrong := func(token string) func(*request) { return func(q *request) { q.token = token } }
	for i, token := range []string{"", "x", rightOne[1:], rightOne + "x", strings.ToUpper(rightOne)} {
		if code, text := o.exchange(t, "127.0.0.2", o.request(wrong(token))); code != 401 ||
			strings.Contains(text, rightOne) {
			t.Errorf("wrong token %d: %d %q, want 401", i, code, text)
		}
	}
	for _, token := range []string{"x", rightOne} { // the page does not accept even the right token now
		if code, text := o.exchange(t, "127.0.0.2", o.request(wrong(token))); code != 429 ||
			!strings.Contains(text, "127.0.0.2") {
			t.Errorf("after %d wrong ones: %d %q, want 429", wrongBurst, code, text)
		}
	}
	if code, _ := o.exchange(t, "127.0.0.3", o.request(nil)); code != 200 {
		t.Errorf("from elsewhere: %d, want 200", code)
	}
	if s := o.Stats(); s.WrongTokens != 7 || s.Commands != 1 || len(o.lines) != 1 {
		t.Errorf("%+v, told %q", s, o.lines)
	}
}

// The page forgets the wrong tokens of an address after a time, and remembers a bounded number of addresses. An IPv6
// network counts as one address.
func TestTheGateForgets(t *testing.T) {
	clock := rttest.NewClock(1)
	g := newGate(rightOne, clock)
	at := netip.MustParseAddr
	for i := range wrongBurst {
		if v := g.check("x", at(fmt.Sprintf("2001:db8::%d", i))); v != tokenWrong {
			t.Fatalf("wrong token %d: %d", i, v)
		}
	}
	rttest.Want(t, g.check(rightOne, at("2001:db8::ffff")), tokenNotLookedAt, "from the same network (not looked at)")
	rttest.Want(t, g.check(rightOne, at("2001:db8:0:1::1")), tokenRight, "from another network")
	clock.Advance(wrongInterval)
	rttest.Want(t, g.check(rightOne, at("2001:db8::ffff")), tokenRight, "after %v", wrongInterval)
	for i := range 10 * wrongKept {
		g.check("x", netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	rttest.Want(t, len(g.wrong), wrongKept, "addresses are kept")
}

// Thousands of connections from one machine do not lock out an operator on another machine, whether they stay idle or
// are closed at once.
func TestAThousandConnectionsKeepNobodyOut(t *testing.T) {
	rttest.RealTime(t)
	o := newOperated(t, rightOne)
	flood := func(n int, close bool) {
		for range n {
			c := o.dial(t, "127.0.0.9")
			if close {
				c.Close()
			}
		}
		if code, _ := o.exchange(t, "127.0.0.1", o.request(nil)); code != 200 {
			t.Errorf("beside %d connections, closed at once %v: %d, want 200", n, close, code)
		}
	}
	flood(200, true)
	if s := o.Stats(); s.Dropped == 0 {
		t.Errorf("%+v: all connections had their turn before the operator's", s)
	}
	before := o.Stats()
	began := time.Now()
	flood(2000, false)
	if s := o.Stats(); s.Dropped-before.Dropped < 2000-2*maxPerAddress ||
		s.Connections-before.Connections > 3*maxPerAddress || time.Since(began) > 2000*dropInterval/2 {
		t.Errorf("%+v after %v, want nearly all of them closed at once", s, time.Since(began))
	}
}

// A browser gets the changes of the run that it names. If it names another run, it gets the whole run.
func TestTheLinesOfARun(t *testing.T) {
	o := newOperated(t, "")
	for query, want := range map[string]string{
		"":                                `{"instance":"one","lines":{"column":0,"change":0}}`,
		"?instance=one&column=7&change=9": `{"instance":"one","lines":{"column":7,"change":9}}`,
		"?instance=two&column=7&change=9": `{"instance":"one","lines":{"column":0,"change":0}}`,
	} {
		o.get(t, "/timeline.json"+query).wants(t, query, 200, "application/json", want)
	}
	for _, query := range []string{"?instance=one", "?instance=one&column=-1&change=0",
		"?instance=one&column=x&change=0", "?instance=one&column=1&change=99999999999999999999"} {
		o.get(t, "/timeline.json"+query).wants(t, query, 400, "text/plain", "want column")
	}
}

func TestLoadToken(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	first, made, err := loadToken(name)
	info, _ := os.Stat(name)
	if err != nil || !made || len(first) < tokenMin || info.Mode().Perm() != 0o600 {
		t.Fatalf("a missing file: %q, %v, %v, %v; want a token, in a file of ours alone", first, made, info, err)
	}
	if again, made, err := loadToken(name); again != first || made || err != nil {
		t.Errorf("again: %q, %v, %v; want the same", again, made, err)
	}
	if one, _, _ := loadToken(tokenAuto); len(one) < tokenMin || one == first {
		t.Errorf("auto: %q", one)
	}
	for text, says := range map[string]string{"short\n": "no token", strings.Repeat("x", 300): "more than",
		strings.Repeat("a b ", 10): "no token", "": "no token"} {
		os.WriteFile(name, []byte(text), 0o600)
		if _, _, err := loadToken(name); !rttest.Says(err, says) {
			t.Errorf("%.20q: %v, want %q", text, err, says)
		}
	}
	os.Chmod(name, 0o640)
	if _, _, err := loadToken(name); !rttest.Says(err, "chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
	if _, _, err := loadToken(filepath.Dir(name)); err == nil {
		t.Error("a folder is read")
	}
}
