package zenoh

import (
	"fmt"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
)

// dataOf is a sample's body on the wire; its slices are borrowed.
func dataOf(s *Session, sample wire.Sample) (codec.Data, error) {
	d := codec.Data{Delete: sample.Delete, Payload: sample.Payload, Attachment: sample.Attachment}
	if sample.Delete && (len(sample.Payload) > 0 || sample.Encoding != wire.Encoding{}) {
		return d, fmt.Errorf("wire/zenoh: deletion of %s with %d bytes of payload or an encoding, want neither", sample.Key, len(sample.Payload))
	}
	var err error
	if d.Encoding, err = encodingOf(sample.Encoding); err != nil {
		return d, err
	}
	if sample.Time != 0 {
		d.Timestamp = codec.Timestamp{Time: sample.Time, ID: s.zid}
	}
	return d, nil
}

func encodingOf(e wire.Encoding) (codec.Encoding, error) {
	if len(e.Schema) > codec.MaxSchema {
		return codec.Encoding{}, fmt.Errorf("wire/zenoh: encoding schema of %d bytes, want at most %d", len(e.Schema), codec.MaxSchema)
	}
	return codec.Encoding{ID: uint32(e.ID), Schema: []byte(e.Schema)}, nil
}

// texts keeps the last text that was made of lent bytes, so that the same bytes
// again cost nothing. Owner: one goroutine.
type texts struct{ last string }

func (t *texts) of(b []byte) string {
	if string(b) != t.last {
		t.last = string(b)
	}
	return t.last
}

// sampleOf is what callbacks get of a body; its slices are lent.
func (t *texts) sampleOf(key string, d *codec.Data, q codec.QoS, reliable bool) wire.Sample {
	return wire.Sample{Key: key, Payload: d.Payload, Attachment: d.Attachment, Time: d.Timestamp.Time, Delete: d.Delete,
		Encoding: wire.Encoding{ID: uint16(d.Encoding.ID), Schema: t.of(d.Encoding.Schema)},
		QoS:      wire.QoS{Priority: wire.Priority(q.Priority()), Block: q&codec.Block != 0, Express: q&codec.Express != 0, Reliable: reliable}}
}
