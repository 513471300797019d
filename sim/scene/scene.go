// Package scene shows a simulated world to other processes of this machine. At a Unix socket, a
// server answers each received byte with the present view. The cameras of other processes
// (camera.go) use the socket, and so may a program that acts in a person's place.
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
	version     = 1
	words       = 2 + sim.DOF + 4 + 4
	viewBytes   = 8 * words
	answerLimit = time.Second // time limit of an answer; a normal answer takes less than a millisecond
	writeLimit  = time.Second // longest time in which a client must have read the answer
)

// errSocket means that Listen cannot open a socket at a path.
var errSocket = errors.New("scene: no place for a socket")

// Listen opens the socket at path. It replaces a socket that a killed process has left, and fails
// when another process answers at the socket.
func Listen(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%w: %s exists and is no socket", errSocket, path)
		}
		if c, err := net.DialTimeout("unix", path, answerLimit); err == nil {
			c.Close()
			return nil, fmt.Errorf("%w: another simulator shows its world at %s", errSocket, path)
		}
		os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSocket, err)
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

// show answers one client until its connection ends.
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

// answer is a view in the form that is sent.
type answer struct {
	Version, At                               int64
	Q                                         [sim.DOF]float64
	Target, Post                              sim.Point
	Reached, Collided, Timeouts, SkippedTicks int64
}

func appendView(dst []byte, v *sim.View) []byte {
	dst, _ = binary.Append(dst, binary.LittleEndian, answer{ // fails only for types without a fixed size
		Version:      version,
		At:           int64(v.At),
		Q:            v.Q,
		Target:       v.Target,
		Post:         v.Post,
		Reached:      int64(v.Reached),
		Collided:     int64(v.Collided),
		Timeouts:     int64(v.Timeouts),
		SkippedTicks: v.SkippedTicks,
	})
	return dst
}

// parseView parses an answer of viewBytes bytes.
func parseView(b []byte) (v sim.View, err error) {
	var a answer
	if _, err := binary.Decode(b, binary.LittleEndian, &a); err != nil {
		return v, fmt.Errorf("scene: %w", err)
	}
	if a.Version != version {
		return v, fmt.Errorf("scene: version %d, want %d: both programs have to be of one build", a.Version, version)
	}
	v = sim.View{At: rt.Instant(a.At), Q: a.Q, Target: a.Target, Post: a.Post, Score: sim.Score{
		Reached:      int(a.Reached),
		Collided:     int(a.Collided),
		Timeouts:     int(a.Timeouts),
		SkippedTicks: a.SkippedTicks,
	}}
	for _, f := range []float64{v.Q[0], v.Q[2], v.Target.X, v.Target.Y, v.Post.X, v.Post.Y} {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return v, errors.New("scene: a place that is no number")
		}
	}
	return v, nil
}

// Viewer receives the views of a world that another process simulates.
//
// Owner: one thread; any thread may call Close.
type Viewer struct {
	conn net.Conn
	buf  [viewBytes]byte
}

// Dial connects to the world that is shown at path.
func Dial(path string) (*Viewer, error) {
	c, err := net.DialTimeout("unix", path, answerLimit)
	if err != nil {
		return nil, fmt.Errorf("scene: no program shows a world at %s: %w", path, err)
	}
	return &Viewer{conn: c}, nil
}

// View returns the present view. After an error the viewer is unusable.
func (e *Viewer) View() (sim.View, error) {
	e.conn.SetDeadline(time.Now().Add(answerLimit))
	if _, err := e.conn.Write([]byte{'\n'}); err != nil {
		return sim.View{}, err
	}
	if _, err := io.ReadFull(e.conn, e.buf[:]); err != nil {
		return sim.View{}, err
	}
	return parseView(e.buf[:])
}

// Close closes the connection, which also ends a running View.
func (e *Viewer) Close() error { return e.conn.Close() }
