package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// messageMost bounds a message of a server. An answer has some kilobytes.
const messageMost = 16 << 20

// handshakeTime bounds the time for connecting and for the first message.
const handshakeTime = 10 * time.Second

// reasonTime is how long ask waits for the reader to find why the server closed the connection.
const reasonTime = 200 * time.Millisecond

// link is a connection to a server. After an error for which isAnswer is false, the connection must be closed.
//
// Owner: the thread of Batch.
type link interface {
	// ask sends a message and returns the parsed answer, whose data are valid until the next call.
	ask(ctx context.Context, message []byte) (any, error)
	// metadata returns the server's description of the policy.
	metadata() ndarray.Map
	// The other methods are those of remote.Link.
	Ended() <-chan struct{}
	Why() error
	Close() error
}

// openpi is a connection to openpi's serve_policy. A separate goroutine reads, because the server
// closes connections that leave its pings unanswered.
type openpi struct {
	conn     *websocket.Conn
	meta     ndarray.Map
	incoming chan incoming
	over     chan struct{}
	reason   error // the reason for the end; set before over is closed
	stop     context.CancelFunc
}

// incoming is a message of the server, or the error that ended the connection.
type incoming struct {
	kind websocket.MessageType
	data []byte
	err  error
}

func dialOpenPI(ctx context.Context, address, key string) (link, error) {
	options := &websocket.DialOptions{HTTPHeader: http.Header{}}
	if key != "" {
		options.HTTPHeader.Set("Authorization", "Api-Key "+key)
	}
	conn, response, err := websocket.Dial(ctx, address, options)
	if err != nil {
		if response != nil && response.StatusCode != http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("it answers with HTTP status %s, want a WebSocket", short(response.Status))
		}
		if get := (*url.Error)(nil); errors.As(err, &get) {
			return nil, get.Err // without the address, whose user may be a key
		}
		return nil, err
	}
	conn.SetReadLimit(messageMost)
	reading, stop := context.WithCancel(context.Background())
	o := &openpi{
		conn:     conn,
		incoming: make(chan incoming, 1),
		over:     make(chan struct{}),
		stop:     stop,
	}
	go o.read(reading)
	v, err := o.next(ctx)
	if err == nil {
		if o.meta, _ = v.(ndarray.Map); o.meta == nil {
			err = fmt.Errorf("the first message is %s, want a map of metadata: is it a server of openpi?",
				ndarray.Kind(v))
		}
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// read passes on messages until the connection ends.
func (o *openpi) read(ctx context.Context) {
	defer close(o.incoming)
	defer close(o.over)
	for {
		kind, data, err := o.conn.Read(ctx)
		select {
		case o.incoming <- incoming{kind, data, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			o.reason = endOf(err)
			return
		}
	}
}

// endOf returns the error to report for a connection that ended with err.
func endOf(err error) error {
	if closed := (websocket.CloseError{}); errors.As(err, &closed) {
		return fmt.Errorf("%w: code %d %s", errEnded, closed.Code, plain.Text(closed.Reason))
	}
	return fmt.Errorf("%w: %w", errEnded, err)
}

// ended returns the error of a connection that has ended, else nil. ok is false when the reader has ended before.
func (m *incoming) ended(ok bool) error {
	switch {
	case !ok:
		return errEnded
	case m.err != nil:
		return endOf(m.err)
	}
	return nil
}

func (o *openpi) next(ctx context.Context) (any, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case m, ok := <-o.incoming:
		if err := m.ended(ok); err != nil {
			return nil, err
		}
		if m.kind == websocket.MessageText { // after this message, the server closes the connection
			return nil, reported(string(m.data))
		}
		return ndarray.Parse(m.data)
	}
}

// errEnded marks the end of a connection.
var errEnded = errors.New("the connection ended")

func (o *openpi) ask(ctx context.Context, message []byte) (any, error) {
	select {
	case m, ok := <-o.incoming:
		// otherwise the message would count as the answer to this request
		return nil, cmp.Or(m.ended(ok), fmt.Errorf("%w: the server sent a message without a request", errEnded))
	default:
	}
	if err := o.conn.Write(ctx, websocket.MessageBinary, message); err != nil {
		select { // if the server has closed the connection, its reason may arrive in a moment
		case m, ok := <-o.incoming:
			if ok && m.err != nil {
				err = m.err
			}
		case <-time.After(reasonTime):
		}
		return nil, endOf(err)
	}
	return o.next(ctx)
}

func (o *openpi) metadata() ndarray.Map  { return o.meta }
func (o *openpi) Ended() <-chan struct{} { return o.over }
func (o *openpi) Why() error             { return o.reason }

func (o *openpi) Close() error {
	o.stop()
	_ = o.conn.CloseNow() // the connection has ended, so an error does not matter
	return nil
}

// checkURL refuses an address that is not of the kind's form.
func checkURL(kind, address string) error {
	parsed, err := url.Parse(address)
	if err != nil {
		parsed = &url.URL{}
	}
	_, badPort := strconv.ParseUint(cmp.Or(parsed.Port(), "1"), 10, 16)
	host := parsed.Hostname() != "" && badPort == nil
	switch {
	case kind == openPI && !(host && (parsed.Scheme == "ws" || parsed.Scheme == "wss")):
		return fmt.Errorf("model.url is '%s', want ws://HOST:PORT or wss://HOST:PORT, the address of openpi's server",
			plain.Address(address))
	case kind == GR00T && !(host && parsed.Scheme == "tcp" && parsed.Port() != "" &&
		strings.TrimSuffix(parsed.Path, "/") == "" && parsed.User == nil):
		return fmt.Errorf("model.url is '%s', want tcp://HOST:PORT, the address of GR00T's server",
			plain.Address(address))
	}
	return nil
}
