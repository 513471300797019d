package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"edgert/edge/event"
	"edgert/edge/identity"
	"edgert/edge/recording"
	"edgert/edge/replica"
	"edgert/internal/backoff"
	"edgert/internal/exit"
	"edgert/record"
	"edgert/rt"
	"edgert/wire"
)

// Time-outs of the control queries, from LeRobot's draft client.
const (
	statusTimeout = 2 * time.Second
	closeTimeout  = time.Second

	replyPatience = 300 * time.Millisecond // for servers that do not answer, while others have
	unheardWait   = 2 * time.Second        // before those are asked again

	resetLimit = time.Second           // the server's acknowledgement of a reset
	restPoll   = 50 * time.Millisecond // looks for a rest's end, and for a lost session
	tokenGrace = 2 * time.Second       // for the token to appear after the session is open

	compatTimeouts = 3 // lost requests in a row that cost LeRobot's client its session
)

// The server's liveliness token.
const (
	tokenUnseen int32 = iota
	tokenAlive
	tokenGone
)

// contract is what a session was opened on; a later session must offer the same.
type contract struct {
	prefix    string
	model     string
	revision  string
	sha256    string
	fps       float64 // actions per second of the run
	horizon   int
	prefixEnd int
	shapes    []wire.CameraShape // the policy's pictures, where the server says
	steps     int                // observations that the policy looks at together

	simulation bool // the policy is for a simulated arm only
}

// link keeps a session open with one server.
// Owner: the link goroutine, apart from lost.
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
	receive  func(wire.Sample) // a sample of the action topic
	record   *record.Recorder  // nil: nothing is recorded

	contract          contract
	room              int // observations that the run keeps for a policy that looks back; 0: no session yet
	publisher         wire.Publisher
	epoch             uint32
	presenceToken     wire.Declaration // says that this robot is there, in this epoch
	sessionID         string
	tokenBack         atomic.Bool     // transport: the server's liveliness token came (back); ends a rest
	tokenLost         atomic.Bool     // transport: it went away since the handshake began, even if it is back
	serverToken       atomic.Int32    // whether it is there, written by the transport too
	servers           replica.Servers // of the service, each by its own token
	openedAt          rt.Instant
	opened            atomic.Uint64
	lastError         string // connect's, so that it is logged once
	duplicateReported bool
	toldUnconditioned bool
	toldPace          time.Duration // of a chunk, when its limits were logged last
	toldAge           time.Duration // that actions may have, as it was logged last
	probedAt          rt.Instant    // when the server was last asked whether it lives
	heardAt           rt.Instant    // when it last said so while an answer was due
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
	var reasons backoff.Longest // other than ctx's end
	for ended := l.clock.Now(); ; {
		err := l.handshake(ctx)
		if err == nil {
			return nil
		}
		if exit.Of(err) != exit.Failure {
			return err
		}
		now := l.clock.Now()
		if reasons.Last() == nil || ctx.Err() == nil || !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
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
			recording.Note(l.record, l.clock, event.SessionWaits, record.LevelWarning, int64(waitOf(err)), 0, "no session: "+text)
		}
		if !l.rest(ctx, wait, true) {
			return gaveUpConnecting(ctx, &reasons)
		}
	}
}

// gaveUpConnecting names the error that lasted longest, which is the cause, and the last.
func gaveUpConnecting(ctx context.Context, reasons *backoff.Longest) error {
	longest, last := reasons.Err(), reasons.Last()
	if longest == nil || longest.Error() == last.Error() {
		return fmt.Errorf("%w (last: %w)", context.Cause(ctx), last)
	}
	return fmt.Errorf("%w (most of the time: %w; last: %s)", context.Cause(ctx), longest, last.Error())
}

// rest sleeps for d, or until ctx ends; with eager also until the server returns.
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

// checkPace logs what the answers of late say about the run's limits. The error says that no
// action can run.
func (l *link) checkPace() error {
	l.tellPace()
	if !l.flags.tooSlow.Load() {
		return nil
	}
	p := l.cfg.patience(l.contract.horizon, l.contract.fps)
	return p.hopeless(l.flags.knownPace())
}

// warnDuplicate warns, once a run, of another robot with this id: it takes our requests.
func (l *link) warnDuplicate() {
	if l.flags.duplicate.Swap(false) && !l.duplicateReported {
		l.duplicateReported = true
		l.log.Warn("answers to another robot that runs as " + l.identity.ID + " arrive, and are dropped: give one of them another --id")
	}
}

// waitOf is why no session could be opened.
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

// lossReason returns why the open session is lost, 0 when it is not.
func (l *link) lossReason() (event.Loss, string) {
	own := replica.Unseen
	if id := l.flags.serverID.Load(); id != nil && *id != "" {
		own = l.servers.State(*id)
	}
	switch { // the common token is there as long as any server is
	case own == replica.Gone, own == replica.Unseen && l.tokenLost.Load():
		return event.LossToken, "the server's liveliness token is gone"
	case own == replica.Unseen && l.serverToken.Load() == tokenUnseen:
		// It may have gone before the subscription that watches it.
		if l.clock.Now().Sub(l.openedAt) > tokenGrace {
			return event.LossUnseen, "the server's liveliness token does not show"
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

// lossOfAnswer says why the session is lost whose answer has been due since an instant. A
// server that lives and says so is slow, and keeps the session for as long as it says that a
// chunk may take.
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

// probeLimit is for how long a server of a far link has time to say that it lives, when it
// may be silent for so long and has been for a part of that.
func probeLimit(unheard, silent time.Duration) time.Duration {
	return min(statusTimeout, max(unheard-silent, replyPatience), unheard/2)
}

// probe asks the server whether it lives while an answer is overdue, in good time before it
// would count as lost.
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
			if n := time.Duration(s.ActiveSessions); n > 0 { // this robot's own is one of them
				now.queue = now.queue / n * (n - 1)
			}
			l.flags.said.store(now)
		}
		if l.heardAt.Sub(asked) <= p.answer(l.flags.knownPace()) { // else it lives and does nothing for us
			l.flags.aliveAt.Store(int64(l.heardAt))
		}
	}
}

// reset tells the server that an episode begins, and with which task unless that is
// empty. The error says why there is no acknowledgement; without a task that does no
// harm.
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
