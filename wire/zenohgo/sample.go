//go:build zenohc

package zenohgo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BooleanCat/option"
	zenohc "github.com/eclipse-zenoh/zenoh-go/zenoh"

	"edgert/wire"
)

// custom is the id of an encoding that no table has; all of it is schema.
const custom = 0xffff

// encodings are the names by which the binding knows the table.
//
// Source: reference of Zenoh's encodings; held by the contract suite.
var encodings = strings.Fields(`zenoh/bytes zenoh/string zenoh/serialized application/octet-stream text/plain
application/json text/json application/cdr application/cbor application/yaml text/yaml text/json5
application/python-serialized-object application/protobuf application/java-serialized-object
application/openmetrics-text image/png image/jpeg image/gif image/bmp image/webp application/xml
application/x-www-form-urlencoded text/html text/xml text/css text/javascript text/markdown text/csv
application/sql application/coap-payload application/json-patch+json application/json-seq application/jsonpath
application/jwt application/mp4 application/soap+xml application/yang audio/aac audio/flac audio/mp4 audio/ogg
audio/vorbis video/h261 video/h263 video/h264 video/h265 video/h266 video/mp4 video/ogg video/raw video/vp8 video/vp9`)

const maxSchema = 255

func encodingOf(e zenohc.Encoding) wire.Encoding {
	text := e.String()
	name, schema, _ := strings.Cut(text, ";")
	for id, known := range encodings {
		if known == name {
			return wire.Encoding{ID: uint16(id), Schema: schema}
		}
	}
	return wire.Encoding{ID: custom, Schema: text}
}

func encodingTo(e wire.Encoding) (zenohc.Encoding, error) {
	switch {
	case len(e.Schema) > maxSchema:
		return zenohc.Encoding{}, fmt.Errorf("wire/zenohgo: a schema of %d bytes, want at most %d", len(e.Schema), maxSchema)
	case e.ID == custom:
		return zenohc.NewEncodinFromString(e.Schema), nil
	case int(e.ID) >= len(encodings):
		return zenohc.Encoding{}, fmt.Errorf("wire/zenohgo: encoding %d, want at most %d", e.ID, len(encodings)-1)
	case e.Schema != "":
		return zenohc.NewEncodinFromString(encodings[e.ID] + ";" + e.Schema), nil
	}
	return zenohc.NewEncodinFromString(encodings[e.ID]), nil
}

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

func timeOf(o option.Option[zenohc.TimeStamp]) uint64 {
	if t, ok := o.Value(); ok {
		return t.Time()
	}
	return 0
}

// optional is bytes that may be absent.
func optional(b []byte) option.Option[zenohc.ZBytes] {
	if b == nil {
		return option.None[zenohc.ZBytes]()
	}
	return some(zenohc.NewZBytes(append([]byte{}, b...)))
}

func sampleOf(m *zenohc.Sample) wire.Sample {
	return wire.Sample{
		Key: m.KeyExpr().String(), Payload: m.Payload().Bytes(), Attachment: bytesOf(m.Attachement()),
		Encoding: encodingOf(m.Encoding()), Time: timeOf(m.TimeStamp()), Delete: m.Kind() == zenohc.SampleKindDelete,
		QoS: wire.QoS{Priority: wire.Priority(m.Priority()), Reliable: m.Reliability() == zenohc.ReliabilityReliable,
			Block: m.CongestionControl() == zenohc.CongestionControlBlock, Express: m.IsExpress()},
	}
}

var (
	errTime       = errors.New("wire/zenohgo: a time was given, but the binding stamps with its own clock only")
	errAttachment = errors.New("wire/zenohgo: a deletion with an attachment, which the binding cannot send")
	errPayload    = errors.New("wire/zenohgo: a deletion with a payload, want none")
)

// refuse says what of a sample the binding cannot send.
func refuse(m wire.Sample, deletesBare bool) error {
	switch {
	case m.Time != 0:
		return errTime
	case m.Delete && len(m.Payload) > 0:
		return errPayload
	case m.Delete && m.Attachment != nil && deletesBare:
		return errAttachment
	}
	return nil
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
	opts := zenohc.PublisherOptions{IsExpress: q.Express, CongestionControl: some(zenohc.CongestionControlDrop),
		Priority: some(zenohc.PriorityData), Reliability: some(zenohc.ReliabilityBestEffort)}
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
	return p.PutWith(wire.Sample{Payload: payload, Attachment: attachment})
}

// PutLatest is Put.
func (p *publisher) PutLatest(payload, attachment []byte) (bool, error) {
	return false, p.Put(payload, attachment)
}

// PutWith sends a sample or deletes the key.
func (p *publisher) PutWith(m wire.Sample) error {
	if err := refuse(m, true); err != nil {
		return err
	}
	e, err := encodingTo(m.Encoding)
	if err != nil {
		return err
	}
	return p.s.call(func() error {
		if m.Delete {
			return p.pub.Delete(nil)
		}
		opts := zenohc.PublisherPutOptions{Attachement: optional(m.Attachment)}
		if m.Encoding != (wire.Encoding{}) {
			opts.Encoding = some(e)
		}
		return p.pub.Put(zenohc.NewZBytes(append([]byte{}, m.Payload...)), &opts)
	})
}

// Matching reports whether the library knows of a subscriber.
func (p *publisher) Matching() (yes bool) {
	p.s.call(func() error {
		status, err := p.pub.GetMatchingStatus()
		yes = err == nil && status.Matching
		return err
	})
	return yes
}
