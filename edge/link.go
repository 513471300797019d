package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

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
	linkPoll      = 50 * time.Millisecond // for a lost session
	tokenGrace    = 2 * time.Second       // for the token to appear after the session is open

	compatTimeouts = 3 // lost requests in a row that cost LeRobot's client its session
)

// The server's liveliness token.
const (
	tokenUnseen int32 = iota
	tokenAlive
	tokenGone
)

// link keeps a session open with one server.
// Owner: the link goroutine, apart from lost.
type link struct {
	// Constant after Open.
	cfg      *Config
	identity *identity
	names    []string // action names in order
	units    []string // of each
	log      *slog.Logger
	clock    rt.Clock
	net      wire.Session
	flags    *linkFlags
	uplink   *atomic.Pointer[uplink]
	receive  func(wire.Sample) // a sample of the action topic

	contract          contract
	publisher         wire.Publisher
	epoch             uint32
	presenceToken     wire.Declaration // of this robot and epoch
	sessionID         string
	tokenBack         atomic.Bool  // transport: the server's liveliness token came (back); ends a rest
	tokenLost         atomic.Bool  // transport: it went away since the handshake began, even if it is back
	serverToken       atomic.Int32 // whether it is there, written by the transport too
	openedAt          rt.Instant
	opened            atomic.Uint64
	lastError         string // of connect, so that it is logged once
	duplicateReported bool
}

// handshake opens a session. An error is final only if it has an exit code.
func (l *link) handshake(ctx context.Context) error {
	l.tokenLost.Store(false)
	prefix, err := l.find(ctx)
	if err != nil {
		return err
	}
	l.epoch = l.identity.nextEpoch()
	ack, err := l.open(ctx, prefix)
	if err != nil {
		return err
	}
	t, err := l.checkContract(prefix, ack)
	if err == nil {
		err = l.declare(prefix)
	}
	if err == nil {
		err = l.announce(prefix)
	}
	if err != nil {
		l.closeSession(prefix, ack.SessionID) // or it would hold a place until it idles out
		return err
	}
	for _, w := range ack.Warnings {
		l.log.Warn("server: " + w)
	}
	l.contract, l.sessionID = t, ack.SessionID
	l.flags.evicted.Store(false)
	l.serverToken.CompareAndSwap(tokenGone, tokenUnseen) // it is back, or find would not have found it
	l.openedAt = l.clock.Now()
	l.opened.Add(1)
	l.lastError = ""
	l.flags.noSession.Store(nil)
	l.uplink.Store(&uplink{publisher: l.publisher, prefix: prefix, epoch: l.epoch, old: ack.T == 0})
	l.flags.nonce.Store(ack.Nonce)
	l.flags.session.Store(&record.Session{ID: ack.SessionID, Epoch: l.epoch, Model: t.model, Revision: t.revision, SHA256: t.sha256})
	l.flags.server.Store(&ServerSummary{t.model, t.revision, t.sha256, prefix})
	l.flags.epoch.Store(l.epoch)
	l.log.Info("session open", "service", prefix, "model", t.model, "revision", t.revision, "session", ack.SessionID, "epoch", l.epoch)
	return nil
}

// declare declares the robot's keys once; the transport repeats it after a reconnect.
func (l *link) declare(prefix string) error {
	if l.publisher != nil {
		return nil
	}
	obs, err1 := wire.ObsKey(prefix, l.identity.ID)
	action, err2 := wire.ActionKey(prefix, l.identity.ID)
	alive, err3 := wire.ClientAliveKey(prefix, l.identity.ID)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if _, err := l.net.Subscribe(action, l.receive); err != nil {
		return err
	}
	publisher, err := l.net.Publisher(obs, wire.ObservationQoS)
	if err != nil {
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

// announce replaces this robot's liveliness token by that of the session's epoch.
func (l *link) announce(prefix string) error {
	key, err := wire.EpochAliveKey(prefix, l.identity.ID, l.epoch)
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

// connect repeats the handshake until success, a final refusal or ctx's end.
func (l *link) connect(ctx context.Context) error {
	retry := backoff.Backoff{First: l.cfg.ReconnectInitialBackoff, Max: l.cfg.ReconnectMaxBackoff}
	var last error // other than a timeout
	for {
		err := l.handshake(ctx)
		if err == nil {
			return nil
		}
		if exit.Of(err) != exit.Failure {
			return err
		}
		if last == nil || !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), last)
		}
		level, wait := slog.LevelInfo, retry.Next()
		if later := (*temporaryError)(nil); errors.As(err, &later) {
			level = slog.LevelWarn
			if later.after > 0 {
				wait = min(wait, later.after)
			}
		}
		if text := err.Error(); text != l.lastError {
			l.log.Log(ctx, level, "no session yet, trying again", "why", text)
			l.lastError = text
			l.flags.noSession.Store(&text)
		}
		if !l.rest(ctx, wait, true) {
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), last)
		}
	}
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
		l.clock.SleepUntil(min(end, l.clock.Now().Add(linkPoll)))
	}
	return ctx.Err() == nil
}

// maintain replaces a lost session, until ctx ends or a refusal is final.
func (l *link) maintain(ctx context.Context) error {
	for l.rest(ctx, linkPoll, false) {
		l.warnDuplicate()
		why := l.lossReason()
		if why == "" {
			continue
		}
		l.log.Warn("session lost", "why", why)
		l.flags.epoch.Store(0)
		l.uplink.Store(nil)
		l.flags.lost.Store(true)
		l.tokenBack.Store(false)
		if err := l.connect(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			l.flags.refused.Store(true)
			return err
		}
	}
	return nil
}

// warnDuplicate warns, once a run, of another robot with this id: it takes our requests.
func (l *link) warnDuplicate() {
	if l.flags.duplicate.Swap(false) && !l.duplicateReported {
		l.duplicateReported = true
		l.log.Warn("answers to another robot that runs as " + l.identity.ID + " arrive, and are dropped: give one of them another --id")
	}
}

// lossReason returns why the open session is lost, empty when it is not.
func (l *link) lossReason() string {
	if l.tokenLost.Load() {
		return "the server's liveliness token is gone"
	}
	if l.serverToken.Load() == tokenUnseen {
		// It may have gone before the subscription that watches it.
		if l.clock.Now().Sub(l.openedAt) > tokenGrace {
			return "the server's liveliness token does not show"
		}
	}
	if l.flags.evicted.Load() {
		return "the server closed the session"
	}
	merged := rt.Instant(l.flags.mergedAt.Load())
	if rt.Instant(l.flags.askedAt.Load()) <= merged {
		return "" // no answer is due
	}
	patience := l.cfg.RequestTimeout
	if l.cfg.Schedule.Compat {
		patience *= compatTimeouts
	}
	if quiet := l.clock.Now().Sub(max(merged, l.openedAt)); quiet > patience {
		return fmt.Sprintf("no chunk for %.1f s", quiet.Seconds())
	}
	return ""
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
	if _, err := l.net.Get(ctx, wire.SessionKey(prefix), body, closeTimeout); err != nil {
		l.log.Debug("session close", "err", err)
	}
}
