// Package lerobot speaks the protocol of LeRobot's released policy server and robot client: the gRPC
// service transport.AsyncInference (service.go), whose messages carry pickles (messages.go), read and
// written by wire/pickle.
//
// Source: LeRobot 0.6.1, src/lerobot/transport and src/lerobot/async_inference.
package lerobot

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Sizes of the protocol.
const (
	// MaxMessage is the most bytes of one gRPC message, by the client's and server's settings.
	MaxMessage = 4 << 20
	// piece is the most bytes of a message's data; more data travels in several messages.
	piece = 2 << 20
)

// State is the place of a piece in an observation.
type State uint64

// The states. An observation of one piece is an End alone.
const (
	begin  State = 1
	middle State = 2
	end    State = 3
)

// Message is any message of the service: Empty has no field, PolicySetup and Actions have the data in
// field 1, Observation the state in field 1 and the data in field 2.
type Message struct {
	State State // of an Observation; 0: another message
	Data  []byte
}

// errMessage marks bytes that are no message of the service.
var errMessage = errors.New("lerobot: not a message of transport.AsyncInference")

// Codec encodes messages for grpc.ForceServerCodecV2 and grpc.ForceCodecV2.
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

// Server answers the calls of a robot client.
type Server interface {
	Ready(context.Context) error
	SendPolicyInstructions(context.Context, []byte) error
	SendObservations(ctx context.Context, next func() (*Message, error)) error
	GetActions(context.Context) ([]byte, error) // empty: there was no observation
}

const service = "transport.AsyncInference"

// Paths of the calls.
const (
	PathReady        = "/" + service + "/Ready"
	PathInstructions = "/" + service + "/SendPolicyInstructions"
	PathObservations = "/" + service + "/SendObservations"
	PathActions      = "/" + service + "/GetActions"
)

// Register adds the service to a gRPC server that uses Codec.
func Register(to *grpc.Server, s Server) {
	unary := func(name string, call func(context.Context, []byte) ([]byte, error)) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			var in Message
			if err := decode(&in); err != nil {
				return nil, err
			}
			out, err := call(ctx, in.Data)
			if err != nil {
				return nil, err
			}
			return &Message{Data: out}, nil
		}}
	}
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		Methods: []grpc.MethodDesc{
			unary("Ready", func(ctx context.Context, _ []byte) ([]byte, error) { return nil, s.Ready(ctx) }),
			unary("SendPolicyInstructions", func(ctx context.Context, in []byte) ([]byte, error) {
				return nil, s.SendPolicyInstructions(ctx, in)
			}),
		},
		Streams: []grpc.StreamDesc{{
			// not unary, so that the bytes of its empty request are never received, whatever a client sends
			StreamName: "GetActions",
			Handler: func(_ any, stream grpc.ServerStream) error {
				out, err := s.GetActions(stream.Context())
				if err != nil {
					return err
				}
				return stream.SendMsg(&Message{Data: out})
			},
		}, {
			StreamName:    "SendObservations",
			ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				err := s.SendObservations(stream.Context(), func() (*Message, error) {
					m := new(Message)
					return m, stream.RecvMsg(m)
				})
				if err != nil {
					return err
				}
				return stream.SendMsg(new(Message))
			},
		}},
	}, nil)
}
