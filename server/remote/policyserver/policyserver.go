// Package policyserver runs a policy in LeRobot's released policy_server, whose only client
// lean-server is. The server does not describe its policy, so the manifest describes it. The
// server's answers are pickles. wire/pickle reads them, and accepts only opcodes and names from a
// fixed table.
package policyserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/wire/lerobot"
	"github.com/edge-rt/edge-rt/wire/pickle"
)

const (
	// loadTime bounds the time for loading the policy. The server loads it when a client connects.
	loadTime = 10 * time.Minute
	// firstTime bounds the first inference of a connection, which uses blank inputs.
	firstTime = 2 * time.Minute
	// answersMost is the largest number of answers that one inference reads until its own answer
	// comes. The others are answers to earlier observations.
	answersMost = 4
	// actionsMost bounds the bytes of an answer, in which each action may contain the whole chunk.
	actionsMost = 64 << 20
	// taskKey is the name of the task in an observation.
	taskKey = "task"
)

// server describes a policy_server and the policy that the server has to load.
type server struct {
	url          string
	meta         policy.Meta
	keys         []string // names of the cameras in an observation
	instructions []byte
}

// link is a connection to a policy_server, which has loaded the policy.
type link struct {
	*grpc.ClientConn
	step int64 // number of the newest observation
}

// Ended implements remote.Link.
func (*link) Ended() <-chan struct{} { return nil }

// Why implements remote.Link.
func (*link) Why() error { return nil }

// Open connects to the manifest's server and has it load the policy.
func Open(ctx context.Context, cfg *manifest.Config, log *slog.Logger) (*remote.Policy, error) {
	meta, asked, keys, err := describe(cfg)
	if err != nil {
		return nil, err
	}
	s := &server{
		url:          string(cfg.Model.URL),
		meta:         meta,
		keys:         keys,
		instructions: asked.Encode(),
	}
	runtime, err := remote.Open(ctx, remote.Protocol[*link]{
		Server:   s.name(),
		Meta:     &s.meta,
		First:    firstTime,
		Log:      log,
		Dial:     s.dial,
		Ask:      s.ask,
		IsAnswer: func(err error) bool { return errors.Is(err, errAnswer) || errors.Is(err, errNothing) },
	})
	reply, replied := status.FromError(err)
	switch {
	case err == nil:
	case strings.Contains(reply.Message(), "No module named 'lerobot.async_inference'"):
		return nil, cfg.Errorf("model.url", "%s is of a LeRobot before 0.4: update LeRobot there", s.name())
	case errors.Is(err, remote.ErrBlank):
		return nil, cfg.Errorf("model.inputs", "%s: %w", s.name(), err)
	case replied && reply.Code() == codes.Unknown:
		return nil, cfg.Errorf("model", "%s does not run the policy: %s: compare "+
			"model.policy_type, model.repo_or_path and model.device with it", s.name(), reply.Message())
	case replied && reply.Code() == codes.Unimplemented:
		return nil, cfg.Errorf("model.url", "%s is not LeRobot's: %s", s.name(), reply.Message())
	default:
		return nil, &remote.Away{Server: s.name(), Err: err}
	}
	sum := sha256.Sum256(append([]byte(s.url), s.instructions...))
	return &remote.Policy{
		Meta:      meta,
		Runtime:   runtime,
		SHA256:    hex.EncodeToString(sum[:]),
		Where:     s.url,
		Version:   manifest.RuntimeLeRobotAsync,
		Program:   s.url,
		Device:    "cpu", // device of the work in this process
		ReadsTask: true,
		MaxBatch:  1,
	}, nil
}

func (s *server) name() string { return "the policy_server at " + s.url }

// checkKeys returns an error for the first missing key, or for an address of another form.
func checkKeys(cfg *manifest.Config) error {
	model := &cfg.Model
	for _, key := range []struct{ name, value, reason string }{
		{"policy_type", model.PolicyType, "LeRobot's name of the policy's type, such as act"},
		{"repo_or_path", model.RepoOrPath,
			"the checkpoint as the policy_server finds it: a folder or a name on the hub"},
	} {
		if key.value == "" {
			return cfg.Missing(key.name, key.reason+"; the policy_server does not report it")
		}
	}
	host, port, err := net.SplitHostPort(string(model.URL))
	if _, failed := strconv.ParseUint(port, 10, 16); err != nil || failed != nil || host == "" ||
		strings.Contains(host, "@") {
		return cfg.Errorf("model.url", "model.url is '%s', want HOST:PORT, the address of the policy_server, without "+
			"a scheme such as http:// and without a user", model.URL)
	}
	return nil
}

