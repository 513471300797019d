package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// End is one end of a pair, in a process of its own.
type End struct {
	Subject  string `arg:"" enum:"native,tcp"`
	Role     string `arg:"" enum:"ping,pong"`
	How      string `arg:"" enum:"listen,connect"`
	Endpoint string `arg:""` // tcp/host:port
	Key      string `arg:""` // key of this pair
}

// answer is one line of output of any end.
type answer struct {
	NS       []int64 `json:"ns,omitempty"`       // time of each round trip, or of the whole flood
	Received *uint64 `json:"received,omitempty"` // messages of a flood that arrived
	Mallocs  *uint64 `json:"mallocs,omitempty"`  // objects allocated meanwhile, or so far
}

// echo is the other end, as a ping uses it. Owner: the ping's goroutine.
type echo interface {
	// trip sends payload and returns when the same number of bytes has come back.
	trip(payload []byte) error
	// send sends payload without an answer, for a flood: the other end counts the messages.
	send(payload []byte) error
	// count waits until the other end has read all sent messages, and returns how many it read.
	count() (uint64, error)
}

// Run serves commands from in until it ends:
//
//	rtt BYTES COUNT    times COUNT round trips
//	flood BYTES COUNT  times the way of COUNT messages
//	mallocs            returns how many objects this process has allocated so far
func (e End) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	open := e.native
	if e.Subject == tcp {
		open = e.tcp
	}
	other, stop, err := open(ctx)
	if err != nil {
		return err
	}
	defer stop()
	enc := json.NewEncoder(out)
	if err := enc.Encode(answer{}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		a, err := execute(other, lines.Text())
		if err != nil {
			return err
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// The bounds of one command. A test compares minBytes and maxBytes with the range of --size.
const (
	minBytes = 8 // a message of a single byte ends a flood
	maxBytes = 8 << 20
	maxCount = 1 << 20
)

func execute(other echo, line string) (answer, error) {
	var what string
	var size, count int
	if n, _ := fmt.Sscan(line, &what, &size, &count); n >= 1 && what == "mallocs" {
		n := mallocs()
		return answer{Mallocs: &n}, nil
	} else if n != 3 || size < minBytes || size > maxBytes || count < 1 || count > maxCount || other == nil {
		return answer{}, fmt.Errorf("bench: command %q, want rtt, flood or mallocs with bytes and count", line)
	}
	payload := make([]byte, size)
	a := answer{NS: make([]int64, 0, count)}
	run := flood
	if what == "rtt" {
		run = measureRoundTrips
	}
	before := mallocs()
	err := run(other, payload, count, &a)
	n := mallocs() - before
	a.Mallocs = &n
	return a, err
}

// mallocs returns how many objects this process has allocated so far.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func measureRoundTrips(other echo, payload []byte, count int, a *answer) error {
	for range count {
		sent := time.Now()
		if err := other.trip(payload); err != nil {
			return err
		}
		a.NS = append(a.NS, time.Since(sent).Nanoseconds())
	}
	return nil
}

func flood(other echo, payload []byte, count int, a *answer) error {
	began := time.Now()
	for range count {
		if err := other.send(payload); err != nil {
			return err
		}
	}
	n, err := other.count()
	a.NS, a.Received = append(a.NS, time.Since(began).Nanoseconds()), &n
	return err
}
