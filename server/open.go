package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/capacity"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/peers"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/server/rollout"
	"github.com/edge-rt/edge-rt/wire"
)

// phase records which stages of its life the server has reached.
//
// Atomic.
type phase struct {
	warmed   atomic.Bool // warm-up is over
	serving  atomic.Bool // everything is declared
	draining atomic.Bool
}

// opener opens, replaces and ends sessions, and announces to the other servers which robots this server holds and
// whether it has room.
//
// Owner: housekeeping.
type opener struct {
	// Constant.
	cfg        *manifest.Config
	prefix     string // beginning of the service's keys
	id         string // server_id
	caps       wire.Capabilities
	meta       *policy.Meta
	tasks      *taskReader
	statistics string // statistics of the training's observations, for robots
	typical    int64  // memory that a robot with the policy's cameras needs, in bytes

	network  wire.Session
	clock    rt.Clock
	log      *slog.Logger
	phase    *phase
	sessions *registry
	others   *peers.Others
	memory   *memory.Bound // bound on the memory of the robots
	pool     *queue.Pool   // pool of the mailboxes
	stats    *stats
	events   *events
	receive  func(wire.Sample) // handler of observations
	// signals that the number of sessions has changed, here or at another server of this process
	counted queue.Signal
	counter *quota.Counter
	auto    *capacity.Auto   // max_sessions: auto; nil: max_sessions is a number
	sizes   *batch.Sizes     // the worker's expected durations of runs
	tally   *tally           // tally of the model's runs
	rollout *rollout.Keeper  // nil: there is one model
	second  bool             // this server has the new model of rollout
	room    wire.Declaration // token that announces room for a session; nil: the token is not declared
}

// paceRequests is the number of requests after which the time between a robot's requests counts as
// known.
const paceRequests = 10

// feeds checks, for max_sessions: auto, whether the server can feed all robots and the new one. If not, it checks
// whether the new robot can replace an idle robot that needs at least as much. The parameter idle is the session that
// the earlier checks would close, or nil. The result loser is the session that has to be closed in the end. The first
// robot is always admitted, and so is a robot that opens again.
func (o *opener) feeds(asked *wire.SessionOpen, a *admission, idle *session) (r *refusal, loser *session) {
	if o.auto == nil || a.active == 0 || o.sessions.find(asked.ClientUUID) != nil {
		return nil, idle
	}
	robot := o.auto.Robot(asked.FPS, 0)
	whyNot := o.auto.Refuse(robot, o.stats.changes(), func() []capacity.Robot { return o.robots(asked.ClientUUID) })
	if whyNot == "" {
		return nil, idle
	}
	if loser = o.replaceable(asked.ClientUUID, a.place, robot.FPS); loser != nil && (idle == nil || idle == loser) {
		return nil, loser
	}
	return &refusal{refusedFull,
		fmt.Sprintf("server full: %d sessions active, and with one more %s: open at another server, or try again later",
			a.active, whyNot)}, nil
}

// robots returns the robots that have a session, except the robot with the id "but", whose session would be replaced.
func (o *opener) robots(but string) (list []capacity.Robot) {
	now := o.clock.Now()
	for _, s := range o.sessions.everywhere() {
		if s.uuid == but {
			continue
		}
		var every time.Duration
		if n := s.received.Load(); n >= paceRequests {
			every = now.Sub(s.since) / time.Duration(n)
		}
		list = append(list, o.auto.Robot(s.fps, every))
	}
	return list
}

// measure determines again, for max_sessions: auto, how many sessions the server can feed at the
// present load.
func (o *opener) measure() {
	if o.auto == nil {
		return
	}
	fed := o.auto.Measure(o.stats.outcomes[audit.Answered].Load(), o.stats.changes(), int(o.sessions.fed.Load()),
		func() []capacity.Robot {
			return o.robots("")
		})
	if old := o.sessions.fed.Swap(int32(fed)); int(old) != fed {
		o.counted.Wake()
	}
}

