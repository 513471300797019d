// Package policyserver runs a policy in LeRobot's released policy_server: lean-server is its only
// client. The server does not describe its policy, so the manifest does. Its answers are pickles, which
// wire/pickle reads by a closed table.
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
	"net"
	"strconv"
	"sync"
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
	// loadTime bounds loading the policy, which the server does when a client comes.
	loadTime = 10 * time.Minute
	// answerTime bounds an inference, or answerTimes the longest so far if that is more; the first of a
	// connection, of blank inputs, may take firstTime.
	answerTime, firstTime = 10 * time.Second, 2 * time.Minute
	answerTimes           = 10
	// The wait between two attempts to connect doubles from one to the other.
	retryFirst, retryMost = 200 * time.Millisecond, 5 * time.Second
	// answersMost is the number of answers to earlier observations that one inference passes over.
	answersMost = 4
	// actionsMost bounds an answer: each action may hold the whole chunk.
	actionsMost = 64 << 20
)

// runtime is a connection to a policy_server.
//
// Owner: Batch: one thread; the rest: any goroutine.
type runtime struct {
	remote.Connection
	url          string
	meta         policy.Meta
	keys         []string // of the cameras in an observation
	instructions []byte
	log          *slog.Logger
	ctx          context.Context
	stop         context.CancelFunc
	kept         sync.WaitGroup
	// Owner: connect while there is no connection, else Batch.
	step    int64         // of the newest observation
	longest time.Duration // of an answer

	conn *grpc.ClientConn // guarded by the connection; nil: none
}

