// Package openpi is the front for openpi-client: WebSocket with MessagePack arrays. The server treats each connection
// as a robot. openpi.go serves connections, observation.go reads observations.
package openpi

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/tinylib/msgp/msgp"

	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

const (
	messageMost = 32 << 20 // bytes of an observation: eight pictures of 640x480 as float32
	// messageTime bounds the time from a message's first byte to its last. keptMost bounds the memory that stays with a
	// client between two messages.
	messageTime = 30 * time.Second
	keptMost    = 8 << 20
	// messageLeast is the first size of the buffer for messages.
	messageLeast = 64 << 10
	writeTime    = 10 * time.Second
	taskMost     = wire.MaxTextBytes
)

// Front serves openpi's clients.
type Front struct {
	net.Listener
	key      string // the key that clients have to show; empty: no key
	keys     keys
	to       *front.Gateway // set by Serve
	patience time.Duration  // messageTime, or a shorter time in tests
}

// Open returns a front that is bound to address. It reads observations by the keys in settings.
func Open(address string, settings *manifest.OpenPIFront) (*Front, error) {
	l, err := listen.TCP(address)
	if err != nil {
		return nil, err
	}
	f := &Front{
		key:      string(settings.APIKey),
		Listener: l,
		patience: messageTime,
	}
	f.keys = keys{cameras: map[string]string{}, state: settings.StateKeys, prompt: settings.PromptKey}
	for _, camera := range settings.Cameras {
		f.keys.cameras[camera.Name] = camera.Key
	}
	return f, nil
}

// Serve implements front.Front.
func (f *Front) Serve(ctx context.Context, to *front.Gateway) error {
	if err := f.keys.check(to.Meta); err != nil {
		return err
	}
	f.to = to
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "OK\n") })
	mux.HandleFunc("/", f.connect)
	server := &http.Server{Handler: mux}
	server.SetKeepAlivesEnabled(false)
	return to.Serve(ctx, front.OpenPI, f.Listener, server)
}

// connect upgrades a request to a WebSocket and serves its client.
func (f *Front) connect(w http.ResponseWriter, r *http.Request) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Api-Key ")
	if f.key != "" && subtle.ConstantTimeCompare([]byte(key), []byte(f.key)) != 1 {
		const text = "the API key is missing or wrong: WebsocketClientPolicy(api_key=…)"
		f.to.Counts.Refused[front.OpenPI][front.Session].Add(1)
		f.to.Log.Warn("openpi client refused", "addr", r.RemoteAddr, "why", text)
		http.Error(w, text, http.StatusUnauthorized)
		return
	}
	// without this line Accept would admit a web page from r.Host, as after DNS rebinding
	r.Host = "a client's page"
	conn, err := websocket.Accept(w, r, nil)
	if err != nil { // Accept has answered the request
		f.to.Counts.Refused[front.OpenPI][front.Malformed].Add(1)
		return
	}
	f.to.Counts.Clients[front.OpenPI].Add(1)
	c := &client{front: f, conn: conn, addr: r.RemoteAddr, held: f.to.Budget.Client()}
	c.reader.held = c.held
	if err := c.serve(r.Context()); err != nil {
		c.log().Warn("openpi client", "addr", r.RemoteAddr, "why", err)
	}
}

// client is one connection.
//
// Owner: its goroutine.
type client struct {
	front    *Front
	conn     *websocket.Conn
	addr     string
	robot    *front.Robot
	reader   reader
	task     string
	incoming chan incoming
	answered chan struct{} // holds an element while buf is free for the next message
	// the newest message; owner: read, from its receive on answered until its send on incoming
	buf      []byte
	held     *front.Held // the memory of buf and of reader
	answer   []byte
	previous time.Duration // time that the previous answer took, including its sending
	logged   string        // the reason that was logged last
}

// incoming is a message of the client, or the error that ended the connection.
type incoming struct {
	kind websocket.MessageType
	data []byte
	err  error
}

// log returns the front's log. Once the client has a session, it adds the session's keys.
func (c *client) log() *slog.Logger {
	if c.robot == nil {
		return c.front.to.Log
	}
	return c.front.to.Log.With("robot", c.robot.Name(), "session", c.robot.Ack().SessionID)
}

