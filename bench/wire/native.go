package wire

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// pingQoS is the QoS of all subjects: reliable, without dropped messages, and no message waits
// until others fill a batch.
var pingQoS = wire.QoS{
	Priority: wire.Data,
	Reliable: true,
	Block:    true,
	Express:  true,
}

const (
	openLimit  = 10 * time.Second
	floodLimit = time.Minute
)

func (e End) native(ctx context.Context) (echo, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	cfg := zenoh.Config{Connect: []string{e.Endpoint}}
	if e.How == "listen" {
		cfg = zenoh.Config{Listen: []string{e.Endpoint}}
	}
	s, err := zenoh.Open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { s.Close() }
	if e.Role == "pong" {
		err = e.pong(s)
		return nil, stop, err
	}
	p := &nativePing{back: make(chan uint64, 1)}
	if p.pings, err = s.Publisher(e.Key+"/ping", pingQoS); err == nil {
		p.floods, err = s.Publisher(e.Key+"/flood", pingQoS)
	}
	if err == nil {
		_, err = s.Subscribe(e.Key+"/pong", p.deposit)
	}
	if err == nil {
		err = p.warm(ctx)
	}
	return p, stop, err
}

func (e End) pong(s wire.Session) error {
	back, err := s.Publisher(e.Key+"/pong", pingQoS)
	if err != nil {
		return err
	}
	if _, err := s.Subscribe(e.Key+"/ping", func(m wire.Sample) { back.Put(m.Payload, nil) }); err != nil {
		return err
	}
	var count atomic.Uint64
	sum := make([]byte, 8)
	_, err = s.Subscribe(e.Key+"/flood", func(m wire.Sample) {
		if len(m.Payload) != 1 {
			count.Add(1)
			return
		}
		binary.LittleEndian.PutUint64(sum, count.Swap(0))
		back.Put(sum, nil)
	})
	return err
}

type nativePing struct {
	pings, floods wire.Publisher
	back          chan uint64 // gets the first bytes of each returned message
}

func (p *nativePing) deposit(m wire.Sample) {
	var first uint64
	if len(m.Payload) >= 8 {
		first = binary.LittleEndian.Uint64(m.Payload)
	}
	select {
	case p.back <- first:
	default: // a late answer to a ping that the method warm has sent
	}
}

// warm sends pings until one comes back, and then waits until no late ping has come for a while.
func (p *nativePing) warm(ctx context.Context) error {
	for {
		if err := p.pings.Put(make([]byte, 8), nil); err != nil {
			return err
		}
		if _, err := p.await(100 * time.Millisecond); err == nil {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("bench: no ping came back within %v", openLimit)
		}
	}
	for {
		if _, err := p.await(300 * time.Millisecond); err != nil {
			return nil
		}
	}
}

func (p *nativePing) await(limit time.Duration) (uint64, error) {
	select {
	case n := <-p.back:
		return n, nil
	case <-time.After(limit):
		return 0, fmt.Errorf("bench: a message did not come back within %v", limit)
	}
}

func (p *nativePing) trip(payload []byte) error {
	if err := p.pings.Put(payload, nil); err != nil {
		return err
	}
	<-p.back // waits without a limit, since bench ends a process that takes too long
	return nil
}

func (p *nativePing) send(payload []byte) error { return p.floods.Put(payload, nil) }

func (p *nativePing) count() (uint64, error) {
	if err := p.send([]byte{0}); err != nil {
		return 0, err
	}
	return p.await(floodLimit)
}
