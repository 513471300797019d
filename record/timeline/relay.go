package timeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/wire/foxglove"
	"github.com/edge-rt/edge-rt/wire/listen"
)

// Bounds of the requests to a run's page, which admits 50 requests a second of all its clients together.
const (
	relayLines   = LiveWidth
	relayStatus  = time.Second
	relayPicture = 200 * time.Millisecond // time between two pictures of a camera; longer with more cameras
	relayCameras = 5
	relayTimeout = 3 * time.Second
	relayRetry   = time.Second // pause after a failure
	maxAnswer    = 4 << 20     // bytes of an answer
	maxPicture   = 16 << 20    // bytes of a picture
	maxRelayed   = 8           // most cameras
)

// RelayConfig configures edge-rt view --live.
type RelayConfig struct {
	Page   string // address of the run's page, such as http://127.0.0.1:8080
	Listen string // address for Foxglove's viewers
	Python string // interpreter with Rerun's SDK; empty: the viewers are Foxglove's
	Viewer string // address of a Rerun viewer; empty: the viewer of this machine, which is started if it does not run
	Out    io.Writer
}

// publisher takes the messages of a relay.
type publisher interface {
	Publish(channel uint32, at time.Time, message []byte)
}

// relay is a client of a run's page. It publishes the answers of the page.
type relay struct {
	page   *url.URL
	out    io.Writer
	client http.Client
	to     publisher
	joints []string // joint names, as the channels have them

	instance string
	since    Since // state after the previous answer

	mu sync.Mutex // guards out
}

// liveLines is the answer to /timeline.json.
type liveLines struct {
	Instance string  `json:"instance"`
	Lines    decoded `json:"lines"`
}

// decoded is an answer with its rows.
type decoded struct {
	answer
	Rows [][]*float64 `json:"rows"`
}

// The channels of a relay. The channels of cameras follow them.
const (
	channelJoints = iota
	channelTiming
	channelStatus
	channelLog
	channelCamera
)

// Relay publishes a run to viewers by Foxglove's protocol until ctx is done. Relay sends requests to the run's page as
// a browser does, and causes no more work for the run than a browser.
func Relay(ctx context.Context, cfg RelayConfig) error {
	page, err := url.Parse(cfg.Page)
	if err != nil || page.Scheme != "http" || page.Host == "" {
		return exit.Errorf(exit.Usage, "%q is no address of a run's page, want http://HOST:PORT, where edge-rt runs "+
			"with --http", cfg.Page)
	}
	if _, _, err := net.SplitHostPort(cfg.Listen); err != nil && cfg.Python == "" {
		return exit.Errorf(exit.Usage, "--listen is %q, want HOST:PORT, such as 127.0.0.1:8765", cfg.Listen)
	}
	r := &relay{page: page, out: cfg.Out, client: http.Client{Timeout: relayTimeout}}
	first, status, err := r.first(ctx)
	if err != nil {
		return exit.Errorf(exit.Absent, "%s: %w; is an edge-rt of this version there, with --http?", cfg.Page, err)
	}
	r.joints = first.Lines.Joints
	cameras := slices.Sorted(maps.Keys(status.Frames))
	cameras = cameras[:min(len(cameras), maxRelayed)]
	name, channels := "edge-rt "+cmp.Or(status.ID, page.Host), relayChannels(r.joints, cameras)
	serve := r.foxglove
	if cfg.Python != "" {
		serve = r.rerun
	}
	return serve(ctx, cfg, name, channels)
}

// publishing starts the threads that publish until ctx is done.
func (r *relay) publishing(ctx context.Context, channels []foxglove.Channel) *sync.WaitGroup {
	threads := new(sync.WaitGroup)
	threads.Go(func() { r.every(ctx, relayLines, r.lines) })
	threads.Go(func() { r.every(ctx, relayStatus, r.status) })
	cameras := channels[channelCamera:]
	pause := relayPicture * time.Duration(max(relayCameras, len(cameras))) / relayCameras
	for i, c := range cameras {
		threads.Go(func() {
			r.every(ctx, pause, func(ctx context.Context) error {
				return r.picture(ctx, uint32(channelCamera+i), strings.TrimPrefix(c.Topic, cameraTopic))
			})
		})
	}
	return threads
}

// foxglove serves Foxglove's viewers until ctx is done.
func (r *relay) foxglove(ctx context.Context, cfg RelayConfig, name string, channels []foxglove.Channel) error {
	to := foxglove.New(name, channels)
	listener, err := listen.TCP(cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", listen.Explain(err, "choose another port"))
	}
	server := http.Server{Handler: to, ReadHeaderTimeout: relayTimeout,
		BaseContext: func(net.Listener) context.Context {
			return ctx
		}}
	r.to = to
	threads := r.publishing(ctx, channels)
	threads.Go(func() { _ = server.Serve(listener) }) // ends with Close
	fmt.Fprintf(r.out, "Foxglove or Lichtblick: open a connection to ws://%s (Foxglove WebSocket). Ctrl-C ends it.\n",
		listener.Addr())
	<-ctx.Done()
	_ = server.Close()
	threads.Wait()
	r.printCounts(to.Sent.Load(), to.Dropped.Load())
	return nil
}

// rerun streams messages to a Rerun viewer until ctx is done or the viewer is lost.
func (r *relay) rerun(ctx context.Context, cfg RelayConfig, name string, channels []foxglove.Channel) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	to, err := startRerun(ctx, cfg, name, channels)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the user ended the wait for the viewer
	case err != nil:
		return err
	}
	r.to = to
	fmt.Fprintf(r.out, "The run is streamed to Rerun (%s). Ctrl-C ends it.\n", cmp.Or(cfg.Viewer, "this machine's"))
	threads := r.publishing(ctx, channels)
	err = to.serve(ctx)
	cancel()
	threads.Wait()
	r.printCounts(to.sent.Load(), to.dropped.Load())
	return err
}