// open validates and registers a session. It replaces the robot's earlier session, if there is one, whose publisher
// and subscriber the new session uses. The parameter from is the origin of the query, see wire.Query.
func (o *opener) open(asked *wire.SessionOpen, from wire.Origin) wire.SessionAck {
	ack := wire.SessionAck{
		SchemaVersion: wire.SchemaVersion,
		ServerID:      o.id,
		Draining:      o.phase.draining.Load(),
		MaxSessions:   int(o.sessions.fed.Load()),
	}
	admission, idle := o.admission(asked, from)
	r := cmp.Or(o.otherModel(asked), admission.check())
	if r == nil && ack.Draining {
		r = &refusal{refusedDraining, drainingText}
	}
	if r == nil {
		r = admission.share()
	}
	if r == nil {
		r, idle = o.feeds(asked, &admission, idle)
	}
	if r == nil {
		r, ack.HeldBy = o.checkOwner(asked, from)
	}
	var session *session
	if r == nil {
		var err error
		if session, err = o.newSession(asked, &admission); errors.Is(err, errNoMemory) {
			r = &refusal{refusedMemory, fmt.Sprintf("no memory for one more session: %v: open at another server, or "+
				"raise memory in the server's manifest", o.memory)}
		} else if err != nil {
			r = &refusal{refusedInternal, "server error: " + err.Error()}
		}
	}
	if r != nil {
		o.refuse(asked, &ack, r)
		return ack
	}
	if idle != nil {
		o.evict(idle, "it sends no observation that can be answered, and another robot needs its place: open again")
		o.stats.displaced.Add(1)
	}
	session.from = from
	tags, kept := audit.Tags(asked.Tags)
	if session.tags = tags; kept < len(asked.Tags) {
		admission.warnings = append(admission.warnings, fmt.Sprintf(
			"%d tags are too long together: the log and the audit have only the first %d", len(asked.Tags), kept))
	}
	if err := o.show(session); err != nil {
		o.log.Warn("a session is not announced to the other servers", "client", session.uuid, "session", session.id,
			"why", err)
	}
	o.register(session)
	o.log.Info("session open", "client", session.uuid, "session", session.id, "robot", asked.RobotType,
		"host", asked.Host,
		"fps", asked.FPS, "rtc", session.rtc,
		"sessions", fmt.Sprintf("%d/%d", o.sessions.count(), o.sessions.capacity()),
		"warnings", len(admission.warnings),
		"tags", tagText(asked.Tags[:kept]))
	for _, text := range admission.warnings {
		o.log.Warn("session opened with a warning", "client", session.uuid, "session", session.id, "why", text)
	}
	ack.Accepted = true
	ack.Warnings = admission.warnings
	ack.SessionID = session.id
	ack.Capabilities, ack.ServerLoad = o.capabilities(len(o.sessions.all())-1), o.sessions.load()
	ack.SupportsRTC = session.rtc
	ack.Nonce = session.nonce
	ack.Simulation, ack.Statistics = o.meta.SimulationOnly, o.trained(session)
	return ack
}

// otherModel refuses a robot for which the roll-out has the other model; the robot asks the server of that model next.
// It refuses neither a run that is bound to this server's model, nor a robot that names no server in its open.
func (o *opener) otherModel(asked *wire.SessionOpen) *refusal {
	r, bound := o.rollout.Report(), asked.ModelSHA256
	switch {
	case strings.HasPrefix(o.caps.ModelSHA256, bound) && bound != "":
	case bound != "" && !o.second && r.Expects(bound):
		return &refusal{refusedModel, fmt.Sprintf("this robot's run is bound to the model with sha256 %.12s, which "+
			"another server of this process serves, or will when it is loaded", bound)}
	case bound != "" || asked.ServerID == "":
	case r.New(asked.ClientUUID) != o.second:
		return &refusal{refusedModel, "the roll-out has another model for this robot: open at the server of that model"}
	}
	return nil
}

// modelInterval is the longest time between two events that inform a robot of the roll-out's other model for it.
const modelInterval = time.Minute

// informOfModel informs a robot that the roll-out has the other model for it. It repeats the event, at first after a
// second, because a router may lose the event, and a robot without the event begins its next episode with the old
// model.
func (o *opener) informOfModel(s *session, now rt.Instant) {
	switch {
	case o.rollout.Report().New(s.uuid) == o.second:
		s.movedFirst = 0
	case s.extended && (s.movedFirst == 0 ||
		now.Sub(s.movedTold) >= min(modelInterval, max(housekeepingInterval, s.movedTold.Sub(s.movedFirst)))):
		s.movedFirst, s.movedTold = cmp.Or(s.movedFirst, now), now
		o.events.writer.inform(s, wire.EventModel, "this service has another model for this robot: a run with "+
			"--model-change episode takes it between two episodes, another run keeps its model to its end")
	}
}

