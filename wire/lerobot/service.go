// Package lerobot speaks the protocol of LeRobot's released policy server and robot client: the gRPC
// service transport.AsyncInference (service.go), whose messages carry pickles (messages.go), read and
// written by wire/pickle.
//
// Source: LeRobot 0.6.1, src/lerobot/transport and src/lerobot/async_inference.
package lerobot

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// piece is the most bytes of data in a message. A longer observation has several messages.
const piece = 2 << 20

// State marks a piece as the beginning, the middle or the end of an observation.
type State uint64

// The states. The only piece of a short observation has the state end.
const (
	begin  State = 1
	middle State = 2
	end    State = 3
)

// Message is any message of the service. Empty has no field; PolicySetup and Actions have the data in field 1;
// Observation has the state in field 1 and the data in field 2.
type Message struct {
	State State // state of an Observation; 0: another message
	Data  []byte
}

// errMessage marks bytes that are no message of the service.
var errMessage = fmt.Errorf("%w of %s", ErrMessage, service)

// Codec encodes messages for grpc.ForceCodecV2.
type Codec struct{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*Message)
	if !ok {
		return nil, fmt.Errorf("%w: %T", errMessage, v)
	}
	head := make([]byte, 0, 16)
	field := protowire.Number(1)
	if m.State != 0 {
		head = protowire.AppendVarint(protowire.AppendTag(head, 1, protowire.VarintType), uint64(m.State))
		field = 2
	}
	if len(m.Data) == 0 {
		return mem.BufferSlice{mem.SliceBuffer(head)}, nil
	}
	head = protowire.AppendVarint(protowire.AppendTag(head, field, protowire.BytesType), uint64(len(m.Data)))
	return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(m.Data)}, nil
}

// Unmarshal implements encoding.CodecV2. Data is a copy.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*Message)
	if !ok {
		return fmt.Errorf("%w: %T", errMessage, v)
	}
	*m = Message{}
	return m.parse(data.Materialize())
}

func (m *Message) parse(src []byte) error {
	for len(src) > 0 {
		number, kind, n := protowire.ConsumeTag(src)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMessage, protowire.ParseError(n))
		}
		src = src[n:]
		switch {
		case kind == protowire.BytesType && number <= 2:
			m.Data, n = protowire.ConsumeBytes(src)
		case kind == protowire.VarintType && number == 1:
			var state uint64
			state, n = protowire.ConsumeVarint(src)
			m.State = State(state)
		default:
			n = protowire.ConsumeFieldValue(number, kind, src)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errMessage, protowire.ParseError(n))
		}
		src = src[n:]
	}
	return nil
}

var _ encoding.CodecV2 = Codec{}

const service = "transport.AsyncInference"

// Paths of the calls.
const (
	PathReady        = "/" + service + "/Ready"
	PathInstructions = "/" + service + "/SendPolicyInstructions"
	PathObservations = "/" + service + "/SendObservations"
	PathActions      = "/" + service + "/GetActions"
)

// Next reads the next message of a call into the given buffer; the message's Data is a part of this buffer. It returns
// io.EOF after the last message, and ErrTooLarge for a message that does not fit into the buffer.
type Next func(into []byte) (Message, error)

// Call returns the data of the answer to a call of a robot client. An error of package status keeps its code.
type Call func(ctx context.Context, path string, next Next) (out []byte, err error)

// NewServer returns a server of unencrypted gRPC calls. It does not use package grpc, whose server receives up to 4 MiB
// of each call before the function answer can choose the memory for the message.
func NewServer(answer Call) *http.Server {
	s := &http.Server{Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := answer(r.Context(), r.URL.Path, func(into []byte) (Message, error) { return receive(r.Body, into) })
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		if err == nil {
			_, _ = w.Write(framed(out)) // after an error the client's connection ends
		}
		s, ok := status.FromError(err)
		if !ok {
			s = status.FromContextError(err)
		}
		h.Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(s.Code())))
		h.Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(s.Message()))
	})
	return s
}

// prefixBytes is the size of the prefix of each message in a call. The prefix reports whether the message is
// compressed, and its size.
const prefixBytes = 5

func receive(r io.Reader, into []byte) (m Message, err error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return m, err
	}
	n := int64(binary.BigEndian.Uint32(prefix[1:]))
	switch {
	case prefix[0] != 0:
		return m, status.Error(codes.Unimplemented, "a compressed message: this server takes uncompressed ones")
	case n > int64(len(into)):
		return m, fmt.Errorf("%w: a message of %d bytes where %d are left", ErrTooLarge, n, len(into))
	}
	if _, err := io.ReadFull(r, into[:n]); err != nil {
		return m, err
	}
	return m, m.parse(into[:n])
}

// framed returns a message of a call.
func framed(data []byte) []byte {
	m, _ := Codec{}.Marshal(&Message{Data: data}) // never fails for a Message
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(m.Len())), m.Materialize()...)
}