func (r *relay) printCounts(sent, dropped uint64) {
	fmt.Fprintf(r.out, "%d messages sent, %d dropped because a viewer was slow.\n", sent, dropped)
}

// relayStatusOf has the part of /status.json that names the channels.
type relayStatusOf struct {
	ID     string                     `json:"id"`
	Frames map[string]json.RawMessage `json:"frames"`
}

func (r *relay) first(ctx context.Context) (lines liveLines, status relayStatusOf, err error) {
	text, _, err := r.get(ctx, "/status.json", maxAnswer)
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	if err == nil {
		lines, err = r.ask(ctx)
	}
	return lines, status, err
}

// every calls f in each period until ctx is done. It reports the first of several failures in a row.
func (r *relay) every(ctx context.Context, period time.Duration, f func(context.Context) error) {
	for failed := false; ctx.Err() == nil; {
		err := f(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			r.mu.Lock()
			fmt.Fprintf(r.out, "%s: %s; it is asked again every second\n", r.page, plain.Text(err.Error()))
			r.mu.Unlock()
		}
		failed = err != nil
		pause := period
		if failed {
			pause = relayRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// get returns the body of the page's answer, and for a picture its age. path is escaped, and may have a query.
func (r *relay) get(ctx context.Context, path string, most int64) (body []byte, age time.Duration, err error) {
	at, err := r.page.Parse(path)
	if err != nil {
		return nil, 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, 0, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, most+1))
	switch {
	case err != nil:
	case int64(len(body)) > most:
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	case response.StatusCode != http.StatusOK:
		err = fmt.Errorf("%s: %s: %.200s", path, response.Status, strings.TrimSpace(string(body)))
	}
	milliseconds, _ := strconv.ParseUint(response.Header.Get("X-Frame-Age-Ms"), 10, 31) // 0: the answer has no age
	return body, time.Duration(milliseconds) * time.Millisecond, err
}

// ask returns the lines since the previous answer.
func (r *relay) ask(ctx context.Context) (lines liveLines, err error) {
	text, _, err := r.get(ctx, fmt.Sprintf("/timeline.json?instance=%s&column=%d&change=%d",
		url.QueryEscape(r.instance),
		r.since.Column, r.since.Change), maxAnswer)
	if err != nil {
		return lines, err
	}
	return parseLines(text)
}

func parseLines(text []byte) (lines liveLines, err error) {
	if err := json.Unmarshal(text, &lines); err != nil {
		return lines, fmt.Errorf("/timeline.json: %w", err)
	}
	l := &lines.Lines
	if len(l.Joints) > record.MaxJoints || l.Width < 1 || l.From < 0 {
		return lines, errors.New("/timeline.json is not one of edge-rt")
	}
	for _, row := range l.Rows {
		if row != nil && len(row) != rowHead+perJoint*len(l.Joints) {
			return lines, fmt.Errorf("/timeline.json: a row of %d values, want %d", len(row),
				rowHead+perJoint*len(l.Joints))
		}
	}
	return lines, nil
}

// rowHead is the number of values in a row before the values of the joints, and perJoint the number of values of a
// joint. appendRow shows their order.
const rowHead, perJoint = 6, 4

// lines publishes the changes of the timeline since the previous answer.
func (r *relay) lines(ctx context.Context) error {
	got, err := r.ask(ctx)
	if err == nil {
		err = r.publish(&got)
	}
	return err
}

// publish publishes the columns that are complete, and the new marks.
func (r *relay) publish(got *liveLines) error {
	l := &got.Lines
	if !slices.Equal(l.Joints, r.joints) {
		return errors.New("another robot runs there: start edge-rt view --live again")
	}
	// a run's first answer has the whole last minute, which is too much for a viewer at once
	again := got.Instance != r.instance
	r.instance = got.Instance
	for i, row := range l.Rows {
		n := l.From + int64(i)
		if row == nil || again || i == len(l.Rows)-1 { // the newest column may still change
			continue
		}
		at := time.UnixMilli(l.Zero + n*l.Width)
		r.to.Publish(channelTiming, at, timingMessage(row))
		if len(l.Joints) > 0 && row[rowHead] != nil {
			r.to.Publish(channelJoints, at, jointsMessage(l.Joints, row))
		}
	}
	for _, m := range l.Marks {
		if !again {
			r.to.Publish(channelLog, time.UnixMilli(m.At), logMessage(&m))
		}
	}
	r.since = Since{Column: l.From + int64(max(0, len(l.Rows)-1)), Change: l.Change}
	return nil
}

func (r *relay) status(ctx context.Context) error {
	text, _, err := r.get(ctx, "/status.json", maxAnswer)
	if err == nil {
		r.to.Publish(channelStatus, time.Now(), text)
	}
	return err
}

func (r *relay) picture(ctx context.Context, channel uint32, camera string) error {
	picture, age, err := r.get(ctx, "/camera/"+url.PathEscape(camera), maxPicture)
	if err != nil {
		return err
	}
	at := time.Now().Add(-age)
	text, _ := json.Marshal(struct { // in the form of foxglove.CompressedImage
		Timestamp stamp  `json:"timestamp"`
		Frame     string `json:"frame_id"`
		Data      []byte `json:"data"`
		Format    string `json:"format"`
	}{stampOf(at), camera, picture, "jpeg"})
	r.to.Publish(channel, at, text)
	return nil
}
