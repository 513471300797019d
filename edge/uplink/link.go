// Package uplink keeps a session open with one server, sends the observations of a run there and takes
// the server's chunks.
//
// The tick and the link share data in two places (seam.go): the tick writes the Outbox, with
// snapshots, action steps and the instants of its requests, and the link's threads write the Inbox,
// with the newest chunk, the ages of the pictures and the sessions. The sessions are one immutable
// value at an atomic pointer, which the tick reads once per tick.
//
// The goroutine of Link.Maintain (link.go) opens sessions (handshake.go), checks the offers of servers (contract.go),
// chooses among the servers of a service (replica.go), and replaces a lost session. The Sender's thread (sender.go)
// adds pictures to snapshots, and past pictures for a policy that looks back (past.go). The receiver (receiver.go)
// checks chunks on the transport's goroutine. The limits of the run, such as the greatest age of an action, follow the
// server's speed (patience.go, pace.go).
package uplink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/backoff"
	"github.com/edge-rt/edge-rt/wire"
)

// Time-outs of the control queries, from LeRobot's draft client.
const (
	statusTimeout = 2 * time.Second
	closeTimeout  = time.Second

	replyPatience = 300 * time.Millisecond // wait for silent servers after others have answered
	leastWait     = time.Millisecond       // shortest wait for the answers to a query
	unheardWait   = 2 * time.Second        // pause before the silent servers are asked again
	warmWait      = time.Second            // wait before the next request to a server that warms its policy up
	longestRetry  = time.Minute            // longest wait that a server's refusal can demand

	// A session that is lost sooner after its opening is brief. The next session after two brief ones waits, so that a
	// server that ends each session at once is not asked 20 times a second.
	briefSession = time.Second

	resetLimit = time.Second           // longest wait for the server's acknowledgement of a reset
	restPoll   = 50 * time.Millisecond // poll interval for the end of a rest, and for a lost session
	tokenGrace = 2 * time.Second       // time within which the token must appear after the session is open

	compatTimeouts = 3 // lost requests in a row after which LeRobot's client gives its session up
)

// The server's liveliness token.
const (
	tokenUnseen int32 = iota
	tokenAlive
	tokenGone
)

// Config is the configuration of a link.
type Config struct {
	// The robot.
	Identity *operator.Identity
	Robot    string           // type of the robot, such as so101
	Names    []string         // action names in order
	Units    []string         // unit of each action
	Bus      string           // device.Sim, or a serial port
	Cameras  []capture.Config // under the policy's names
	Tags     map[string]string
	// RealArm returns the reason why the run drives a real arm, "" for a simulated one.
	RealArm func() string
	// OtherRobot returns a sentence when the robot's certificate names another robot, else "".
	OtherRobot func() string

	// The demands on the policy.
	Service     string  // name of the service; empty: the only reachable service
	ExpectModel string  // hex prefix of the bundle's sha256; empty: any bundle
	FPS         float64 // actions per second; 0: the policy's rate, known from the first session on
	OtherFPS    bool    // the policy's rate may differ from FPS
	Change      *Change // nil: another policy ends the run

	StrictObservations bool         // a first observation unlike the training ends the run
	Schedule           chunk.Config // discipline, without the sizes and the rate

	ActionsPerChunk int // actions that are used of a chunk; 0: all
	JPEGQuality     int // for cameras without a quality of their own; 0: raw pictures

	Connect                 []string  // endpoints of the server or router, for messages
	Limits                            // limits of the run
	Refusals                *Refusals // refusals of the links' certificates; nil: they are not counted
	ReconnectInitialBackoff time.Duration
	ReconnectMaxBackoff     time.Duration

	Clock   rt.Clock
	Log     *slog.Logger
	Record  *record.Recorder // nil: nothing is recorded
	OnEvent func(wire.Event) // gets the server's events, which are rare; nil: they are only counted
}

