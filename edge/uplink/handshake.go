package uplink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/trained"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
)

// errNoService means that no server has a token. The link then tries the handshake again.
var errNoService = errors.New("no lean-server answers")

// temporaryError is a refusal that the server marks as temporary.
type temporaryError struct {
	error
	after time.Duration
	why   event.Wait
}

func (r *temporaryError) Unwrap() error { return r.error }

// Temporary reports whether err is a server's refusal of a session that may soon be accepted.
func Temporary(err error) bool { return errors.As(err, new(*temporaryError)) }

// handshake opens a session. An error is final only if it has an exit code.
func (l *Link) handshake(ctx context.Context) error {
	l.tokenLost.Store(false)
	l.servers.begin()
	prefix, err := l.find(ctx)
	if err != nil {
		return err
	}
	ack, t, err := l.choose(ctx, prefix)
	if err != nil {
		return err
	}
	if err = l.declare(prefix); err == nil {
		err = l.announce(prefix)
	}
	if err != nil {
		// otherwise the session would occupy a place at the server until its idle timeout
		l.closeSession(prefix, ack.SessionID)
		return err
	}
	if l.changes(&t) {
		l.begin(&t)
	}
	for _, w := range ack.Warnings {
		l.Log.Warn("server: "+w, "session", ack.SessionID)
	}
	l.contract = t
	if l.room == 0 {
		l.room = t.Steps
		l.FPS = cmp.Or(l.FPS, t.FPS) // a later session must have the same rate
	}
	l.In.Unheard.Store(false)
	l.serverToken.CompareAndSwap(tokenGone, tokenUnseen) // the server is back: find has seen its token
	l.openedAt = l.Clock.Now()
	l.lastError = ""
	l.In.Announce(paceOf(&ack.Capabilities))
	session := &Session{
		Session: record.Session{
			ID:       ack.SessionID,
			Epoch:    l.epoch,
			Service:  prefix,
			ServerID: ack.ServerID,
			Model:    t.Model,
			Revision: t.Revision,
			SHA256:   t.SHA256,
		},
		Nonce:     ack.Nonce,
		Publisher: l.publisher,
		Steps:     t.Steps,
		Old:       ack.T == 0,
		Trained:   l.statistics(ack.Statistics),
	}
	l.Record.NoteSession(l.openedAt, &session.Session)
	l.In.Open(session)
	l.Log.Info("session open", "service", prefix, "model", t.Model, "revision", t.Revision, "server", ack.ServerID,
		"session", ack.SessionID, "epoch", l.epoch)
	l.tellPace()
	return nil
}

// statistics returns the statistics of the training in a server's answer, nil if there are no usable statistics.
func (l *Link) statistics(text string) *trained.Statistics {
	if text == "" {
		return nil
	}
	s, err := trained.Parse([]byte(text))
	if err != nil {
		l.Log.Warn("the server's statistics of the training are not used", "why", err)
		return nil
	}
	return s
}

// find returns the key prefix of the service. After the first session it accepts only the prefix of
// that session.
func (l *Link) find(ctx context.Context) (string, error) {
	keys, err := l.net.Tokens(ctx, wire.ServerAliveAny, statusTimeout)
	if err != nil {
		return "", err
	}
	want := ""
	if l.Service != "" {
		if want, err = wire.Slug(l.Service); err != nil {
			return "", exit.Errorf(exit.Usage, "--service: %w", err)
		}
	}
	var found []string
	for _, key := range keys {
		svc, err := wire.ServiceOf(key)
		if err != nil || want != "" && svc.Name != want {
			continue
		}
		found = append(found, svc.Prefix())
	}
	slices.Sort(found)
	found = slices.Compact(found)
	had := l.contract.Prefix
	switch {
	case had != "" && slices.Contains(found, had):
		return had, nil
	case had != "" && len(found) > 0:
		return "", fmt.Errorf("%s, the service of this run, is away: waiting for it; others are in reach (%s), and a "+
			"new start may choose one of them", had, strings.Join(found, ", "))
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1 && want == "":
		return "", exit.Errorf(exit.Config, "%d services are in reach (%s): choose one with --service NAME", len(found),
			strings.Join(found, ", "))
	case len(found) > 1:
		return "", exit.Errorf(exit.Config, "several models serve %q (%s): connect to one of them only", l.Service,
			strings.Join(found, ", "))
	case want != "":
		return "", fmt.Errorf("%w as service %q at %s", errNoService, l.Service, strings.Join(l.Connect, ", "))
	}
	return "", fmt.Errorf("%w at %s", errNoService, strings.Join(l.Connect, ", "))
}