// trained returns the statistics of the training for a robot whose client reads the optional keys; "" for other robots.
func (o *opener) trained(s *session) string {
	if s.extended {
		return o.statistics
	}
	return ""
}

// refuse counts and logs a refusal, and sets ack to the refusal.
func (o *opener) refuse(asked *wire.SessionOpen, ack *wire.SessionAck, r *refusal) {
	o.stats.refused[r.reason].Add(1)
	level := slog.LevelWarn
	if r.reason == refusedModel { // the robot asks the other server next
		level = slog.LevelInfo
	}
	o.log.Log(context.Background(), level, "session refused", "client", asked.ClientUUID, "epoch", asked.SessionEpoch,
		"reason", r.reason.String(),
		"why", r.text)
	ack.Error, ack.ServerLoad = r.text, o.sessions.load()
	ack.RetryAfterMs = refusals[r.reason].retryAfter
}

// admission returns the inputs of the checks of an open. The result idle is the session that would have to be closed
// to make room. The result is nil when there is room or when no session may be closed.
func (o *opener) admission(asked *wire.SessionOpen, from wire.Origin) (a admission, idle *session) {
	a = admission{
		caps:     o.caps,
		cameras:  o.meta.Cameras,
		cfg:      o.cfg,
		tasks:    o.tasks,
		observed: o.meta.Steps(),
		meta:     o.meta,
		open:     asked,
		limit:    o.sessions.limit,
		active:   o.sessions.others(asked.ClientUUID),
		place:    o.counter.Place(from),
		memory:   o.memory,
		promised: o.sessions.promises(asked.ClientUUID),
		asked:    observationBytes(o.meta, &o.caps, asked),
	}
	if own := o.sessions.find(asked.ClientUUID); own != nil {
		a.own = own.place
	} else if other := o.sessions.beside.Load(); other != nil && other.find(asked.ClientUUID) != nil {
		a.own = other.find(asked.ClientUUID).place
	}
	if a.active < a.limit && a.promised+sessionNeed(o.meta, a.asked) <= o.memory.Promisable() {
		return a, nil
	}
	if idle = o.replaceable(asked.ClientUUID, a.place, 0); idle != nil {
		a.active--
		a.promised -= idle.memory
	}
	return a, idle
}

// replaceable returns a session that may be closed for a newcomer, or nil when there is no such
// session. A session may be closed when its robot vanished without ever showing a token. A session
// may also be closed when it was opened at least idleGrace ago and has not streamed since; then its
// link and host must have at least as many sessions as the newcomer's would have. Of several such
// sessions, replaceable takes the oldest of the link with the most sessions. It never takes the
// session of a robot with a rate below fps.
func (o *opener) replaceable(newcomer string, place quota.Place, fps float64) (idle *session) {
	now := o.clock.Now()
	for _, s := range o.sessions.all() {
		if s.uuid == newcomer || fps > 0 && o.auto.Robot(s.fps, 0).FPS < fps {
			continue
		}
		if s.vanished(now) {
			return s
		}
		if s.streams() || now.Sub(s.since) < idleGrace || !s.place.Above(place) {
			continue
		}
		if idle == nil || s.place.Above(idle.place) || !idle.place.Above(s.place) && s.since < idle.since {
			idle = s
		}
	}
	return idle
}

// tagText formats a robot's tags for the log: k=v, separated by commas.
func tagText(tags []wire.Tag) string {
	all := make([]string, len(tags))
	for i, t := range tags {
		all[i] = t.Key + "=" + t.Value
	}
	return strings.Join(all, ",")
}