// Link keeps a session open with one server. Owner: the goroutine of Maintain, except for fields
// marked otherwise.
type Link struct {
	// Constant after Open.
	Config
	In       *Inbox
	Out      *Outbox
	Stats    *Stats
	net      wire.Session
	receiver *receiver
	stamps   *stamps

	contract      Contract
	room          int // observations that the run keeps for a policy that looks back; 0: before the first session
	publisher     wire.Publisher
	epoch         uint32
	presenceToken wire.Declaration // announces this robot in this epoch
	tokenBack     atomic.Bool      // set by the transport: the server's liveliness token appeared; ends a rest
	// set by the transport: the token has disappeared since the handshake, even if it is back now
	tokenLost         atomic.Bool
	serverToken       atomic.Int32 // state of the token, written by the transport too
	servers           servers      // servers of the service, each known by its own token
	openedAt          rt.Instant
	lastError         string // error that connect logged last; the same error is not logged again
	duplicateReported bool
	toldUnconditioned bool
	toldPace          time.Duration // time for a chunk when the limits were last logged
	toldAge           time.Duration // permitted age of actions when the limits were last logged
	probedAt          rt.Instant    // instant of the last status query by probe
	heardAt           rt.Instant    // instant of the last status reply while an answer was due
}

// New returns a link without a session.
func New(cfg Config) *Link {
	l := &Link{
		Config: cfg,
		In:     newInbox(),
		Out:    new(Outbox),
		Stats:  new(Stats),
		stamps: new(stamps),
	}
	l.receiver = newReceiver(l)
	return l
}

// Open opens the first session over net and returns the contract of the server and the run. It repeats the handshake
// until success, a final refusal or ctx's end.
func (l *Link) Open(ctx context.Context, net wire.Session) (Contract, error) {
	l.net = net
	err := l.connect(ctx)
	return l.contract, err
}

// server returns the id of the newest session's server, "" if the server does not announce one.
func (l *Link) server() string {
	if s := l.In.Sessions().Newest; s != nil {
		return s.ServerID
	}
	return ""
}

// onToken notes that the server's token has appeared (up) or disappeared. Owner: the transport's goroutine.
func (l *Link) onToken(_ string, up bool) {
	if up {
		l.serverToken.Store(tokenAlive)
		l.tokenBack.Store(true)
	} else {
		l.serverToken.Store(tokenGone)
		l.tokenLost.Store(true)
	}
}

// onReplica notes that the token of one of several servers has appeared (up) or disappeared. Owner: the transport's
// goroutine.
func (l *Link) onReplica(key string, up bool) {
	svc := strings.TrimSuffix(key, "/alive")
	l.servers.set(svc[strings.LastIndexByte(svc, '/')+1:], up)
	if up {
		l.tokenBack.Store(true)
	}
}

// connect repeats the handshake until success, a final refusal or ctx's end.
func (l *Link) connect(ctx context.Context) error {
	retry := backoff.Backoff{First: l.ReconnectInitialBackoff, Max: l.ReconnectMaxBackoff}
	var reasons backoff.Longest // errors of the attempts, without those that the end of ctx caused
	for ended := l.Clock.Now(); ; {
		if err := l.Refusals.Err(); err != nil {
			return err
		}
		err := l.handshake(ctx)
		if err == nil {
			return nil
		}
		if exit.Of(err) != exit.Failure {
			return err
		}
		now := l.Clock.Now()
		if reasons.Last() == nil || ctx.Err() == nil || !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded) {
			reasons.Add(err, now.Sub(ended))
			text := reasons.Err().Error()
			l.In.NoSession.Store(&text)
		}
		ended = now
		if ctx.Err() != nil {
			return gaveUpConnecting(ctx, &reasons)
		}
		level, wait := slog.LevelInfo, retry.Next()
		if later := (*temporaryError)(nil); errors.As(err, &later) {
			level = slog.LevelWarn
			if later.after > 0 {
				wait = max(later.after, restPoll)
			}
		}
		if text := err.Error(); text != l.lastError {
			l.Log.Log(ctx, level, "no session yet, trying again", "why", text)
			l.lastError = text
			recording.Note(l.Record, l.Clock, event.SessionWaits, record.LevelWarning, int64(waitOf(err)), 0,
				"no session: "+text)
		}
		if !l.rest(ctx, wait, true) {
			return gaveUpConnecting(ctx, &reasons)
		}
	}
}

// gaveUpConnecting returns an error with the reason that lasted longest, which is the cause, and the last reason.
func gaveUpConnecting(ctx context.Context, reasons *backoff.Longest) error {
	longest, last := reasons.Err(), reasons.Last()
	if longest == nil || longest.Error() == last.Error() {
		return fmt.Errorf("%w (last: %w)", context.Cause(ctx), last)
	}
	return fmt.Errorf("%w (most of the time: %w; last: %s)", context.Cause(ctx), longest, last.Error())
}