// ask returns the status replies of the servers. all is false when the reply of a hanging server
// may be missing.
func (l *Link) ask(ctx context.Context, prefix string) (said []wire.Status, all bool, err error) {
	for _, limit := range []time.Duration{replyPatience, statusTimeout} {
		began := l.Clock.Now()
		replies, err := l.net.Get(ctx, wire.StatusKey(prefix), nil, limit)
		if err != nil {
			return nil, false, err
		}
		for _, r := range replies {
			var s wire.Status
			if !r.Err && wire.Parse(&s, r.Payload) == nil {
				said = append(said, s)
			}
		}
		all = l.Clock.Now().Sub(began) < limit && l.net.Connected()
		if all || len(said) > 0 {
			break
		}
	}
	return said, all, nil
}

// choose opens a session at the best server that accepts this robot. A refusal is final when every server has answered
// and no refusal is temporary. If a server with another bundle was already alive when the session was lost, choose does
// not take it in place of the run's server, which may return.
func (l *Link) choose(ctx context.Context, prefix string) (*wire.SessionAck, Contract, error) {
	said, all, err := l.ask(ctx, prefix)
	if err != nil {
		return nil, Contract{}, err
	}
	model, between := l.model(), l.between()
	servers := rank(said, model, l.Identity.ID, func(id string) bool {
		return l.servers.state(id) == gone
	})
	if len(servers) == 0 { // no status, or all servers drain: any answer to the session request gives the reason
		servers = append(servers, wire.Status{})
	}
	var refused, passing error
	for i := range servers {
		if passing != nil && !serves(&servers[i], model) {
			break // a server with the right bundle may have a free place soon
		}
		id := servers[i].ServerID
		if l.contract.SHA256 != "" && !between && !serves(&servers[i], model) && l.servers.beside(id) {
			passing = fmt.Errorf("the servers of this run's policy are away; %s, which ran beside them, serves "+
				"another bundle (sha256 %.12s)", id, servers[i].ModelSHA256)
			break
		}
		if id == "" && len(servers) > 1 {
			id = wire.NoServer
		}
		l.epoch = l.Identity.NextEpoch() // a session that is still open because its answer was lost has an older epoch
		ack, err := l.request(ctx, prefix, id, l.conditioned(&servers[i]))
		var t Contract
		if err == nil {
			if t, err = l.checkContract(prefix, ack); err == nil {
				err = warmedUp(prefix, ack)
			}
			if err == nil {
				return ack, t, nil
			}
			// otherwise the session would occupy a place at the server until its idle timeout
			l.closeSession(prefix, ack.SessionID)
		}
		err = l.nameCameraFlags(err, servers[i].ExpectedCameras)
		switch {
		case ctx.Err() != nil || errors.As(err, new(*deniedError)):
			return nil, t, err
		case exit.Of(err) == exit.Failure:
			passing = sooner(passing, err)
		case refused == nil:
			refused = err
		}
	}
	switch {
	case passing != nil:
		return nil, Contract{}, passing
	case !all:
		return nil, Contract{},
			//nolint:errorlint // with %w, the exit code of the refusal would make this wait final
			&temporaryError{fmt.Errorf("not every server of %s has answered, and the others refuse: %s", prefix,
				refused), unheardWait, event.WaitOther}
	}
	return nil, Contract{}, refused
}

// warmedUp returns a temporary error while the server has not run its policy: the first inference of
// many policies takes longer than an arm may wait.
func warmedUp(prefix string, ack *wire.SessionAck) error {
	if ack.WarmedUp {
		return nil
	}
	return &temporaryError{fmt.Errorf("%s has not warmed its policy up yet (warmed_up)", prefix), warmWait,
		event.WaitOther}
}

