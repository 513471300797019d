package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/identity"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/edge/replica"
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

	replyPatience = 300 * time.Millisecond // for silent servers while others have answered
	unheardWait   = 2 * time.Second        // before the silent servers are asked again

	resetLimit = time.Second           // the server's acknowledgement of a reset
	restPoll   = 50 * time.Millisecond // poll interval for the end of a rest, and for a lost session
	tokenGrace = 2 * time.Second       // for the token to appear after the session is open

	compatTimeouts = 3 // lost requests in a row after which LeRobot's client gives its session up
)

// The server's liveliness token.
const (
	tokenUnseen int32 = iota
	tokenAlive
	tokenGone
)

// contract is the agreement of a session; a later session must offer the same.
type contract struct {
	prefix    string
	model     string
	revision  string
	sha256    string
	fps       float64 // actions per second of the run
	horizon   int
	prefixEnd int
	shapes    []wire.CameraShape // the policy's pictures, if the server sends their sizes
	steps     int                // observations that the policy looks at together

	simulation bool // the policy is for a simulated arm only
}

// link keeps a session open with one server. Owner: the link goroutine, except for fields marked
// otherwise.
type link struct {
	// Constant after Open.
	cfg      *Config
	identity *identity.Identity
	names    []string // action names in order
	units    []string // each action's
	log      *slog.Logger
	clock    rt.Clock
	net      wire.Session
	flags    *linkFlags
	uplink   *atomic.Pointer[uplink]
	receive  func(wire.Sample) // takes a sample of the action topic
	record   *record.Recorder  // nil: nothing is recorded

	contract          contract
	room              int // observations that the run keeps for a policy that looks back; 0: before the first session
	publisher         wire.Publisher
	epoch             uint32
	presenceToken     wire.Declaration // announces this robot in this epoch
	sessionID         string
	tokenBack         atomic.Bool     // transport: the server's liveliness token appeared; ends a rest
	tokenLost         atomic.Bool     // transport: the token disappeared since the handshake began, even if it is back
	serverToken       atomic.Int32    // state of the token, written by the transport too
	servers           replica.Servers // of the service, each by its own token
	openedAt          rt.Instant
	opened            atomic.Uint64
	lastError         string // last logged error of connect: each is logged once
	duplicateReported bool
	toldUnconditioned bool
	toldPace          time.Duration // time of a chunk at the last log of the limits
	toldAge           time.Duration // permitted age of actions, as logged last
	probedAt          rt.Instant    // instant of the last status query by probe
	heardAt           rt.Instant    // instant of the last status reply while an answer was due
}

// onToken takes the server's token. Owner: the transport's goroutine.
func (l *link) onToken(_ string, up bool) {
	if up {
		l.serverToken.Store(tokenAlive)
		l.tokenBack.Store(true)
	} else {
		l.serverToken.Store(tokenGone)
		l.tokenLost.Store(true)
	}
}

// onReplica takes the token of one of several servers. Owner: the transport's goroutine.
func (l *link) onReplica(key string, up bool) {
	svc := strings.TrimSuffix(key, "/alive")
	l.servers.Set(svc[strings.LastIndexByte(svc, '/')+1:], up)
	if up {
		l.tokenBack.Store(true)
	}
}

// connect repeats the handshake until success, a final refusal or ctx's end.
func (l *link) connect(ctx context.Context) error {
	retry := backoff.Backoff{First: l.cfg.ReconnectInitialBackoff, Max: l.cfg.ReconnectMaxBackoff}
	var reasons backoff.Longest // without those caused by ctx's end
	for ended := l.clock.Now(); ; {
		err := l.handshake(ctx)
		if err == nil {
			return nil
		}
		if exit.Of(err) != exit.Failure {
			return err
		}
		now := l.clock.Now()
		if reasons.Last() == nil || ctx.Err() == nil || !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded) {
			reasons.Add(err, now.Sub(ended))
			text := reasons.Err().Error()
			l.flags.sessionError.Store(&text)
		}
		ended = now
		if ctx.Err() != nil {
			return gaveUpConnecting(ctx, &reasons)
		}
		level, wait := slog.LevelInfo, retry.Next()
		if later := (*temporaryError)(nil); errors.As(err, &later) {
			level = slog.LevelWarn
			if later.after > 0 {
				wait = later.after
			}
		}
		if text := err.Error(); text != l.lastError {
			l.log.Log(ctx, level, "no session yet, trying again", "why", text)
			l.lastError = text
			recording.Note(l.record, l.clock, event.SessionWaits, record.LevelWarning, int64(waitOf(err)), 0,
				"no session: "+text)
		}
		if !l.rest(ctx, wait, true) {
			return gaveUpConnecting(ctx, &reasons)
		}
	}
}