// Open connects to the manifest's server and has it load the policy.
func Open(ctx context.Context, cfg *manifest.Config, log *slog.Logger) (*remote.Policy, error) {
	meta, asked, keys, err := describe(cfg)
	if err != nil {
		return nil, err
	}
	r := &runtime{
		url:          cfg.Model.URL,
		meta:         meta,
		keys:         keys,
		instructions: asked.Encode(),
		log:          log,
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	conn, err := r.connect(ctx)
	if err != nil {
		r.stop()
		if errors.Is(err, errAnswer) || errors.Is(err, errNothing) {
			return nil, cfg.Errorf("model.inputs", "the policy_server at %s, asked for blank inputs: %w", r.url, err)
		}
		if s, ok := status.FromError(err); ok && (s.Code() == codes.Unknown || s.Code() == codes.Unimplemented) {
			return nil, cfg.Errorf("model", "the policy_server at %s does not run the policy: %s: compare "+
				"model.policy_type, model.repo_or_path and model.device with it", r.url, s.Message())
		}
		return nil, r.away(err)
	}
	r.install(conn)
	sum := sha256.Sum256(append([]byte(r.url), r.instructions...))
	return &remote.Policy{
		Meta:      meta,
		Runtime:   r,
		SHA256:    hex.EncodeToString(sum[:]),
		Where:     r.url,
		Version:   manifest.RuntimeLeRobotAsync,
		Program:   r.url,
		Device:    "cpu", // of this process's part
		ReadsTask: true,
		MaxBatch:  1,
	}, nil
}

// checkKeys names the first key that is missing, or an address of another form.
func checkKeys(cfg *manifest.Config) error {
	model, in := &cfg.Model, &cfg.Model.Inputs
	for _, key := range []struct {
		name    string
		missing bool
		reason  string
	}{
		{"policy_type", model.PolicyType == "", "LeRobot's name of the policy's type, such as act"},
		{"repo_or_path", model.RepoOrPath == "",
			"the checkpoint as the policy_server finds it: a folder or a name on the hub"},
		{"inputs.fps", in.FPS == 0, "the rate that the policy was trained at, in Hz, such as 30"},
		{"inputs.chunk_size", in.ChunkSize == 0, "the number of actions in an answer (actions_per_chunk)"},
		{"inputs.action_names", len(in.ActionNames) == 0, "the joints of an action, in its order, such as " +
			"[shoulder_pan.pos, …, gripper.pos]"},
		{"inputs.action_units", len(in.ActionUnits) == 0, "the units of an action, such as [degrees, …, range_0_100]"},
		{"inputs.state_units", len(in.StateUnits) == 0 && len(in.StateNames) > 0,
			"the units of the state, one for each " +
				"of state_names"},
	} {
		if key.missing {
			return cfg.Missing(key.name, key.reason+"; the policy_server does not tell it")
		}
	}
	host, port, err := net.SplitHostPort(model.URL)
	if _, failed := strconv.ParseUint(port, 10, 16); err != nil || failed != nil || host == "" {
		return cfg.Errorf("model.url",
			"model.url is '%s', want HOST:PORT, the address of the policy_server, without a "+
				"scheme such as http://", model.URL)
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
	m = policy.Meta{
		BundleVersion: policy.BundleVersion,
		PolicyType:    model.PolicyType,
		SourceRepo:    cmp.Or(model.ID, cfg.Named()),
		RTC:           "none", // the protocol has no place for the actions that run meanwhile
		FPS:           in.FPS,
		ChunkSize:     in.ChunkSize,
		NActionSteps:  in.ChunkSize,
		ActionDim:     len(in.ActionNames),
		ActionNames:   in.ActionNames,
		ActionUnits:   in.ActionUnits,
		StateNames:    in.StateNames,
		StateUnits:    in.StateUnits,
	}
	if len(in.StateNames) == 0 {
		m.StateNames = in.ActionNames
		if len(in.StateUnits) == 0 {
			m.StateUnits = in.ActionUnits
		}
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

func (r *runtime) away(err error) error {
	return &remote.Away{Server: "the policy_server at " + r.url, Err: err}
}

// connect returns a connection whose server has loaded the policy and answered blank inputs: the first
// inference of many policies takes longer than a robot may wait.
func (r *runtime) connect(ctx context.Context) (*grpc.ClientConn, error) {
	r.State("loading the policy")
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+r.url, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(lerobot.Codec{}), grpc.MaxCallRecvMsgSize(actionsMost)))
	if err != nil {
		return nil, err
	}
	var out lerobot.Message
	err = conn.Invoke(ctx, lerobot.PathReady, new(lerobot.Message), &out)
	if err == nil {
		err = conn.Invoke(ctx, lerobot.PathInstructions, &lerobot.Message{Data: r.instructions}, &out)
	}
	if err == nil {
		err = r.test(ctx, conn)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (r *runtime) test(ctx context.Context, conn *grpc.ClientConn) error {
	r.State("warming up")
	ctx, cancel := context.WithTimeoutCause(ctx, firstTime, fmt.Errorf("no answer within %v", firstTime))
	defer cancel()
	row := &remote.Row{State: make([]float32, len(r.meta.StateNames))}
	for _, c := range r.meta.Cameras {
		row.Images = append(row.Images, make([]byte, c.Bytes()))
	}
	row.ChunkRobot = make([]float32, r.meta.ChunkSize*r.meta.ActionDim)
	return r.ask(ctx, conn, row)
}

func (r *runtime) install(conn *grpc.ClientConn) {
	r.Update(func(now *remote.Condition) {
		r.conn = conn
		now.Ready, now.State = true, "serving"
	})
}

// drop closes a connection that failed, and connects anew in the background.
func (r *runtime) drop(conn *grpc.ClientConn, why error) {
	r.Update(func(now *remote.Condition) {
		if r.conn != conn || r.ctx.Err() != nil {
			return
		}
		_ = conn.Close() // it failed already
		r.conn = nil
		now.Ready, now.Why = false, why.Error()
		now.Failures++
		r.log.Warn("the policy_server does not answer", "url", r.url, "why", why)
		r.kept.Go(r.reconnect)
	})
}

func (r *runtime) reconnect() {
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(wait):
		}
		conn, err := r.connect(r.ctx)
		if err == nil {
			r.install(conn)
			r.Update(func(now *remote.Condition) { now.Restarts++ })
			r.log.Info("the policy_server answers again", "url", r.url)
			return
		}
		r.Update(func(now *remote.Condition) { now.State, now.Why = "waiting to reconnect", err.Error() })
	}
}

// Batch implements remote.Runtime.
func (r *runtime) Batch(rows []*remote.Row) error {
	for _, row := range rows {
		if err := r.infer(row); err != nil {
			return err
		}
	}
	return nil
}

func (r *runtime) infer(row *remote.Row) error {
	var conn *grpc.ClientConn
	why := ""
	r.Update(func(now *remote.Condition) { conn, why = r.conn, now.Why })
	if conn == nil {
		return r.away(errors.New(why))
	}
	ctx, release := r.Begin(r.ctx, max(answerTime, answerTimes*r.longest))
	defer release()
	err := r.ask(ctx, conn, row)
	switch {
	case err == nil:
		copy(row.ChunkModel, row.ChunkRobot)
		return nil
	case errors.Is(err, errAnswer):
		return r.Refused(err)
	}
	err = r.Late(ctx, err)
	r.drop(conn, err)
	return r.away(err)
}

// Errors of an answer: errAnswer marks one that does not fit the manifest, errNothing an empty one.
var (
	errAnswer  = errors.New("the policy_server's answer")
	errNothing = errors.New("it answers without actions: it was restarted, or its log has the error of this policy")
)

func (r *runtime) ask(ctx context.Context, conn *grpc.ClientConn, row *remote.Row) error {
	r.step++
	began := time.Now()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, lerobot.PathObservations)
	if err != nil {
		return err
	}
	err = lerobot.Pieces(r.observation(row).Encode(), func(m *lerobot.Message) error { return stream.SendMsg(m) })
	if err == nil || errors.Is(err, io.EOF) { // the server ended the stream, and its answer has the reason
		err = errors.Join(stream.CloseSend(), stream.RecvMsg(new(lerobot.Message)))
	}
	if err != nil {
		return err
	}
	for range answersMost {
		var out lerobot.Message
		if err := conn.Invoke(ctx, lerobot.PathActions, new(lerobot.Message), &out); err != nil {
			return err
		}
		if len(out.Data) == 0 {
			return errNothing
		}
		first, rows, err := lerobot.ParseActions(out.Data)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errAnswer, err)
		case first != r.step: // to an observation whose time was over
			continue
		case len(rows) != r.meta.ChunkSize || len(rows[0]) != r.meta.ActionDim:
			return fmt.Errorf(
				"%w has %d actions of %d values, want %d of %d (model.inputs chunk_size and action_names)",
				errAnswer, len(rows), len(rows[0]), r.meta.ChunkSize, r.meta.ActionDim)
		}
		for i := range rows {
			copy(row.ChunkRobot[i*r.meta.ActionDim:], rows[i])
		}
		r.longest = max(r.longest, time.Since(began))
		return nil
	}
	return fmt.Errorf("%w is to an earlier observation, %d times", errAnswer, answersMost)
}

// observation returns the message of a row. It must go: the scheduler has chosen it.
func (r *runtime) observation(row *remote.Row) *lerobot.Observation {
	values := &pickle.Dict{}
	for i, name := range r.meta.StateNames {
		values.Set(name, float64(row.State[i]))
	}
	for i, key := range r.keys {
		c := r.meta.Cameras[i]
		values.Set(key, &pickle.Array{Type: "u1", Shape: []int{c.H, c.W, 3}, Data: row.Images[i]})
	}
	if row.Task != "" {
		values.Set("task", row.Task)
	}
	return &lerobot.Observation{
		Timestamp: float64(time.Now().UnixNano()) / 1e9,
		Timestep:  r.step,
		MustGo:    true,
		Values:    values,
	}
}

// Close implements remote.Runtime.
func (r *runtime) Close() error {
	r.stop()
	r.kept.Wait()
	var conn *grpc.ClientConn
	r.Update(func(*remote.Condition) { conn = r.conn })
	if conn == nil {
		return nil
	}
	return conn.Close()
}