// describe returns the policy that the manifest describes, the request for it, and the names of the
// cameras.
func describe(cfg *manifest.Config) (m policy.Meta, asked *lerobot.Policy, keys []string, err error) {
	if err := checkKeys(cfg); err != nil {
		return m, nil, nil, err
	}
	model, in := &cfg.Model, &cfg.Model.Inputs
	if m, err = remote.Describe(cfg, model.PolicyType, cmp.Or(model.ID, cfg.Named())); err != nil {
		return m, nil, nil, err
	}
	asked = &lerobot.Policy{
		Type:            model.PolicyType,
		Path:            cfg.Named(),
		ActionsPerChunk: in.ChunkSize,
		Device:          model.Device,
		Features: []lerobot.Feature{{
			Name:  "observation.state",
			Kind:  "float32",
			Shape: []int{len(m.StateNames)},
			Names: m.StateNames,
		}},
	}
	for _, c := range in.Cameras {
		h, w := cmp.Or(c.Height, 480), cmp.Or(c.Width, 640)
		key := cmp.Or(c.Key, c.Name)
		if slices.Contains(keys, key) || slices.Contains(m.StateNames, key) || key == taskKey {
			return m, nil, nil, cfg.Errorf("model.inputs.cameras", "model.inputs.cameras: the key %s of %s is another "+
				"entry of an observation, too: want a separate key for each camera", key, c.Name)
		}
		keys = append(keys, key)
		m.Cameras = append(m.Cameras, policy.Camera{Name: c.Name, H: h, W: w})
		asked.Features = append(asked.Features, lerobot.Feature{
			Name:  "observation.images." + key,
			Kind:  "image",
			Shape: []int{h, w, 3},
			Names: []string{"height", "width", "channels"},
		})
	}
	if err := m.Check(); err != nil {
		return m, nil, nil, cfg.Errorf("model.inputs", "model.inputs: %w", err)
	}
	return m, asked, keys, nil
}

// dial connects and has the server load the policy.
func (s *server) dial(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, loadTime, fmt.Errorf("no answer within %v", loadTime))
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+s.url, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(lerobot.Codec{}), grpc.MaxCallRecvMsgSize(actionsMost)))
	if err != nil {
		return nil, err
	}
	var out lerobot.Message
	err = conn.Invoke(ctx, lerobot.PathReady, new(lerobot.Message), &out)
	if err == nil {
		err = conn.Invoke(ctx, lerobot.PathInstructions, &lerobot.Message{Data: s.instructions}, &out)
	}
	switch {
	case err == nil:
		// The server may give its answers to any client, so the steps of each client begin at another number.
		return &link{ClientConn: conn, step: rand.Int64N(1 << 48)}, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	// gRPC's error text for a peer that speaks another protocol, and for a server that ends while we connect
	case strings.Contains(err.Error(), "reading server preface") && !strings.Contains(err.Error(), "reset by peer"):
		err = fmt.Errorf("it does not speak gRPC: is it LeRobot's policy_server? %s", status.Convert(err).Message())
	}
	return nil, errors.Join(err, conn.Close())
}

var (
	// errAnswer marks an answer that does not fit the manifest.
	errAnswer = errors.New("the policy_server's answer")
	// errNothing is the error for an empty answer. The server sends it when its policy has failed, or after 2 s without
	// an observation, as after another client's GetActions. A server without the policy also fails the blank inputs of
	// engine.judge, which then ends the connection.
	errNothing = errors.New("it answers without actions: its log has the error of this policy, or it was restarted")
	// errOther ends the connection: another client may have had the server load another policy.
	errOther = errors.New("its answers are late or another client's: end others, such as a second lean-server")
)

func (s *server) ask(ctx context.Context, l *link, row *remote.Row) error {
	l.step++
	stream, err := l.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, lerobot.PathObservations)
	if err != nil {
		return err
	}
	err = lerobot.Pieces(s.observation(row, l.step).Encode(), func(m *lerobot.Message) error {
		return stream.SendMsg(m)
	})
	if err == nil || errors.Is(err, io.EOF) { // the server ended the stream, and the answer has the reason
		err = errors.Join(stream.CloseSend(), stream.RecvMsg(new(lerobot.Message)))
	}
	if err != nil {
		return err
	}
	for range answersMost {
		var out lerobot.Message
		err := l.Invoke(ctx, lerobot.PathActions, new(lerobot.Message), &out)
		if code := status.Code(err); code == codes.ResourceExhausted || code == codes.Internal {
			return fmt.Errorf("%w cannot be read: %s", errAnswer, status.Convert(err).Message())
		}
		if err != nil {
			return err
		}
		if len(out.Data) == 0 {
			return errNothing
		}
		first, rows, err := lerobot.ParseActions(out.Data)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errAnswer, err)
		case first != l.step: // the answer is to an earlier observation, whose time limit has passed
			continue
		case len(rows) != s.meta.ChunkSize || len(rows[0]) != s.meta.ActionDim:
			return fmt.Errorf(
				"%w has %d actions of %d values, want %d of %d (model.inputs chunk_size and action_names)",
				errAnswer, len(rows), len(rows[0]), s.meta.ChunkSize, s.meta.ActionDim)
		}
		for i := range rows {
			copy(row.ChunkRobot[i*s.meta.ActionDim:], rows[i])
		}
		return nil
	}
	return errOther
}

// observation returns the message of a row. It sets must_go, so that the server does not drop the
// observation: the scheduler has already chosen the row.
func (s *server) observation(row *remote.Row, step int64) *lerobot.Observation {
	values := &pickle.Dict{}
	for i, name := range s.meta.StateNames {
		values.Set(name, float64(row.State[i]))
	}
	for i, key := range s.keys {
		c := s.meta.Cameras[i]
		values.Set(key, &pickle.Array{Type: "u1", Shape: []int{c.H, c.W, 3}, Data: row.Images[i]})
	}
	if row.Task != "" {
		values.Set(taskKey, row.Task)
	}
	return &lerobot.Observation{
		Timestamp: float64(time.Now().UnixNano()) / 1e9,
		Timestep:  step,
		MustGo:    true,
		Values:    values,
	}
}