// gaveUpConnecting names the error that lasted longest, which is the cause, and the last one.
func gaveUpConnecting(ctx context.Context, reasons *backoff.Longest) error {
	longest, last := reasons.Err(), reasons.Last()
	if longest == nil || longest.Error() == last.Error() {
		return fmt.Errorf("%w (last: %w)", context.Cause(ctx), last)
	}
	return fmt.Errorf("%w (most of the time: %w; last: %s)", context.Cause(ctx), longest, last.Error())
}

// rest sleeps for d, or until ctx ends; with eager set also until the server's token returns. It
// reports whether the caller may go on.
func (l *link) rest(ctx context.Context, d time.Duration, eager bool) bool {
	for end := l.clock.Now().Add(d); l.clock.Now() < end; {
		if ctx.Err() != nil {
			return false
		}
		if eager && l.tokenBack.Swap(false) {
			return true
		}
		l.clock.SleepUntil(min(end, l.clock.Now().Add(restPoll)))
	}
	return ctx.Err() == nil
}

// maintain replaces a lost session, until ctx ends or a refusal is final.
func (l *link) maintain(ctx context.Context) error {
	for l.rest(ctx, restPoll, false) {
		l.warnDuplicate()
		if err := l.checkPace(); err != nil {
			return l.refuse(err)
		}
		l.probe(ctx)
		loss, why := l.lossReason()
		if loss == 0 {
			continue
		}
		l.log.Warn("session lost", "why", why, "session", l.sessionID)
		l.flags.sessionError.Store(&why)
		recording.Note(l.record, l.clock, event.SessionLost, record.LevelWarning, int64(loss), 0, "session lost: "+why)
		l.flags.epoch.Store(0)
		l.uplink.Store(nil)
		l.flags.lost.Store(true)
		l.tokenBack.Store(false)
		l.servers.Leave()
		if err := l.connect(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return l.refuse(err)
		}
	}
	return nil
}

// refuse ends the run for an error that no other session can cure.
func (l *link) refuse(err error) error {
	l.flags.refused.Store(true)
	recording.Note(l.record, l.clock, event.SessionRefused, record.LevelError, 0, 0, "refused: "+err.Error())
	l.record.Save(&recording.SavedRefusal, true)
	return err
}

// checkPace logs the limits of the run that the latest answers exceed. It returns an error when no
// action can run.
func (l *link) checkPace() error {
	l.tellPace()
	if !l.flags.tooSlow.Load() {
		return nil
	}
	p := l.cfg.patience(l.contract.horizon, l.contract.fps)
	return p.hopeless(l.flags.knownPace())
}

// warnDuplicate warns, once a run, of another robot with this id, which receives our answers.
func (l *link) warnDuplicate() {
	if l.flags.duplicate.Swap(false) && !l.duplicateReported {
		l.duplicateReported = true
		l.log.Warn("answers to another robot that runs as " + l.identity.ID +
			" arrive, and are dropped: give one of them another --id")
	}
}

// waitOf returns the event's reason for a failed handshake.
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
func (l *link) lossReason() (event.Loss, string) {
	own := replica.Unseen
	if id := l.flags.serverID.Load(); id != nil && *id != "" {
		own = l.servers.State(*id)
	}
	switch { // the common token exists as long as any server runs
	case own == replica.Gone, own == replica.Unseen && l.tokenLost.Load():
		return event.LossToken, "the server's liveliness token is gone"
	case own == replica.Unseen && l.serverToken.Load() == tokenUnseen:
		// The token may have disappeared before this subscription.
		if l.clock.Now().Sub(l.openedAt) > tokenGrace {
			return event.LossUnseen, "the server's liveliness token has not appeared"
		}
	}
	if l.flags.evicted.Load() {
		return event.LossClosed, "the server closed the session"
	}
	merged := rt.Instant(l.flags.mergedAt.Load())
	asked := rt.Instant(l.flags.askedAt.Load())
	if asked <= merged {
		return 0, "" // no answer is due
	}
	return l.lossOfAnswer(max(asked, l.openedAt))
}

