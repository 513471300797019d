package page

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"edgert/internal/webpage"
	"edgert/wire"
)

const (
	commandPath = "/command"
	tokenHeader = "X-Edge-RT-Token"

	maxCommandBytes = 6*wire.MaxTextBytes + 256 // a text, each byte of which may be escaped
)

// Button is a command of an operator that the page offers.
type Button struct {
	Word  string `json:"word"`
	Label string `json:"label,omitempty"` // empty: it has a form of its own
	Text  string `json:"text,omitempty"`  // what stands behind the word; empty: nothing
	Ask   string `json:"ask,omitempty"`   // what is asked before; empty: nothing
}

// Reply is what became of a command.
type Reply struct {
	Done bool
	Why  string // it was not
	Body any    // becomes JSON
}

// buttons answers with what the page may offer, and whether it wants a token for it.
func (p *Page) buttons(w http.ResponseWriter, _ *http.Request) {
	list := struct {
		Token    bool     `json:"token"`
		Commands []Button `json:"commands"`
	}{p.gate != nil, []Button{}}
	if run := p.run.Load(); run != nil && p.gate != nil {
		list.Commands = run.Buttons
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

// command carries out {"command": WORD, "text": TEXT} for who shows the token. What a
// browser sends by itself, a cookie or a form, counts for nothing here: the header cannot be
// set from another site's page without asking first, and nobody here says yes.
func (p *Page) command(w http.ResponseWriter, r *http.Request) {
	if !p.mayOperate(w, r) {
		return
	}
	var asked struct {
		Command string `json:"command"`
		Text    string `json:"text"`
	}
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommandBytes))
	body.DisallowUnknownFields()
	err := body.Decode(&asked)
	if err == nil {
		if _, more := body.Token(); more != io.EOF {
			err = fmt.Errorf("something stands behind it")
		}
	}
	if err != nil {
		p.guard.Refuse(w, http.StatusBadRequest, `%v: want {"command": "pause"}, with "text" for a command that takes one`, err)
		return
	}
	run := p.run.Load()
	if run == nil || run.Command == nil {
		p.guard.Refuse(w, http.StatusServiceUnavailable, starting)
		return
	}
	if strings.ContainsAny(asked.Command+asked.Text, "\r\n") || strings.Contains(asked.Command, " ") {
		p.guard.Refuse(w, http.StatusBadRequest, "a command is one line: a word, and a text for one that takes one")
		return
	}
	reply := run.Command(r.Context(), strings.TrimSpace(asked.Command+" "+asked.Text))
	p.commands.Add(1)
	if !reply.Done {
		p.guard.Refuse(w, http.StatusConflict, "%s", reply.Why)
		return
	}
	p.sendJSON(w, reply.Body)
}

// mayOperate admits who may move the arm, and tells others why not.
func (p *Page) mayOperate(w http.ResponseWriter, r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case p.gate == nil:
		p.guard.Refuse(w, http.StatusForbidden, "this page only shows; its buttons want --http-token FILE, or auto")
	case err != nil || !p.ownHost(r):
		p.guard.Refuse(w, http.StatusMisdirectedRequest, "commands are for %s by its own address or name, not for %q: --http-name gives it another", r.Context().Value(http.LocalAddrContextKey), r.Host)
	case !ownOrigin(r):
		p.guard.Refuse(w, http.StatusForbidden, "the page of %q asks for this: only this page may", r.Header.Get("Origin"))
	case kind != "application/json":
		p.guard.Refuse(w, http.StatusUnsupportedMediaType, "the body is %q, want application/json", kind)
	default:
		return p.rightToken(w, r.Header.Get(tokenHeader), from.Addr())
	}
	return false
}

// rightToken compares what was shown, and counts what is wrong.
func (p *Page) rightToken(w http.ResponseWriter, token string, from netip.Addr) bool {
	switch p.gate.check(token, from) {
	case tokenRight:
		return true
	case tokenNotLookedAt:
		p.wrongTokens.Add(1)
		w.Header().Set("Retry-After", fmt.Sprint(int(wrongInterval.Seconds())))
		p.guard.Refuse(w, http.StatusTooManyRequests, "too many wrong tokens came from %v: wait %v", from, wrongInterval)
		return false
	}
	if p.wrongTokens.Add(1) == 1 {
		p.log.Warn("page: a wrong token; more are counted", "from", from.String())
	}
	p.guard.Refuse(w, http.StatusUnauthorized, "the token is wrong, or missing in %s: it is in the file of --http-token, or behind # in the address that edge-rt printed", tokenHeader)
	return false
}

// ownHost reports whether the browser looked for this very address, or for a name of this
// machine. The guard lets any address look; an arm is moved at its own.
func (p *Page) ownHost(r *http.Request) bool {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	asked, err := netip.ParseAddr(strings.Trim(name, "[]"))
	if err != nil {
		return true // a name that the guard knows
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return asked.IsLoopback() || ok && asked.Unmap().WithZone("") == local.AddrPort().Addr().Unmap().WithZone("")
}

// ownOrigin reports whether this page sent the request, or no browser did: browsers say
// where each POST comes from.
func ownOrigin(r *http.Request) bool {
	switch origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"); {
	case origin != "":
		return origin == "http://"+r.Host || origin == "https://"+r.Host // a proxy's that speaks TLS
	default:
		return site == "" || site == "same-origin"
	}
}
