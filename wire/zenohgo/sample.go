//go:build zenohc

package zenohgo

import (
	"fmt"
	"strings"

	"github.com/BooleanCat/option"
	zenohc "github.com/eclipse-zenoh/zenoh-go/zenoh"

	"github.com/edge-rt/edge-rt/wire"
)

func bytesOf(o option.Option[zenohc.ZBytes]) []byte {
	b, ok := o.Value()
	if !ok {
		return nil
	}
	if b.Len() == 0 {
		return []byte{}
	}
	return b.Bytes()
}

// optional returns bytes that may be absent.
func optional(b []byte) option.Option[zenohc.ZBytes] {
	if b == nil {
		return option.None[zenohc.ZBytes]()
	}
	return some(zenohc.NewZBytes(append([]byte{}, b...)))
}

type publisher struct {
	*declared
	pub zenohc.Publisher
}

// Publisher declares a publisher.
func (s *Session) Publisher(key string, q wire.QoS) (wire.Publisher, error) {
	if strings.Contains(key, "*") {
		return nil, fmt.Errorf("wire/zenohgo: publisher on %q, want a key without wildcards", key)
	}
	opts := zenohc.PublisherOptions{
		IsExpress:         q.Express,
		CongestionControl: some(zenohc.CongestionControlDrop),
		Priority:          some(zenohc.PriorityData),
		Reliability:       some(zenohc.ReliabilityBestEffort),
	}
	if q.Block {
		opts.CongestionControl = some(zenohc.CongestionControlBlock)
	}
	if q.Priority != 0 {
		opts.Priority = some(zenohc.Priority(q.Priority))
	}
	if q.Reliable {
		opts.Reliability = some(zenohc.ReliabilityReliable)
	}
	p := new(publisher)
	d, err := s.declare(key, func(d *declared, k zenohc.KeyExpr) (err error) {
		p.pub, err = s.session.DeclarePublisher(k, &opts)
		d.undeclare = p.pub.Undeclare
		return err
	})
	if err != nil {
		return nil, err
	}
	p.declared = d
	return p, nil
}

// Put sends a sample.
func (p *publisher) Put(payload, attachment []byte) error {
	return p.s.call(func() error {
		return p.pub.Put(zenohc.NewZBytes(append([]byte{}, payload...)),
			&zenohc.PublisherPutOptions{Attachement: optional(attachment)})
	})
}

// PutLatest is Put.
func (p *publisher) PutLatest(payload, attachment []byte) (bool, error) {
	return false, p.Put(payload, attachment)
}
