// Package sessiontest tests everything that wire.Session promises, as one suite for every
// implementation and every network in between:
//
//	func TestContract(t *testing.T) {
//		sessiontest.Run(t, func(t *testing.T) sessiontest.Net {
//			left, right := ... // two open sessions that reach each other
//			return sessiontest.Net{Left: left, Right: right}
//		})
//	}
//
// Run calls its function once for every case, and runs each case in both directions, so the
// function should be cheap: keep routers running across calls and only open sessions. It registers
// its own clean-up with t; closing a session a second time must be harmless there.
//
// The cases wait through the interface itself: for a Get's replies, or for Tokens. Time is measured only for calls that
// must not block, with generous bounds.
//
// Net lists the abilities that an implementation lacks; the cases that need one of them are skipped
// with a message.
package sessiontest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// Net has two sessions on one network.
type Net struct {
	Left, Right wire.Session

	// Cut breaks every link between the two sessions without a Close, as a network does. Then the sessions must find
	// each other again. If Cut is nil, the network cannot be cut.
	Cut func()

	LeftLacks, RightLacks Lacks
}

// Lacks lists the abilities that a session does not have.
type Lacks struct {
	Latest         bool // PutLatest does the same as Put and replaces nothing
	LongAttachment bool // an attachment sent in fragments is lost
	SharedTokens   bool // if a token has two holders, watchers report its end when one of them ends, or report it twice
	EndedTokens    bool // a new watcher may report a token that has just ended
}

// pair is a Net seen in one direction.
type pair struct {
	*testing.T
	from, to end
	cut      func() // see Net.Cut
}

// end is one session of a pair.
type end struct {
	wire.Session
	Lacks
	t *testing.T
}

type testCase struct {
	name string
	run  func(p pair)
}

// Run runs the whole suite with the sessions that the function open returns.
func Run(t *testing.T, open func(t *testing.T) Net) {
	t.Parallel()
	for _, group := range [][]testCase{pubsub, congestion, queries, tokens, life} {
		runCases(t, group, open)
	}
}

// Carried runs the cases that depend on the transport of a link: messages and replies of every size, congestion, and
// lost and new links.
func Carried(t *testing.T, open func(t *testing.T) Net) {
	t.Parallel()
	runCases(t, pubsub[:1], open)
	runCases(t, congestion, open)
	runCases(t, []testCase{sizesOfReplies}, open)
	runCases(t, life, open)
}

// runCases runs each case in both directions.
func runCases(t *testing.T, cases []testCase, open func(t *testing.T) Net) {
	for _, c := range cases {
		t.Run(c.name+", left to right", func(t *testing.T) {
			n := open(t)
			pair{t, end{n.Left, n.LeftLacks, t}, end{n.Right, n.RightLacks, t}, n.Cut}.run(c)
		})
		t.Run(c.name+", right to left", func(t *testing.T) {
			n := open(t)
			pair{t, end{n.Right, n.RightLacks, t}, end{n.Left, n.LeftLacks, t}, n.Cut}.run(c)
		})
	}
}

// run runs a case when the tokens of earlier cases have ended. A router may notice the end of their sessions late.
func (p pair) run(c testCase) {
	for _, s := range []end{p.from, p.to} {
		rttest.Eventually(p.T, "the end of the tokens of earlier cases", func() bool {
			verbatim, err1 := s.Tokens(p.Context(), "@c/**", time.Second)
			plain, err2 := s.Tokens(p.Context(), "c/**", time.Second)
			return err1 == nil && err2 == nil && len(verbatim)+len(plain) == 0
		})
	}
	c.run(p)
}

// blocking is a QoS under which no message is dropped.
var blocking = wire.QoS{Priority: wire.Data, Reliable: true, Block: true}

func (e end) publisher(key string, qos wire.QoS) wire.Publisher {
	return rttest.OrPanic(e.Publisher(key, qos))
}

func (e end) subscribe(expr string, deposit func(wire.Sample)) wire.Declaration {
	return rttest.OrPanic(e.Subscribe(expr, deposit))
}

func (e end) queryable(expr string, answer func(wire.Query)) wire.Declaration {
	return rttest.OrPanic(e.Queryable(expr, answer))
}

func (e end) token(key string) wire.Declaration { return rttest.OrPanic(e.Token(key)) }

// matched returns a publisher on key as soon as its session knows the other side's subscribers.
func (p pair) matched(s end, key string, qos wire.QoS) wire.Publisher {
	p.Helper()
	pub := s.publisher(key, qos)
	p.known()
	return pub
}

var tokensMade atomic.Uint64

// known waits until each end has the other end's earlier declarations. It uses a token, which
// arrives after them.
func (p pair) known() {
	p.Helper()
	for _, way := range [][2]end{{p.from, p.to}, {p.to, p.from}} {
		key := fmt.Sprintf("@c/known/%d", tokensMade.Add(1))
		token := way[0].token(key)
		rttest.Eventually(p.T, "the other end's declarations", func() bool {
			all, err := way[1].Tokens(p.Context(), key, time.Second)
			return err == nil && len(all) > 0
		})
		token.Undeclare()
	}
}

// Basket collects samples with copies of their lent bytes.
type Basket struct {
	mu  sync.Mutex
	all []wire.Sample
}

// Deposit adds a sample.
func (b *Basket) Deposit(s wire.Sample) {
	s.Payload, s.Attachment = bytes.Clone(s.Payload), bytes.Clone(s.Attachment)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, s)
}

// Samples returns the samples so far.
func (b *Basket) Samples() []wire.Sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// Count returns the number of samples so far.
func (b *Basket) Count() int { return len(b.Samples()) }

// await waits for n samples at least.
func (b *Basket) await(p pair, n int) {
	p.Helper()
	rttest.Eventually(p.T, fmt.Sprint(n, " samples"), func() bool { return b.Count() >= n })
}

// Keys lists the keys of the samples, sorted.
func (b *Basket) Keys() []string {
	keys := []string{}
	for _, s := range b.Samples() {
		keys = append(keys, s.Key)
	}
	slices.Sort(keys)
	return keys
}

// settled waits until no sample has arrived for a while, and returns the number of samples.
func (b *Basket) settled() int {
	n := -1
	for n != b.Count() {
		n = b.Count()
		time.Sleep(150 * time.Millisecond)
	}
	return n
}

// pattern returns n bytes, each of which depends on its position and on the sample's seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

const numberBytes = 8 // each payload begins with the sample's number

func number(b []byte, n int) { binary.LittleEndian.PutUint64(b, uint64(n)) }
func numberOf(b []byte) int  { return int(binary.LittleEndian.Uint64(b)) }

// FreeEndpoint returns an endpoint without a listener. Its port is below the ports that the kernel gives to dialling
// sockets, because another socket could take such a port before the test listens on it.
func FreeEndpoint(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err == nil {
			defer l.Close()
			return "tcp/" + l.Addr().String()
		}
	}
	t.Fatal("no free port in a hundred")
	return ""
}
