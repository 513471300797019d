package page

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/internal/webpage"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	commandPath = "/command"
	jogPath     = "/jog"
	tokenHeader = "X-Edge-RT-Token"

	maxCommandBytes = 6*wire.MaxTextBytes + 256 // room for a text in which every byte is escaped
)

// buttons answers with the commands that the page offers, and whether they need a token.
func (p *Page) buttons(w http.ResponseWriter, _ *http.Request) {
	list := struct {
		Token    bool               `json:"token"`
		Commands []operator.Command `json:"commands"`
	}{p.gate != nil, []operator.Command{}}
	if run := p.run.Load(); run != nil && p.gate != nil {
		list.Commands = run.Panel.Buttons()
	}
	p.sendJSON(w, list)
}

func (p *Page) sendJSON(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		p.guard.Refuse(w, http.StatusInternalServerError, "%v", err)
		return
	}
	webpage.Send(w, webpage.JSON, text)
}

// command executes {"command": WORD, "text": TEXT} for a request with the right token. A cookie or
// a form, which a browser sends by itself, has no effect: the token is in a header, which another
// site's page can set only after a preflight request, and the page never grants one.
func (p *Page) command(run *Run, w http.ResponseWriter, r *http.Request) {
	if !p.mayOperate(w, r) {
		return
	}
	var asked struct {
		Command string `json:"command"`
		Text    string `json:"text"`
	}
	if err := decode(w, r, &asked); err != nil {
		p.guard.Refuse(w, http.StatusBadRequest,
			`%v: want {"command": "pause"}, with "text" for a command that takes one`, err)
		return
	}
	if strings.ContainsAny(asked.Command+asked.Text, "\r\n") || strings.Contains(asked.Command, " ") {
		p.guard.Refuse(w, http.StatusBadRequest, "a command is one line: a word, with a text for some words")
		return
	}
	reply := run.Panel.Command(r.Context(), strings.TrimSpace(asked.Command+" "+asked.Text))
	p.commands.Add(1)
	if !reply.OK {
		p.guard.Refuse(w, http.StatusConflict, "%s", reply.Error)
		return
	}
	p.sendJSON(w, reply)
}

// decode reads a request's body, which must be a single JSON value without unknown keys.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommandBytes))
	body.DisallowUnknownFields()
	if err := body.Decode(into); err != nil {
		return err
	}
	if _, more := body.Token(); more != io.EOF {
		return fmt.Errorf("unexpected data after it")
	}
	return nil
}

// jog moves a joint for leader.JogLease: {"joint": NAME, "way": 1, -1 or 0}, for a request with the right
// token. The page repeats it while its button is pressed.
func (p *Page) jog(run *Run, w http.ResponseWriter, r *http.Request) {
	if !p.mayOperate(w, r) {
		return
	}
	var asked struct {
		Joint string `json:"joint"`
		Way   int    `json:"way"`
	}
	err := decode(w, r, &asked)
	switch {
	case err != nil:
		p.guard.Refuse(w, http.StatusBadRequest, `%v: want {"joint": "gripper", "way": 1}, way -1 or 0`, err)
		return
	case run.Jog == nil:
		p.guard.Refuse(w, http.StatusConflict, "this run jogs no joint: edge-rt teleop --jog does")
		return
	}
	if err := run.Jog.Move(asked.Joint, asked.Way); err != nil {
		p.guard.Refuse(w, http.StatusConflict, "%v", err)
		return
	}
	p.commands.Add(1)
	w.WriteHeader(http.StatusNoContent)
}

// mayOperate reports whether a request may move the arm, and answers with the reason if not.
func (p *Page) mayOperate(w http.ResponseWriter, r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case p.gate == nil:
		p.guard.Refuse(w, http.StatusForbidden, "this page only shows; its buttons want --http-token FILE, or auto")
	case err != nil || !p.ownHost(r):
		p.guard.Refuse(w, http.StatusMisdirectedRequest,
			"commands are for %s by its own address or name, not for %q: --http-name gives it another",
			r.Context().Value(http.LocalAddrContextKey), r.Host)
	case !ownOrigin(r):
		p.guard.Refuse(w, http.StatusForbidden, "the page of %q asks for this: only this page may",
			r.Header.Get("Origin"))
	case kind != "application/json":
		p.guard.Refuse(w, http.StatusUnsupportedMediaType, "the body is %q, want application/json", kind)
	default:
		return p.rightToken(w, r.Header.Get(tokenHeader), from.Addr())
	}
	return false
}

// rightToken reports whether the request's token is right. If not, it counts the token and refuses the request.
func (p *Page) rightToken(w http.ResponseWriter, token string, from netip.Addr) bool {
	switch p.gate.check(token, from) {
	case tokenRight:
		return true
	case tokenNotLookedAt:
		p.wrongTokens.Add(1)
		w.Header().Set("Retry-After", fmt.Sprint(int(wrongInterval.Seconds())))
		p.guard.Refuse(w, http.StatusTooManyRequests, "too many wrong tokens came from %v: wait %v", from,
			wrongInterval)
		return false
	}
	if p.wrongTokens.Add(1) == 1 {
		p.log.Warn("page: a wrong token; more are counted", "from", from.String())
	}
	p.guard.Refuse(w, http.StatusUnauthorized, "the token is wrong, or missing in %s: it is in the file of "+
		"--http-token, or after # in the address that edge-rt printed", tokenHeader)
	return false
}

// ownHost reports whether the request's Host is a name of this machine, a loopback address, or the address at which the
// request arrived. For viewing, the guard accepts any address as Host.
func (p *Page) ownHost(r *http.Request) bool {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	asked, err := netip.ParseAddr(strings.Trim(name, "[]"))
	if err != nil {
		return true // a name that the guard accepts
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return asked.IsLoopback() || ok && asked.Unmap().WithZone("") == local.AddrPort().Addr().Unmap().WithZone("")
}

// ownOrigin reports whether this page sent the request, or a client other than a browser: browsers
// name the origin of each POST.
func ownOrigin(r *http.Request) bool {
	switch origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"); {
	case origin != "":
		return origin == "http://"+r.Host || origin == "https://"+r.Host // https: through a proxy that serves TLS
	default:
		return site == "" || site == "same-origin"
	}
}