// rest sleeps for d, or until ctx ends or, if eager is set, the server's token returns. It returns false if ctx has
// ended.
func (l *Link) rest(ctx context.Context, d time.Duration, eager bool) bool {
	for end := l.Clock.Now().Add(d); l.Clock.Now() < end; {
		if ctx.Err() != nil {
			return false
		}
		if eager && l.tokenBack.Swap(false) {
			return true
		}
		l.Clock.SleepUntil(min(end, l.Clock.Now().Add(restPoll)))
	}
	return ctx.Err() == nil
}

// Maintain replaces a lost session, until ctx ends or a refusal is final.
func (l *Link) Maintain(ctx context.Context) error {
	again := backoff.Backoff{First: l.ReconnectInitialBackoff, Max: l.ReconnectMaxBackoff}
	for brief := false; l.rest(ctx, restPoll, false); {
		l.warnDuplicate()
		if err := l.checkPace(); err != nil {
			return l.refuse(err)
		}
		l.probe(ctx)
		loss, why := l.lossReason()
		if loss == 0 {
			continue
		}
		l.Log.Warn("session lost", "why", why, "session", l.In.Sessions().ID())
		kept := why // &why would allocate at every poll
		l.In.NoSession.Store(&kept)
		recording.Note(l.Record, l.Clock, event.SessionLost, record.LevelWarning, int64(loss), 0, "session lost: "+why)
		open := l.In.Sessions().Open
		l.In.Lose()
		l.tokenBack.Store(false)
		l.servers.leave()
		if loss == event.LossModel { // the session's server is alive
			l.closeSession(open.Service, open.ID)
		}
		if l.Clock.Now().Sub(l.openedAt) > briefSession {
			brief = false
			again.Reset()
		} else if brief && !l.rest(ctx, again.Next(), true) {
			return nil
		} else {
			brief = true
		}
		if err := l.connect(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return l.refuse(err)
		}
	}
	return nil
}

// refuse ends the run because of err, which no other session can cure.
func (l *Link) refuse(err error) error {
	l.In.Refused.Store(true)
	recording.Note(l.Record, l.Clock, event.SessionRefused, record.LevelError, 0, 0, "refused: "+err.Error())
	l.Record.Save(&recording.SavedRefusal, true)
	return err
}

// checkPace logs the limits of the run that the latest answers exceed. It returns an error when no
// action can run.
func (l *Link) checkPace() error {
	l.tellPace()
	if !l.Out.TooSlow.Load() {
		return nil
	}
	p := l.Patience(l.contract.Horizon, l.contract.FPS)
	return p.hopeless(l.KnownPace())
}

// warnDuplicate warns, once a run, of another robot with this id, whose answers also arrive here.
func (l *Link) warnDuplicate() {
	if l.receiver.duplicate.Load() && !l.duplicateReported {
		l.duplicateReported = true
		l.Log.Warn("answers to another robot that runs as " + l.Identity.ID +
			" arrive, and are dropped: give one of them another --id")
	}
}

// waitOf returns the reason for a failed handshake, as the event has it.
func waitOf(err error) event.Wait {
	var later *temporaryError
	switch {
	case errors.As(err, &later):
		return later.why
	case errors.Is(err, errNoService):
		return event.WaitNobody
	}
	return event.WaitOther
}

// lossReason returns the reason why the open session is lost, 0 when it is not lost.
func (l *Link) lossReason() (event.Loss, string) {
	own := unseen
	if id := l.server(); id != "" {
		own = l.servers.state(id)
	}
	switch { // the common token exists as long as any server runs
	case l.Due() && l.between():
		return event.LossModel, "the server has another model for this robot"
	case own == gone, own == unseen && l.tokenLost.Load():
		return event.LossToken, "the server's liveliness token is gone"
	case own == unseen && l.serverToken.Load() == tokenUnseen:
		// The token may have disappeared before this subscription.
		if l.Clock.Now().Sub(l.openedAt) > tokenGrace {
			return event.LossUnseen, "the server's liveliness token has not appeared"
		}
	}
	if open := l.In.Sessions().Open; open != nil && l.receiver.evicted.Load() == open.Epoch {
		return event.LossClosed, "the server closed the session"
	}
	merged := rt.Instant(l.Out.MergedAt.Load())
	asked := rt.Instant(l.Out.AskedAt.Load())
	if asked <= merged {
		return 0, "" // no answer is due
	}
	return l.lossOfAnswer(max(asked, l.openedAt))
}

