package page

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/internal/webpage"
	"github.com/edge-rt/edge-rt/record/timeline"
)

const (
	pictureTimeout = time.Second // longest wait for a picture, longer than capture.PreviewDelay
	picturePoll    = 10 * time.Millisecond
)

// starting is the page's answer until Watch is called.
const starting = "starting: it looks for the arm, the server and the cameras"

func (p *Page) index(w http.ResponseWriter, _ *http.Request) {
	webpage.Send(w, webpage.HTML, index)
}

// healthz answers with status 200 unless the process needs a restart, as lean-server's /healthz does.
func (p *Page) healthz(w http.ResponseWriter, _ *http.Request) {
	run := p.run.Load()
	code := http.StatusOK
	why := starting
	if run != nil {
		var ok bool
		if ok, why = run.Healthy(); !ok {
			code = http.StatusServiceUnavailable
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, why)
}

// running returns a handler that passes the run and the request to the function answer. Before there is a run, the
// handler refuses requests.
func (p *Page) running(answer func(*Run, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if run := p.run.Load(); run != nil {
			answer(run, w, r)
			return
		}
		p.guard.Refuse(w, http.StatusServiceUnavailable, starting)
	}
}

func metrics(run *Run, w http.ResponseWriter, r *http.Request) { run.Metrics.ServeHTTP(w, r) }

func (p *Page) status(run *Run, w http.ResponseWriter, _ *http.Request) { p.sendJSON(w, run.Status()) }

// timeline answers with the changes since the column and change that the query names, if the query also names this run.
// Otherwise it answers with all of this run, as for a browser that was open before a restart.
func (p *Page) timeline(run *Run, w http.ResponseWriter, r *http.Request) {
	if run.Timeline == nil {
		p.guard.Refuse(w, http.StatusNotFound, "there are no lines of an arm of so many joints")
		return
	}
	var since timeline.Since
	query := r.URL.Query()
	if run.Instance != "" && query.Get("instance") == run.Instance {
		column, err := strconv.ParseInt(query.Get("column"), 10, 64)
		change, other := strconv.ParseUint(query.Get("change"), 10, 64)
		if err != nil || other != nil || column < 0 {
			p.guard.Refuse(w, http.StatusBadRequest, "want column and change as the answer before had them")
			return
		}
		since = timeline.Since{Column: column, Change: change}
	}
	b := append(make([]byte, 0, lineBytes), `{"instance":`...)
	b = append(strconv.AppendQuote(b, run.Instance), `,"lines":`...)
	webpage.Send(w, webpage.JSON, append(run.Timeline(b, since), '}'))
}

// lineBytes is the initial size of an answer, enough for the changes of half a second.
const lineBytes = 2 << 10

// setTask sets the task in the request's body. A task moves the arm, so only a browser on this machine may set it, and
// only from this page. A browser sends a PUT for another site's page only after a preflight request, and the page never
// grants one. If the page has a token, the request must have the token, too.
func (p *Page) setTask(run *Run, w http.ResponseWriter, r *http.Request) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	switch origin := r.Header.Get("Origin"); {
	case err != nil || !from.Addr().Unmap().IsLoopback():
		p.guard.Refuse(w, http.StatusForbidden,
			"only a browser on the robot itself gives it a task: there, or by edge-rt ctl task")
		return
	case origin != "" && origin != "http://"+r.Host:
		p.guard.Refuse(w, http.StatusForbidden, "the page of %s asks for this: only this page may", origin)
		return
	}
	if p.gate != nil && !p.rightToken(w, r.Header.Get(tokenHeader), from.Addr()) {
		return
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind == "application/json" {
		p.guard.Refuse(w, http.StatusUnsupportedMediaType, "the body is %s, want the task itself as text/plain", kind)
		return
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxTaskBytes+1))
	if err != nil {
		p.guard.Refuse(w, http.StatusConflict, "%v", err)
	} else if reply := run.Panel.Command(r.Context(), operator.Task+" "+strings.TrimSpace(string(text))); !reply.OK {
		p.guard.Refuse(w, http.StatusConflict, "%s", reply.Error)
	} else {
		w.WriteHeader(http.StatusNoContent)
	}
}

// picture answers with the camera's newest picture and its age.
func (p *Page) picture(run *Run, w http.ResponseWriter, r *http.Request) {
	i := slices.IndexFunc(run.Previews, func(v *capture.Preview) bool { return v.Name() == r.PathValue("name") })
	if i < 0 {
		p.guard.Refuse(w, http.StatusNotFound, "no camera %q: there %s", r.PathValue("name"), cameraList(run.Previews))
		return
	}
	room := p.takeBuffer()
	if room == nil {
		p.guard.Refuse(w, http.StatusServiceUnavailable,
			"busy: %d pictures are on their way, which is the most; try again", maxPictures)
		return
	}
	defer func() { p.buffers <- room }()
	v := run.Previews[i]
	still, err := p.readPicture(v, room)
	if err != nil {
		p.guard.Refuse(w, http.StatusServiceUnavailable, "camera %s: %v", v.Name(), err)
		return
	}
	p.pictures.Add(1)
	w.Header().Set("X-Frame-Age-Ms", strconv.FormatInt(max(0, p.clock.Now().Sub(still.At)).Milliseconds(), 10))
	webpage.Send(w, webpage.JPEG, still.Data)
}

// takeBuffer returns the memory for one picture, nil if no buffer becomes free within pictureTimeout.
func (p *Page) takeBuffer() []byte {
	for waited := time.Duration(0); ; waited += picturePoll {
		select {
		case room := <-p.buffers:
			return room
		default:
		}
		if waited >= pictureTimeout {
			return nil
		}
		time.Sleep(picturePoll)
	}
}

// readPicture requests a picture and waits for it.
func (p *Page) readPicture(v *capture.Preview, room []byte) (still capture.Still, err error) {
	began := p.clock.Now()
	for {
		still, err = v.Read(room, began)
		if !errors.Is(err, capture.ErrNoPicture) || p.clock.Now().Sub(began) > pictureTimeout {
			return still, err
		}
		v.Request(p.clock.Now())
		time.Sleep(picturePoll)
	}
}

func cameraList(previews []*capture.Preview) string {
	if len(previews) == 0 {
		return "are no cameras (--camera NAME=SOURCE)"
	}
	var names []string
	for _, v := range previews {
		names = append(names, v.Name())
	}
	if len(names) == 1 {
		return "is " + names[0]
	}
	return "are " + strings.Join(names, ", ")
}