// lossOfAnswer returns the reason why a session is lost whose answer has been due since the instant
// since, 0 when it is not lost. A slow server that answers status queries keeps its session for as
// long as its announced time for a chunk allows.
func (l *link) lossOfAnswer(since rt.Instant) (event.Loss, string) {
	now, p := l.clock.Now(), l.cfg.patience(l.contract.horizon, l.contract.fps)
	quiet, unheard := now.Sub(since), p.unheard()
	if quiet > p.answer(l.flags.knownPace()) {
		return event.LossUnanswered, fmt.Sprintf("no chunk for %.1f s", quiet.Seconds())
	}
	if silent := now.Sub(max(since, l.heardAt)); silent > unheard {
		l.flags.unheard.Store(true)
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
func (l *link) probe(ctx context.Context) {
	merged := rt.Instant(l.flags.mergedAt.Load())
	asked := rt.Instant(l.flags.askedAt.Load())
	now, p := l.clock.Now(), l.cfg.patience(l.contract.horizon, l.contract.fps)
	if asked <= merged || now.Sub(max(asked, l.openedAt)) < p.unheard()/2 || now.Sub(l.probedAt) < p.unheard()/4 {
		return
	}
	l.probedAt = now
	silent := now.Sub(max(asked, l.openedAt, l.heardAt))
	replies, err := l.net.Get(ctx, wire.StatusKey(l.contract.prefix), nil, probeLimit(p.unheard(), silent))
	if err != nil {
		return
	}
	for _, r := range replies {
		var s wire.Status
		if r.Err || wire.ParseStatus(&s, r.Payload) != nil {
			continue
		}
		if id := l.flags.serverID.Load(); id != nil && *id != "" && s.ServerID != *id {
			continue // another replica
		}
		l.heardAt = l.clock.Now()
		if s.InferenceMsP99 > 0 {
			now := paceOf(&s.Capabilities)
			if n := time.Duration(s.ActiveSessions); n > 0 { // one of them is this robot's own
				now.queue = now.queue / n * (n - 1)
			}
			l.flags.said.store(now)
		}
		// later the server lives, but does nothing for this robot
		if l.heardAt.Sub(asked) <= p.answer(l.flags.knownPace()) {
			l.flags.aliveAt.Store(int64(l.heardAt))
		}
	}
}

// reset informs the server that an episode begins, with a new task unless task is empty. The error
// is the reason for a missing acknowledgement, which is harmless without a task.
func (l *link) reset(ctx context.Context, episode uint32, task string) (acked bool, err error) {
	up := l.uplink.Load()
	if l.flags.epoch.Load() == 0 || up == nil {
		return false, errNoService
	}
	key, err := wire.ResetKey(up.prefix, l.identity.ID)
	if err != nil {
		return false, err
	}
	body := wire.AppendReset(nil, &wire.Reset{ClientUUID: l.identity.ID, EpisodeID: episode, Task: task})
	replies, err := l.net.Get(ctx, key, body, resetLimit)
	for _, r := range replies {
		var ack wire.ResetAck
		switch {
		case r.Err || wire.ParseResetAck(&ack, r.Payload) != nil:
		case ack.OK:
			return true, nil
		default:
			err = errors.New(ack.Error)
		}
	}
	if err == nil {
		err = fmt.Errorf("the server did not answer within %v", resetLimit)
	}
	l.log.Warn("the server did not confirm the reset", "session", l.flags.sessionID(), "reset", episode, "err", err)
	return false, err
}

func (l *link) close() {
	if l.flags.epoch.Swap(0) == 0 {
		return
	}
	l.uplink.Store(nil)
	l.closeSession(l.contract.prefix, l.sessionID)
}

func (l *link) closeSession(prefix, session string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	body := wire.AppendSessionClose(nil, &wire.SessionClose{ClientUUID: l.identity.ID, SessionID: session})
	if _, err := l.askSession(ctx, prefix, body, closeTimeout); err != nil {
		l.log.Debug("session close", "session", session, "err", err)
	}
}