// serve opens a session and answers messages until the connection or ctx ends.
func (c *client) serve(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer c.conn.CloseNow()
	defer cancel()
	c.conn.SetReadLimit(messageMost)
	meta := c.front.to.Meta
	asked := wire.SessionOpen{RobotType: "openpi-client", FPS: meta.FPS, ActionNames: meta.ActionNames}
	asked.StateDim = len(meta.StateNames)
	for _, camera := range meta.Cameras {
		c.reader.cameras = append(c.reader.cameras, front.ImageName(camera.Name))
	}
	asked.CameraNames, asked.RawImages = c.reader.cameras, c.reader.cameras
	c.reader.keys, c.reader.meta = &c.front.keys, meta
	c.robot, err = c.front.to.Open(ctx, front.OpenPI, c.addr, asked)
	switch {
	case errors.Is(err, front.ErrTemporary):
		c.close(websocket.StatusTryAgainLater, err.Error())
		return err
	case err != nil:
		c.close(websocket.StatusPolicyViolation, err.Error())
		return err
	}
	defer c.robot.Close()
	c.log().Info("openpi client connected", "addr", c.addr)
	if err := c.write(ctx, websocket.MessageBinary, c.metadata()); err != nil {
		return err
	}
	c.incoming, c.answered = make(chan incoming), make(chan struct{}, 1)
	c.answered <- struct{}{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.read(ctx)
	}()
	defer func() {
		cancel()
		c.conn.CloseNow()
		<-ended
		c.drop()
	}()
	for {
		select {
		case <-ctx.Done():
			c.close(websocket.StatusGoingAway, "the server ends")
			return nil
		case m := <-c.incoming:
			if m.err != nil && !errors.Is(m.err, front.ErrNoMemory) {
				return c.ended(m.err)
			}
			if err := c.take(ctx, m); err != nil {
				return err
			}
			if cap(c.buf)+c.reader.kept() > keptMost {
				c.drop()
			}
			c.answered <- struct{}{}
		}
	}
}

// ended returns the error to report for a connection that ended with err: nil if the client closed or lost the
// connection, an error if a message was too large or too slow.
func (c *client) ended(err error) error {
	if errors.Is(err, errLate) {
		c.front.to.Counts.Refused[front.OpenPI][front.TooLarge].Add(1)
		return err
	}
	if strings.Contains(err.Error(), "read limited at") {
		c.front.to.Counts.Refused[front.OpenPI][front.TooLarge].Add(1)
		return fmt.Errorf("an observation of more than %d bytes", messageMost)
	}
	c.log().Info("openpi client disconnected", "addr", c.addr)
	return nil
}

// read passes messages on to incoming, one at a time. It waits for the next message while the policy computes, so that
// pings are answered. But it receives that message only when the previous one has been answered.
func (c *client) read(ctx context.Context) {
	for {
		kind, r, err := c.conn.Reader(ctx)
		if err == nil {
			select {
			case <-c.answered:
			case <-ctx.Done():
				return
			}
			err = c.receive(r)
		}
		select {
		case c.incoming <- incoming{kind, c.buf, err}:
		case <-ctx.Done():
			return
		}
		if err != nil && !errors.Is(err, front.ErrNoMemory) {
			return
		}
	}
}

// receive reads a message into buf.
func (c *client) receive(r io.Reader) error {
	late := time.AfterFunc(c.front.patience, func() { c.conn.CloseNow() })
	err := c.fill(r)
	if !late.Stop() {
		return errLate
	}
	return err
}

