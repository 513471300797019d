package recording

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// A record has room for every permitted task.
const _ = uint(record.MaxTask - wire.MaxTextBytes)

// Note records an event of a thread other than the tick's: a code with its numbers, which edge-rt
// why evaluates, and a text. Any thread may call it; r may be nil.
func Note(r *record.Recorder, clock rt.Clock, code event.Code, level uint32, a, b int64, text string) {
	r.NoteEvent(clock.Now(), code.Kind(), level, uint32(code), a, b, []byte(text))
}

// Note records an event in this record.
func (r *Recording) Note(code event.Code, level uint32, a, b int64, text string) {
	if r != nil {
		Note(r.Recorder, r.cfg.Clock, code, level, a, b, text)
	}
}

// Operator records a command and its result.
func (r *Recording) Operator(line string, err error) {
	level := uint32(record.LevelInfo)
	text := line
	refused := int64(0)
	if err != nil {
		level = record.LevelWarning
		text = line + ": " + err.Error()
		refused = 1
	}
	word, _, _ := strings.Cut(line, " ")
	command, _ := operator.Find(word) // a word that Find does not know has the Number of event.WordOther
	r.Note(event.Operated, level, int64(command.Number), refused, text)
}

var notices = map[wire.EventCode]event.NoticeKind{
	wire.EventDraining: event.NoticeDraining, wire.EventBadObservation: event.NoticeBadObservation,
	wire.EventUnknownSession: event.NoticeUnknownSession, wire.EventLate: event.NoticeLate,
	wire.EventModel:       event.NoticeModel,
	wire.EventUnavailable: event.NoticeUnavailable,
}

// Notice records a message of the server that is no chunk.
func (r *Recording) Notice(n wire.Event) {
	r.Note(event.Notice, record.LevelWarning, int64(notices[n.Code]), int64(n.Seq), string(n.Code)+": "+n.Text)
}

// Links returns a function that records opened and closed connections. If several attempts in a row fail, it records
// the first attempt, and each attempt that fails for another reason than the previous attempt.
func (r *Recording) Links() func(zenoh.LinkEvent) {
	var last atomic.Int64 // reason recorded last, plus 1; 0: the connection is open
	return func(l zenoh.LinkEvent) {
		if l.Up {
			last.Store(0)
			r.Note(event.LinkUp, record.LevelInfo, 0, 0, "connected to "+l.Endpoint)
			return
		}
		why := whyDown(l.Err)
		if last.Swap(int64(why)+1) != int64(why)+1 {
			r.Note(event.LinkDown, record.LevelWarning, int64(why), 0,
				fmt.Sprintf("no connection to %s: %v", l.Endpoint, l.Err))
		}
	}
}

// whyDown classifies the error of a connection that ended or could not be opened.
func whyDown(err error) event.Why {
	var closed *link.CloseError
	var slow net.Error
	switch {
	case errors.Is(err, link.ErrExpired), errors.Is(err, link.ErrUnconfirmed), errors.Is(err, link.ErrStalled):
		return event.WhySilent
	case errors.As(err, &closed) && (closed.Reason == codec.CloseExpired || closed.Reason == codec.CloseUnresponsive):
		return event.WhySilent // the other end received nothing, and therefore closed the connection
	case errors.As(err, &closed), errors.Is(err, link.ErrEOF), errors.Is(err, unix.ECONNRESET),
		errors.Is(err, unix.EPIPE):
		return event.WhyClosed
	case errors.Is(err, unix.ECONNREFUSED):
		return event.WhyRefused
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENETDOWN):
		return event.WhyUnreachable
	case errors.Is(err, unix.ETIMEDOUT), errors.As(err, &slow) && slow.Timeout():
		return event.WhySilent
	}
	return event.WhyOther
}