// lossOfAnswer returns why a session whose answer has been due since the instant since is lost, 0 when
// it is not lost. A slow server that answers status queries keeps its session for as
// long as its announced time for a chunk allows.
func (l *Link) lossOfAnswer(since rt.Instant) (event.Loss, string) {
	now, p := l.Clock.Now(), l.Patience(l.contract.Horizon, l.contract.FPS)
	quiet, unheard := now.Sub(since), p.unheard()
	if quiet > p.answer(l.KnownPace()) {
		return event.LossUnanswered, fmt.Sprintf("no chunk for %.1f s", quiet.Seconds())
	}
	if silent := now.Sub(max(since, l.heardAt)); silent > unheard {
		l.In.Unheard.Store(true)
		return event.LossUnanswered, fmt.Sprintf("no chunk for %.1f s, and the server does not answer", quiet.Seconds())
	}
	return 0, ""
}

// probeLimit returns the timeout of a status query, long enough for a server on a far link. unheard
// is the permitted silence, silent the silence so far.
func probeLimit(unheard, silent time.Duration) time.Duration {
	return min(statusTimeout, max(unheard-silent, replyPatience), unheard/2)
}

// probe queries the server's status while an answer is overdue, well before the permitted silence
// ends.
func (l *Link) probe(ctx context.Context) {
	merged := rt.Instant(l.Out.MergedAt.Load())
	asked := rt.Instant(l.Out.AskedAt.Load())
	now, p := l.Clock.Now(), l.Patience(l.contract.Horizon, l.contract.FPS)
	if asked <= merged || now.Sub(max(asked, l.openedAt)) < p.unheard()/2 || now.Sub(l.probedAt) < p.unheard()/4 {
		return
	}
	l.probedAt = now
	silent := now.Sub(max(asked, l.openedAt, l.heardAt))
	replies, err := l.net.Get(ctx, wire.StatusKey(l.contract.Prefix), nil, probeLimit(p.unheard(), silent))
	if err != nil {
		return
	}
	for _, r := range replies {
		var s wire.Status
		if r.Err || wire.Parse(&s, r.Payload) != nil {
			continue
		}
		if id := l.server(); id != "" && s.ServerID != id {
			continue // another replica
		}
		l.heardAt = l.Clock.Now()
		if s.InferenceMsP99 > 0 {
			now := paceOf(&s.Capabilities)
			if n := time.Duration(s.ActiveSessions); n > 0 { // one of the sessions is this robot's own
				now.Queue = now.Queue / n * (n - 1)
			}
			l.In.Announce(now)
		}
		// A server that takes longer is alive, but computes nothing for this robot.
		if l.heardAt.Sub(asked) <= p.answer(l.KnownPace()) {
			l.In.AliveAt.Store(int64(l.heardAt))
		}
	}
}

// Reset informs the server that an episode begins, with a new task unless task is empty. The error
// is the reason for a missing acknowledgement, which is harmless without a task. Its code is exit.Config if the server
// has refused, else exit.Absent.
func (l *Link) Reset(ctx context.Context, episode uint32, task string) (acked bool, err error) {
	open := l.In.Sessions().Open
	if open == nil {
		return false, exit.With(exit.Absent, errNoService)
	}
	key, err := wire.ResetKey(open.Service, l.Identity.ID)
	if err != nil {
		return false, err
	}
	body := wire.Append(nil, &wire.Reset{ClientUUID: l.Identity.ID, EpisodeID: episode, Task: task})
	replies, err := l.net.Get(ctx, key, body, resetLimit)
	for _, r := range replies {
		var ack wire.ResetAck
		switch {
		case r.Err || wire.Parse(&ack, r.Payload) != nil:
		case ack.OK:
			return true, nil
		default:
			err = exit.With(exit.Config, errors.New(ack.Error))
		}
	}
	switch {
	case err == nil:
		err = exit.Errorf(exit.Absent, "the server did not answer within %v", resetLimit)
	case exit.Of(err) == exit.Failure:
		err = exit.With(exit.Absent, err)
	}
	l.Log.Warn("the server did not confirm the reset", "session", l.In.Sessions().ID(), "reset", episode, "err", err)
	return false, err
}

// Close closes the open session.
func (l *Link) Close() {
	if open := l.In.end(); open != nil {
		l.closeSession(open.Service, open.ID)
	}
}

func (l *Link) closeSession(prefix, session string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	body := wire.Append(nil, &wire.SessionClose{ClientUUID: l.Identity.ID, SessionID: session})
	if _, err := l.askSession(ctx, prefix, body, closeTimeout); err != nil {
		l.Log.Debug("session close", "session", session, "err", err)
	}
}