// fill reads a message into buf. A message for which no memory is left is read to its end and
// dropped.
func (c *client) fill(r io.Reader) error {
	c.buf = c.buf[:0]
	for {
		if len(c.buf) == cap(c.buf) {
			// one byte more shows whether the message has ended
			size := max(messageLeast, min(2*cap(c.buf), messageMost+1))
			if err := c.held.Take(size - cap(c.buf)); err != nil {
				c.drop()
				_, lost := io.Copy(io.Discard, r)
				return cmp.Or(lost, err)
			}
			c.buf = append(make([]byte, 0, size), c.buf...)
		}
		n, err := r.Read(c.buf[len(c.buf):cap(c.buf)])
		c.buf = c.buf[:len(c.buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// drop frees the memory of messages and pictures, and releases it from the client's account.
func (c *client) drop() {
	c.held.Release(cap(c.buf) + c.reader.kept())
	c.buf = nil
	c.reader.buffers = nil
}

var errLate = fmt.Errorf("an observation arrived for more than %v", messageTime)

// take answers one message. An observation that the policy cannot take, or that gets no chunk, is answered with a text
// message, for which openpi-client raises an error. The connection stays open.
func (c *client) take(ctx context.Context, m incoming) error {
	began := time.Now()
	if m.err != nil {
		return c.unanswered(ctx, m.err)
	}
	err := error(nil)
	if m.kind != websocket.MessageBinary {
		err = errors.New("a message of text, want MessagePack")
	}
	var observation ndarray.Map
	if err == nil {
		observation, err = ndarray.ParseMap(m.data)
	}
	if err != nil {
		c.front.to.Counts.Refused[front.OpenPI][front.Malformed].Add(1)
		c.report(ctx, err)
		c.close(websocket.StatusInternalError, "the message is no observation; see the message before")
		return err
	}
	if err := c.infer(ctx, observation, began); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return c.unanswered(ctx, err)
	}
	return nil
}

// unanswered counts an observation without a chunk and reports the reason to the client. It logs the reason unless it
// is the same as the last.
func (c *client) unanswered(ctx context.Context, why error) error {
	switch counts := &c.front.to.Counts.Refused[front.OpenPI]; {
	case errors.Is(why, front.ErrNoMemory):
		counts[front.NoMemory].Add(1)
	case errors.Is(why, errKeys):
		counts[front.Mismatch].Add(1)
	}
	if text := why.Error(); text != c.logged {
		c.logged = text
		c.log().Warn("openpi client gets no chunk", "why", text)
	}
	return c.report(ctx, why)
}

func (c *client) infer(ctx context.Context, m ndarray.Map, began time.Time) error {
	o, task, err := c.reader.read(m)
	if err != nil {
		return err
	}
	if task != c.task {
		if len(task) > taskMost {
			return fmt.Errorf("%w: its prompt has %d bytes, want at most %d", errKeys, len(task), taskMost)
		}
		if err := c.robot.Reset(ctx, task); err != nil {
			return err
		}
		c.task = task
	}
	o.Task = task
	asked := time.Now()
	chunk, err := c.robot.Infer(ctx, o)
	if err != nil {
		return err
	}
	c.pack(&chunk.ChunkRobot, time.Since(asked), time.Since(began))
	if err := c.write(ctx, websocket.MessageBinary, c.answer); err != nil {
		return err
	}
	c.previous = time.Since(began)
	return nil
}

// pack writes the answer as openpi's server does. The parameter policy is the time from the request to its chunk, and
// server is the time for the whole message.
func (c *client) pack(chunk *wire.Matrix, policy, server time.Duration) {
	b := msgp.AppendMapHeader(c.answer[:0], 3)
	data := make([]byte, 0, 4*len(chunk.Data))
	for _, v := range chunk.Data {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	b = ndarray.OpenPI.AppendArray(msgp.AppendString(b, "actions"), ndarray.Float32, []int{chunk.Rows, chunk.Cols},
		data)
	b = appendMs(msgp.AppendMapHeader(msgp.AppendString(b, "policy_timing"), 1), "infer_ms", policy)
	if c.previous == 0 {
		b = msgp.AppendMapHeader(msgp.AppendString(b, "server_timing"), 1)
	} else {
		b = appendMs(msgp.AppendMapHeader(msgp.AppendString(b, "server_timing"), 2), "prev_total_ms", c.previous)
	}
	c.answer = appendMs(b, "infer_ms", server)
}

func appendMs(b []byte, key string, d time.Duration) []byte {
	return msgp.AppendFloat64(msgp.AppendString(b, key), float64(d)/float64(time.Millisecond))
}

// metadata describes the policy; openpi's servers send the metadata of their configuration.
func (c *client) metadata() []byte {
	meta := c.front.to.Meta
	b := msgp.AppendMapHeader(nil, 5)
	b = msgp.AppendFloat64(msgp.AppendString(b, "fps"), meta.FPS)
	b = msgp.AppendInt(msgp.AppendString(b, "action_horizon"), meta.ChunkSize)
	b = appendTexts(msgp.AppendString(b, "action_names"), meta.ActionNames)
	b = appendTexts(msgp.AppendString(b, "state_names"), meta.StateNames)
	return appendTexts(msgp.AppendString(b, "cameras"), cameraNames(meta))
}

func appendTexts(b []byte, texts []string) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(texts)))
	for _, text := range texts {
		b = msgp.AppendString(b, text)
	}
	return b
}

func (c *client) write(ctx context.Context, kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return c.conn.Write(ctx, kind, b)
}

// report sends an error to the client in a text message, as openpi's server does.
func (c *client) report(ctx context.Context, err error) error {
	return c.write(ctx, websocket.MessageText, []byte(plain.Text("lean-server: "+err.Error())))
}

// close ends the connection with a reason, which it cuts to the length that a control frame can hold.
func (c *client) close(code websocket.StatusCode, reason string) {
	const most = 120
	reason = plain.Text(reason)
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "")
	}
	_ = c.conn.Close(code, reason) // the client may be gone
}
