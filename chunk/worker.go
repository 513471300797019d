package chunk

import "edgert/rt"

// worker is LeRobot's engine with one request under way: rtc, append and sync.
// rtc asks while actions for at most Buffer are left, conditions on them, and
// its answer replaces them; the answer to append goes behind them; sync asks
// when none is left.
//
// An answer drops the rows that ran since its observation. A request without an
// answer is asked again after the latency estimate, and then either answer will
// do for rtc, the first for the others, since the second would repeat the motion.
//
// With Compat an answer drops ceil(round trip * fps) rows, whether they ran or
// not, only the newest request may be answered, after RequestTimeout it counts as
// lost, or at once when it came without actions; the announced delay may exceed the
// rows that are sent, and a prefix is filled up with zeros.
//
// Source: lerobot rollout/inference/rtc.py, sync.py; remote.py at b968020.
type worker struct{ lane }

func newWorker(c Config, e Estimator) *worker {
	w := &worker{newLane(c, e)}
	w.dropOld = c.Schedule == ScheduleAppend
	return w
}

//rt:noalloc
func (w *worker) OnChunk(now rt.Instant, c *Chunk) MergeResult {
	q, executed, r := w.admit(now, c)
	if w.c.Compat && r.Outcome == BadShape && c.Rows == 0 && c.Key == w.key {
		w.patience = 0 // the next tick asks again
	}
	if r.Outcome == Joined {
		r.Outcome = w.current(&q)
	}
	if r.Outcome != Joined {
		return w.count(r)
	}
	if w.c.Compat && w.c.Schedule == ScheduleRTC {
		executed = lerobotSteps(r.RTT.Seconds(), w.c.FPS)
	}
	if w.c.Schedule == ScheduleAppend {
		return w.count(w.append(c, r))
	}
	r.Delay = min(executed, c.Rows)
	r.Stored = c.Rows - r.Delay
	if r.Stored == 0 && !w.c.Compat {
		r.Outcome = Late
		return w.count(r)
	}
	w.overlap(c, r.Delay, &r)
	w.queue.Replace(c, r.Delay)
	if r.Stored == 0 {
		r.Outcome = Late // and what was left is gone
	}
	w.merged(c.Key, r.RTT)
	return w.count(r)
}

//rt:noalloc
func (w *worker) append(c *Chunk, r MergeResult) MergeResult {
	if !w.queue.Append(c) {
		r.Outcome = Ahead
		return r
	}
	r.Stored = c.Rows
	w.merged(w.key, r.RTT) // whichever is under way would repeat the motion
	return r
}

// current says whether the answer to q may still be taken.
//
//rt:noalloc
func (w *worker) current(q *Request) Outcome {
	ok := q.Merges == w.merges // nothing was taken since it left
	switch {
	case w.c.Compat:
		ok = q.Key == w.key && w.waited < w.patience
	case w.c.Schedule == ScheduleRTC:
		ok = w.newest.Accept(q.Key)
	}
	if !ok {
		return Older
	}
	return Joined
}

//rt:noalloc
func (w *worker) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	if w.waiting() || !w.due() {
		return false
	}
	a.plain()
	if w.c.Schedule == ScheduleRTC {
		w.condition(a)
	}
	patience := w.recovery()
	if w.c.Compat {
		patience = w.c.ticks(w.c.RequestTimeout)
	}
	w.ask(now, a, w.n+1, patience)
	return true
}

//rt:noalloc
func (w *worker) due() bool {
	if w.c.Schedule == ScheduleSync {
		return w.queue.Len() == 0
	}
	return float64(w.queue.Len())*(1/w.c.FPS) <= w.c.Buffer.Seconds()
}

// condition sends what is left.
//
//rt:noalloc
func (w *worker) condition(a *Ask) {
	a.BothRows = true
	a.PrefixEnd = w.c.Horizon
	if w.c.PrefixEnd > 0 {
		a.PrefixEnd = min(a.PrefixEnd, w.c.PrefixEnd)
	}
	a.Rows, a.ModelRows = w.queue.copyLeft(a.Robot, a.Model, a.PrefixEnd)
	a.Delay = min(w.estimate(), w.c.Horizon)
	if !w.c.Compat {
		a.Delay = min(a.Delay, a.Rows)
		return
	}
	if a.Rows > 0 {
		clear(a.Robot[a.Rows*w.c.DOF : a.PrefixEnd*w.c.DOF])
		clear(a.Model[a.Rows*w.c.DOF : a.PrefixEnd*w.c.DOF])
		if a.ModelRows == a.Rows {
			a.ModelRows = a.PrefixEnd
		}
		a.Rows = a.PrefixEnd
	}
}