// checkOwner refuses a second process that uses the name of a running robot, and returns the host of the running
// process. A client that names no instance is identified by its link or certificate. When a router passes their queries
// on, two such clients cannot be distinguished.
func (o *opener) checkOwner(asked *wire.SessionOpen, from wire.Origin) (r *refusal, host string) {
	owner := o.sessions.find(asked.ClientUUID)
	if other, elsewhere := o.others.Holder(asked.ClientUUID); elsewhere && owner == nil && asked.Instance != "" &&
		other.Mark != wire.HeldMark("", "") && other.Mark != wire.HeldMark(asked.ClientUUID, asked.Instance) {
		// The server that holds the session can check whether its robot is still alive, and accepts the new robot if it
		// is not.
		return &refusal{refusedTaken,
			fmt.Sprintf("client %s is open at server %s: give one of the two robots another id",
				pyString(asked.ClientUUID),
				other.Server)}, wire.HostUnknown
	}
	switch {
	case owner == nil || !owner.owned(o.clock.Now()):
		return nil, ""
	case owner.instance == asked.Instance && (asked.Instance != "" || owner.from == from):
		return nil, ""
	case asked.Instance == "" && from.Name != "" && owner.from == from:
		return nil, ""
	}
	host = cmp.Or(owner.host, wire.HostUnknown)
	return &refusal{refusedTaken, fmt.Sprintf("client %s is open on host %s: give one of the two robots another id",
		pyString(asked.ClientUUID), host)}, host
}

func (o *opener) register(session *session) {
	session.place = session.place.Enter()
	session.meter = o.counter.Meter(session.uuid)
	o.sessions.promised.Add(session.memory)
	if displaced := o.sessions.add(session); displaced != nil {
		o.stats.closed.Add(1)
		o.release(displaced)
		if displaced.held != nil {
			_ = displaced.held.Undeclare() // after an error the token stays declared, which does little harm
		}
	}
	o.stats.opened.Add(1)
	o.counted.Wake()
	if o.phase.draining.Load() { // draining has begun meanwhile, and this robot has got no event
		o.events.writer.inform(session, wire.EventDraining, drainingText)
	}
}

// release makes the memory and the quota place of a session free again.
func (o *opener) release(s *session) {
	s.mailbox.Close()
	s.place.Leave()
	o.counter.Release(s.meter, o.clock.Now())
	o.sessions.promised.Add(-s.memory)
	o.memory.Release(memory.Sessions, sessionMemory(o.meta))
}

func (o *opener) newSession(asked *wire.SessionOpen, a *admission) (*session, error) {
	own := sessionMemory(o.meta)
	if !o.memory.Take(memory.Sessions, own) {
		o.pool.DropFree()
		if !o.memory.Take(memory.Sessions, own) {
			return nil, errNoMemory
		}
	}
	session := newSession(asked.ClientUUID, o.pool, a.asked)
	session.opened = a.opened
	session.place = a.place
	session.memory = sessionNeed(o.meta, a.asked)
	session.rtc = asked.RTCEnabled && !a.downgraded
	if session.rtc {
		session.history = policy.NewHistory(o.meta.ChunkSize, o.meta.ActionDim)
	}
	session.extended = asked.ServerID != "" || asked.SessionEpoch > 0
	session.noise = policy.NewNoiseKey(o.caps.ModelSHA256, asked.ClientUUID)
	session.instance, session.host = asked.Instance, asked.Host
	if asked.Instance != "" {
		session.nonce = randomNonce()
	}
	session.since, session.fps = o.clock.Now(), asked.FPS
	session.seenAt.Store(int64(session.since))
	session.epoch = asked.SessionEpoch
	if asked.SessionEpoch > 0 {
		session.tokenEpoch.Store(int64(asked.SessionEpoch))
	}
	if old := o.sessions.find(asked.ClientUUID); old != nil {
		session.actions, session.obs = old.actions, old.obs
		return session, nil
	}
	if err := o.listen(session); err != nil {
		_ = session.withdraw() // after an error the token stays declared, which does little harm
		o.memory.Release(memory.Sessions, own)
		return nil, err
	}
	return session, nil
}