// nameCameraFlags adds the flags of the missing cameras to a refusal for missing cameras.
func (l *Link) nameCameraFlags(err error, expected []string) error {
	if exit.Of(err) != exit.Config || !strings.Contains(err.Error(), "camera") {
		return err
	}
	var flags []string
	for _, key := range expected {
		name := strings.TrimPrefix(key, capture.ImageKey)
		if slices.ContainsFunc(l.Cameras, func(c capture.Config) bool { return c.Name == name }) {
			continue
		}
		// a USB camera has two nodes, and the first has the pictures
		source := fmt.Sprintf("/dev/video%d", 2*len(flags))
		if l.Bus == device.Sim {
			source = device.Sim
		}
		flags = append(flags, fmt.Sprintf("--camera %s=%s", name, source))
	}
	if len(flags) == 0 {
		return err
	}
	return fmt.Errorf("%w; the policy needs pictures, so add %s (edge-rt cameras lists the cameras of this machine)",
		err, strings.Join(flags, " "))
}

// sooner returns the error with the shorter retry time. An error without a retry time counts as the longer one. If both
// are equal, sooner returns a, or b if a is nil.
func sooner(a, b error) error {
	var one, two *temporaryError
	if a == nil || errors.As(b, &two) && (!errors.As(a, &one) || two.after < one.after) {
		return b
	}
	return a
}

// deniedError means that the access rules refuse the robot's certificate, at every server.
type deniedError struct{ error }

// conditioned reports whether the session requests chunks that continue the previous one. The default schedule does not
// request them if the policy cannot continue a chunk. A schedule or prefix from a flag requests them anyway, and the
// server warns.
func (l *Link) conditioned(s *wire.Status) bool {
	c := &l.Schedule
	if !c.Conditioned() || s.SupportsRTC || s.ChunkSize == 0 || c.Schedule != chunk.Schedules[0] || c.Prefix != "" {
		return c.Conditioned()
	}
	if !l.toldUnconditioned {
		l.Log.Info("this policy cannot continue the previous chunk: chunks are joined as they arrive")
		l.toldUnconditioned = true
	}
	return false
}

// request requests a session from the server with this id, from any server when id is empty. If conditioned is set, the
// chunks of the session continue the previous chunks.
func (l *Link) request(ctx context.Context, prefix, id string, conditioned bool) (*wire.SessionAck, error) {
	open := wire.SessionOpen{
		ClientUUID:    l.Identity.ID,
		RobotType:     l.Robot,
		FPS:           l.FPS,
		ActionNames:   l.Names,
		StateDim:      len(l.Names),
		SchemaVersion: wire.SchemaVersion,
		RTCEnabled:    conditioned,
		Task:          l.Out.TaskText(),
		SessionEpoch:  l.epoch,
		ActionUnits:   l.Units,
		StateUnits:    l.Units,
		Instance:      l.Identity.Instance,
		Host:          l.Identity.Host,
		Steps:         cmp.Or(l.room, wire.MaxSteps),
		ServerID:      id,
		ModelSHA256:   l.model(),
	}
	for _, key := range slices.Sorted(maps.Keys(l.Tags)) {
		open.Tags = append(open.Tags, wire.Tag{Key: key, Value: l.Tags[key]})
	}
	for _, c := range l.Cameras {
		open.CameraNames = append(open.CameraNames, capture.ImageKey+c.Name)
		if cmp.Or(c.Quality, l.JPEGQuality) == 0 {
			open.RawImages = append(open.RawImages, capture.ImageKey+c.Name)
		}
	}
	replies, err := l.askSession(ctx, prefix, wire.Append(nil, &open), l.RequestTimeout)
	if err != nil {
		return nil, err
	}
	best, unusable := l.keepOne(prefix, id, replies)
	switch {
	case best != nil && best.Accepted:
		return best, nil
	case unusable != nil:
		return nil, unusable
	case best == nil:
	case best.Temporary():
		return nil, l.temporaryRefusal(best)
	default:
		return nil, exit.Errorf(exit.Config, "session refused by %s: %s", prefix, best.Error)
	}
	if text := l.OtherRobot(); text != "" {
		return nil, fmt.Errorf("no answer to the session request at %s: %s", prefix, text)
	}
	return nil, fmt.Errorf("no answer to the session request at %s within %v", prefix, l.RequestTimeout)
}

