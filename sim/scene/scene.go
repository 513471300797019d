// Package scene shows a simulated world to other processes of this machine: at a Unix socket, each
// received byte is answered with the present view. A camera of another process uses it (camera.go),
// and so may a program that plays a person.
package scene

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim"
)

// An answer is version, instant, joints, target, post, score: words of 64 bits, little endian,
// numbers as IEEE 754, the instant in nanoseconds of CLOCK_MONOTONIC.
const (
	version    = 1
	words      = 2 + sim.DOF + 4 + 4
	viewBytes  = 8 * words
	lookLimit  = time.Second // for an answer, which takes less than a millisecond
	writeLimit = time.Second // for a client to read the answer to its request
)

// ErrSocket means that a world cannot be shown at a path.
var ErrSocket = errors.New("scene: no place for a socket")

// Listen opens the socket at path. It replaces a socket that a killed process has left, and refuses
// a socket at which another process answers.
func Listen(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%w: %s exists and is no socket", ErrSocket, path)
		}
		if c, err := net.DialTimeout("unix", path, lookLimit); err == nil {
			c.Close()
			return nil, fmt.Errorf("%w: another simulator shows its world at %s", ErrSocket, path)
		}
		os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSocket, err)
	}
	return l, nil
}

// Serve shows the world to every client until the socket is closed.
func Serve(l net.Listener, world *sim.Live) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go show(c, world)
	}
}

// show answers one client until it has gone.
func show(c net.Conn, world *sim.Live) {
	defer c.Close()
	var ask [1]byte
	var buf [viewBytes]byte
	for {
		if _, err := io.ReadFull(c, ask[:]); err != nil {
			return
		}
		v := world.View()
		c.SetWriteDeadline(time.Now().Add(writeLimit))
		if _, err := c.Write(appendView(buf[:0], &v)); err != nil {
			return
		}
	}
}

func appendView(dst []byte, v *sim.View) []byte {
	word := func(u uint64) { dst = binary.LittleEndian.AppendUint64(dst, u) }
	number := func(f float64) { word(math.Float64bits(f)) }
	word(version)
	word(uint64(v.At))
	for _, q := range v.Q {
		number(q)
	}
	for _, p := range []sim.Point{v.Target, v.Post} {
		number(p.X)
		number(p.Y)
	}
	for _, n := range []int64{int64(v.Reached), int64(v.Collided), int64(v.Timeouts), v.SkippedTicks} {
		word(uint64(n))
	}
	return dst
}

// parseView parses an answer of viewBytes bytes.
func parseView(b []byte) (v sim.View, err error) {
	word := func() (u uint64) {
		u, b = binary.LittleEndian.Uint64(b), b[8:]
		return u
	}
	number := func() float64 { return math.Float64frombits(word()) }
	if got := word(); got != version {
		return v, fmt.Errorf("scene: version %d, want %d: both programs have to be of one build", got, version)
	}
	v.At = rt.Instant(word())
	for j := range v.Q {
		v.Q[j] = number()
	}
	for _, p := range []*sim.Point{&v.Target, &v.Post} {
		p.X, p.Y = number(), number()
	}
	for _, n := range []*int{&v.Reached, &v.Collided, &v.Timeouts} {
		*n = int(word())
	}
	v.SkippedTicks = int64(word())
	for _, f := range []float64{v.Q[0], v.Q[2], v.Target.X, v.Target.Y, v.Post.X, v.Post.Y} {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return v, errors.New("scene: a place that is no number")
		}
	}
	return v, nil
}

// Eye receives the views of a world of another process. Owner: one thread; any thread may call
// Close.
type Eye struct {
	conn net.Conn
	buf  [viewBytes]byte
}

// Dial connects to the world that is shown at path.
func Dial(path string) (*Eye, error) {
	c, err := net.DialTimeout("unix", path, lookLimit)
	if err != nil {
		return nil, fmt.Errorf("scene: no program shows a world at %s: %w", path, err)
	}
	return &Eye{conn: c}, nil
}

// Look returns the present view. After an error the eye is unusable.
func (e *Eye) Look() (sim.View, error) {
	e.conn.SetDeadline(time.Now().Add(lookLimit))
	if _, err := e.conn.Write([]byte{'\n'}); err != nil {
		return sim.View{}, err
	}
	if _, err := io.ReadFull(e.conn, e.buf[:]); err != nil {
		return sim.View{}, err
	}
	return parseView(e.buf[:])
}

// Close closes the connection and also ends a running Look.
func (e *Eye) Close() error { return e.conn.Close() }