// listen declares the publisher of a robot's chunks and the subscriber of its observations. Only the server that holds
// the session subscribes, so that no other server computes the same chunks.
func (o *opener) listen(s *session) error {
	action, err1 := wire.ActionKey(o.prefix, s.uuid)
	obs, err2 := wire.ObsKey(o.prefix, s.uuid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var err error
	if s.actions, err = o.network.Publisher(action, wire.ActionQoS); err != nil {
		return err
	}
	s.obs, err = o.network.Subscribe(obs, o.receive)
	return err
}

// token returns the token that announces the session to the other servers.
func (o *opener) token(s *session) wire.Held {
	return wire.Held{
		UUID:   s.uuid,
		Server: o.id,
		Mark:   wire.HeldMark(s.uuid, s.instance),
		Epoch:  s.epoch,
	}
}

// show announces the session to the other servers.
func (o *opener) show(s *session) error {
	h := o.token(s)
	key, err := wire.HeldKey(o.prefix, h.UUID, h.Server, h.Mark, h.Epoch)
	if err != nil {
		return err
	}
	s.held, err = o.network.Token(key)
	return err
}

// dropMoved closes each session whose robot also has a session at another server, if it is this server that must give
// the session up. A robot that has moved needs no event. If another robot of the same name has the other session, this
// server's robot gets an event that its session has ended.
func (o *opener) dropMoved() {
	for _, session := range o.sessions.all() {
		other, elsewhere := o.others.Holder(session.uuid)
		if !elsewhere {
			continue
		}
		loses, moved := o.others.Loses(o.token(session), other)
		switch {
		case loses && moved:
			o.drop(session, "it is open at "+other.Server)
		case loses:
			o.evict(session, "another robot of this name is open at "+other.Server)
		}
	}
}

// announceRoom declares or withdraws the token that announces room for a session. By these tokens, the servers of a
// service divide the robots that name no server among themselves.
func (o *opener) announceRoom() {
	room := o.phase.serving.Load() && !o.phase.draining.Load() && o.sessions.count() < o.sessions.capacity() &&
		o.sessions.promises("")+o.typical <= o.memory.Promisable()
	var err error
	switch {
	case room && o.room == nil:
		o.room, err = o.network.Token(wire.ReplicaRoomKey(o.prefix, o.id))
	case !room:
		err = o.withdrawRoom()
	}
	if err != nil {
		o.log.Warn("the room for sessions is not announced to the other servers", "why", err)
	}
}

func (o *opener) withdrawRoom() error {
	if o.room == nil {
		return nil
	}
	token := o.room
	o.room = nil
	return token.Undeclare()
}

// close ends the session that c names. It ignores a stale session id, and a robot without a session. A close without an
// id is refused unless it comes from the link or certificate that opened the session.
func (o *opener) close(c *wire.SessionClose, from wire.Origin) error {
	session := o.sessions.find(c.ClientUUID)
	switch {
	case session == nil || c.SessionID != "" && c.SessionID != session.id:
		return nil
	case c.SessionID == "" && (from.Name == "" || from != session.from):
		return fmt.Errorf("client %s: a close without session_id is accepted only from the link that opened the "+
			"session: name the session_id of the open's answer", pyString(c.ClientUUID))
	}
	o.drop(session, "the client closed it")
	return nil
}

// evict drops a session that its robot may still use, and informs the robot.
func (o *opener) evict(session *session, why string) {
	if session.extended { // a client of the draft would treat the event as a lost chunk
		o.events.writer.inform(session, wire.EventUnknownSession, why)
	}
	o.drop(session, why)
}

// drop removes a session and withdraws its declarations.
func (o *opener) drop(session *session, why string) {
	if !o.sessions.remove(session) {
		return
	}
	o.release(session)
	o.stats.closed.Add(1)
	o.log.Info("session closed", "client", session.uuid, "session", session.id, "why", why,
		"sessions", fmt.Sprintf("%d/%d", o.sessions.count(), o.sessions.capacity()),
		"stale_pictures", session.stalePictures.Load(), "warned_pictures", session.strayPictures.Load())
	if err := session.withdraw(); err != nil {
		o.log.Warn("a session was not withdrawn", "client", session.uuid, "session", session.id, "why", err)
	}
	o.counted.Wake()
}

var errNoMemory = errors.New("no memory")

// capabilities returns the announcement of the policy, with the times that a chunk is expected to take. The parameter
// others is the number of other robots that send requests.
func (o *opener) capabilities(others int) wire.Capabilities {
	c := o.caps
	c.WarmedUp = o.phase.warmed.Load()
	c.InferenceMsMin, c.InferenceMsP99 = ms(time.Duration(o.tally.pace.least.Load())), ms(o.tally.slowest())
	c.QueueWaitMs = ms(o.sizes.Wait(others))
	return c
}