// keepOne selects one ack among the answers to a session request, and closes the sessions of the others. An accepted
// ack is better than a refusal. Among equals, the ack of the server with this id is better. best is nil if no answer is
// an ack. unusable is the error of an answer that is no ack, or nil.
func (l *Link) keepOne(prefix, id string, replies []wire.Reply) (best *wire.SessionAck, unusable error) {
	for _, r := range replies {
		var ack wire.SessionAck
		switch {
		case r.Err && access.IsDenied(r.Payload):
			unusable = exit.With(exit.Config, &deniedError{fmt.Errorf("session refused by %s: %s", prefix, r.Payload)})
			continue
		case r.Err:
			continue
		}
		if err := wire.Parse(&ack, r.Payload); err != nil {
			unusable = cmp.Or(unusable, fmt.Errorf("session at %s: %w", prefix, err))
			continue
		}
		meant := ack.ServerID == id
		switch {
		case best == nil, meant && (ack.Accepted || !best.Accepted), ack.Accepted && !best.Accepted:
			if best != nil && best.Accepted { // an old server ignores ServerID
				l.closeSession(prefix, best.SessionID)
			}
			best = &ack
		case ack.Accepted:
			l.closeSession(prefix, ack.SessionID)
		}
	}
	return best, unusable
}

// askSession requests a session at the robot's own key, which a router can restrict to this robot. Without an answer at
// this key, as with a server of LeRobot's draft, it requests the session at the common key. Only one server answers the
// request. The first query at a key waits no longer than replyPatience, since another server may just have stopped; the
// second waits until limit for a slow server.
func (l *Link) askSession(ctx context.Context, prefix string, body []byte, limit time.Duration) ([]wire.Reply, error) {
	own, err := wire.RobotSessionKey(prefix, l.Identity.ID)
	if err != nil {
		return nil, err
	}
	end := l.Clock.Now().Add(limit)
	for _, key := range []string{own, wire.SessionKey(prefix)} {
		// the second wait is for a server that is slow or far away
		for _, wait := range []time.Duration{replyPatience, limit} {
			began := l.Clock.Now()
			if wait = min(wait, end.Sub(began)); wait < leastWait {
				return nil, nil
			}
			replies, err := l.net.Get(ctx, key, body, wait)
			if err != nil || len(replies) > 0 {
				return replies, err
			}
			if l.Clock.Now().Sub(began) < wait {
				break // no server has declared this key
			}
		}
	}
	return nil, nil
}

func (l *Link) temporaryRefusal(ack *wire.SessionAck) error {
	err, why := fmt.Errorf("session refused for now: %s (load %.2f)", ack.Error, ack.ServerLoad), event.WaitTaken
	switch ack.HeldBy {
	case "":
		if why = event.WaitFull; ack.Draining {
			why = event.WaitDraining
		}
	case wire.HostUnknown:
		err = fmt.Errorf("another robot runs as %s: give one of them another --id", l.Identity.ID)
	default:
		err = fmt.Errorf("another robot on host %s runs as %s: give one of them another --id", ack.HeldBy,
			l.Identity.ID)
	}
	return &temporaryError{err, min(time.Duration(ack.RetryAfterMs)*time.Millisecond, longestRetry), why}
}

// declare declares the robot's keys once; the transport repeats this after a reconnect.
func (l *Link) declare(prefix string) error {
	if l.publisher != nil {
		return nil
	}
	obs, err1 := wire.ObsKey(prefix, l.Identity.ID)
	action, err2 := wire.ActionKey(prefix, l.Identity.ID)
	alive, err3 := wire.ClientAliveKey(prefix, l.Identity.ID)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if _, err := l.net.Subscribe(action, l.receiver.deposit); err != nil {
		return err
	}
	publisher, err := l.net.Publisher(obs, wire.ObservationQoS)
	if err != nil {
		return err
	}
	if _, err := l.net.SubscribeTokens(wire.ReplicaAliveWildcard(prefix), l.onReplica); err != nil {
		return err
	}
	if _, err := l.net.SubscribeTokens(wire.ServerAliveKey(prefix), l.onToken); err != nil {
		return err
	}
	if _, err := l.net.Token(alive); err != nil {
		return err
	}
	l.publisher = publisher
	return nil
}

// announce replaces the robot's liveliness token by the token of the session's epoch.
func (l *Link) announce(prefix string) error {
	key, err := wire.EpochAliveKey(prefix, l.Identity.ID, l.epoch)
	if err != nil {
		return err
	}
	token, err := l.net.Token(key)
	if err != nil {
		return err
	}
	if l.presenceToken != nil {
		l.presenceToken.Undeclare()
	}
	l.presenceToken = token
	return nil
}
