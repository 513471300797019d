package server

import (
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/webpage/metric"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/peers"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/wire"
	zenohaccess "github.com/edge-rt/edge-rt/wire/zenoh/access"
)

// stats counts events since the server's start. It includes the events of a roll-out's second model.
//
// Atomic; the histograms are written by the workers.
type stats struct {
	outcomes   [audit.NumOutcomes]atomic.Uint64 // requests that had their turn
	superseded atomic.Uint64                    // observations replaced by a newer one before their turn
	late       atomic.Uint64                    // observations refused: not newer than the newest received
	noRoom     atomic.Uint64                    // observations refused: the pool is used up
	// Observations that waited while other robots were served first, because their robot's actions would end before any
	// chunk could arrive.
	passedOver atomic.Uint64
	// inferences after which a robot has to wait for its quota
	held      [quota.NumKinds]atomic.Uint64
	unknown   atomic.Uint64 // observations of robots without a session
	malformed atomic.Uint64 // samples without a proper header, or too large
	lostQuery atomic.Uint64 // queries refused because too many were waiting
	silenced  atomic.Uint64 // events not sent: one was sent a moment before, or too many wait
	replaced  atomic.Uint64 // chunks replaced by a newer one before they left

	receivedBytes atomic.Uint64 // all observations, served or not
	sentBytes     atomic.Uint64 // all chunks

	opened    atomic.Uint64
	closed    atomic.Uint64
	displaced atomic.Uint64 // sessions, of those in closed, that were closed for another robot
	refused   [numRefused]atomic.Uint64

	modes    [policy.ModeTrainedGuided + 1]atomic.Uint64 // requests by policy.Mode
	spans    [numSpanUses]atomic.Uint64                  // requests by the result of their spans
	stale    [policy.MaxCameras]atomic.Uint64            // pictures older than their robot allows, by camera
	stray    [policy.MaxCameras]atomic.Uint64            // pictures with stray bytes, used nevertheless, by camera
	squeezed [policy.MaxCameras]atomic.Uint64            // pictures of another shape than the policy's, by camera

	// runs that failed, ran out of memory, hung or returned values that are not finite
	failures [numFailures]atomic.Uint64
	probes   [numProbes]atomic.Uint64 // the server's own runs, by their result

	batches [manifest.MaxBatch]atomic.Uint64 // runs by their number of requests, less one
	reruns  atomic.Uint64                    // batches that failed and ran again one by one

	fronts front.Counts

	wait      *durations // time from arrival to the run, without decoding
	runway    *durations // runway at an observation's arrival, if the robot reports it
	decode    *durations // parsing, and decoding pictures into tensors
	inference *durations // the graph alone
	service   *durations // time from arrival to the chunk's hand-over to the transport
}

func newStats() *stats {
	return &stats{
		wait:      newDurations(),
		runway:    newDurations(),
		decode:    newDurations(),
		inference: newDurations(),
		service:   newDurations(),
	}
}

// Links counts the links of a network.
//
// Atomic.
type Links struct {
	Up   atomic.Uint64 // links that came up
	Down atomic.Uint64 // links that went down, or did not come up
}

// counter describes a counter and its series in /metrics.
type counter struct {
	name, help   string
	label, value string // label "": the series has no label
	*atomic.Uint64
}

func (c *counter) labels() []metric.Label {
	if c.label == "" {
		return nil
	}
	return label(c.label, c.value)
}

func label(name, value string) []metric.Label { return []metric.Label{{Name: name, Value: value}} }

// counters returns all counters of a server.
func counters(s *stats, links *Links, access *acl.Service, others *peers.Others, a *audit.Counts) []counter {
	const dropped = "observations_dropped_total"
	const neverHadATurn = "Observations that never had a turn."
	const linksHelp = "Links that came up, and that went down or did not come up."
	list := []counter{
		{"requests_total", "Observations answered with a chunk.", "", "", &s.outcomes[audit.Answered]},
		{dropped, neverHadATurn, "reason", "superseded", &s.superseded},
		{dropped, neverHadATurn, "reason", "late", &s.late},
		{dropped, neverHadATurn, "reason", "memory", &s.noRoom},
		{dropped, neverHadATurn, "reason", "unknown_session", &s.unknown},
		{dropped, neverHadATurn, "reason", "malformed", &s.malformed},
		{"late_requests_total", "Observations passed over for others, because their robot's actions end before a " +
			"chunk could arrive.", "", "", &s.passedOver},
		{"batch_reruns_total", "Inferences of several requests that failed and were repeated one by one.", "", "",
			&s.reruns},
		{"observation_bytes_total", "Bodies of observations, served or not.", "", "", &s.receivedBytes},
		{"chunk_bytes_total", "Bodies of chunks.", "", "", &s.sentBytes},
		{"chunks_replaced_total", "Chunks that a newer one replaced before they left: the robot's link is slower " +
			"than the policy.", "", "", &s.replaced},
		{"events_silenced_total", "Events not sent because one had been sent a moment before.", "", "", &s.silenced},
		{"queries_lost_total", "Queries refused because too many were waiting.", "", "", &s.lostQuery},
		{"sessions_opened_total", "Sessions opened.", "", "", &s.opened},
		{"sessions_closed_total", "Sessions closed.", "", "", &s.closed},
		{"sessions_displaced_total", "Sessions closed that did not send and gave way to another robot.", "", "",
			&s.displaced},
		{"replica_tokens_forgotten_total", "Tokens of other servers that exceeded the bounds.", "", "",
			&others.Forgotten},
		{"audit_lines_total", "Audit lines written.", "", "", &a.Lines},
		{"audit_dropped_total", "Audit lines that the disk was too slow for.", "", "", &a.LinesDropped},
		{"captures_total", "Requests captured.", "", "", &a.Captures},
		{"captures_dropped_total", "Requests that the disk was too slow to capture.", "", "", &a.CapturesDropped},
		{"links_total", linksHelp, "event", "up", &links.Up},
		{"links_total", linksHelp, "event", "down", &links.Down},
	}
	each := func(name, help, label string, counts []atomic.Uint64, value func(i int) string) {
		for i := range counts {
			list = append(list, counter{name, help, label, value(i), &counts[i]})
		}
	}
	outcome := func(i int) string { return audit.Outcome(i).String() }
	each("outcomes_total", "Observations that had their turn, by result.", "outcome", s.outcomes[:], outcome)
	each("errors_total", "Observations that had their turn and got no chunk.", "reason", s.outcomes[audit.Answered+1:],
		func(i int) string {
			if i++; i == int(audit.InferenceFailed) {
				return "inference" // the metrics use this name, which older versions introduced
			}
			return outcome(i)
		})
	each("conditioning_total", "Chunks by the treatment of the prefix.", "mode", s.modes[:], func(i int) string {
		return policy.Mode(i).String()
	})
	each("spans_total", "Requests that name rows of earlier chunks, by whether the server still had all of them.",
		"outcome", s.spans[spansFound:], func(i int) string { return [...]string{"found", "missed"}[i] })
	each("batches_total", "Inferences by how many requests shared them.", "requests", s.batches[:], func(i int) string {
		return strconv.Itoa(i + 1)
	})
	each("opens_rejected_total", "Sessions refused, by reason.", "reason", s.refused[:], func(i int) string {
		return refusals[i].name
	})
	frontCounters(&s.fronts, each)
	each("quota_held_total", "Inferences after which a robot had to wait for its quota.", "quota", s.held[:], quotaName)
	each("access_denied_total", "Messages that the rights of their link's certificate do not allow.", "message",
		access.Denied[:], func(i int) string { return zenohaccess.Message(i).String() })
	each("device_failures_total", "Runs that failed, ran out of memory, hung or returned values that are not finite, "+
		"including the server's own, which decide whether the device is given up.", "kind", s.failures[:],
		func(i int) string { return failure(i).String() })
	each("probes_total", "The server's own inferences, which check the device.", "outcome", s.probes[:],
		func(i int) string { return [...]string{probeOK: "ok", probeFailed: "failed"}[i] })
	return list
}

// The results of the server's own runs.
const (
	probeOK = iota
	probeFailed
	numProbes
)

func quotaName(i int) string { return quota.Kind(i).String() }

// frontCounters calls its callback once for each counter of the fronts.
func frontCounters(f *front.Counts, each func(name, help, label string, counts []atomic.Uint64,
	value func(int) string)) {
	kind := func(i int) string { return front.Kind(i).String() }
	each("front_clients_total", "Clients that connected to a front.", "front", f.Clients[:], kind)
	each("front_observations_total", "Observations of a front's clients.", "front", f.Received[:], kind)
	each("front_filtered_total", "Observations that the filter of a front's protocol dropped.", "front", f.Filtered[:],
		kind)
	each("front_chunks_total", "Chunks for a front's clients.", "front", f.Answered[:], kind)
	for k := range f.Refused {
		each("front_"+kind(k)+"_refused_total", "Messages and sessions that the front refused.", "reason",
			f.Refused[k][:], func(i int) string { return front.Reason(i).String() })
	}
}

// shown holds values of a session that the page shows in addition to the session's other counters.
//
// Atomic.
type shown struct {
	runway     atomic.Int64  // ns, runway of the robot's last request; -1: not given
	service    atomic.Int64  // ns, service time of the robot's last chunk; -1: no chunk yet
	superseded atomic.Uint64 // observations replaced by a newer one before their turn
	passedOver atomic.Uint64 // observations passed over for others
	failed     atomic.Uint64 // observations that had their turn and got no chunk
}

// spanUse reports whether the spans of an observation, which name rows of earlier chunks, were used.
type spanUse uint8

const (
	spansNone spanUse = iota
	spansFound
	spansMissing // a span names rows that are no longer kept, so the chunk is not conditioned
	numSpanUses
)

// cameraSet is a set of the policy's cameras. Bit i is set when camera i is in the set.
type cameraSet uint32

// camerasNamed returns the cameras of the policy whose names are listed. It ignores other names, which must not become
// labels of metrics.
//
//rt:noalloc
func camerasNamed(cameras []wire.CameraShape, names []string) (set cameraSet) {
	for i := range cameras {
		for _, name := range names {
			if name == cameras[i].Name {
				set |= 1 << i
			}
		}
	}
	return set
}

func (s cameraSet) names(cameras []wire.CameraShape) string {
	var names []string
	for i := range cameras {
		if s&(1<<i) != 0 {
			names = append(names, cameras[i].Name)
		}
	}
	return strings.Join(names, ", ")
}

// count adds 1 to the count of each camera in the set, and returns the number of cameras in the set.
//
//rt:noalloc
func (s cameraSet) count(counts *[policy.MaxCameras]atomic.Uint64) (n uint64) {
	for i := range counts {
		if s&(1<<i) != 0 {
			counts[i].Add(1)
			n++
		}
	}
	return n
}

func sum(counts []atomic.Uint64) (n uint64) {
	for i := range counts {
		n += counts[i].Load()
	}
	return n
}

// bounds are the upper bounds of the buckets of durations.
var bounds = metric.Bounds

// durations records durations, in fine buckets for quantiles and in the few buckets of bounds for /metrics.
//
// Owner: any goroutine.
type durations struct {
	*rt.Hist
	buckets [len(bounds) + 1]atomic.Uint64
	sum     atomic.Int64 // ns
}

func newDurations() *durations { return &durations{Hist: rt.NewHist()} }

//rt:noalloc
func (d *durations) record(v time.Duration) {
	d.Record(v)
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	d.sum.Add(int64(v))
	d.buckets[i].Add(1)
}

// cumulative returns the number of all durations and their sum in seconds, and sets each element of buckets to the
// number of durations up to its bound.
//
//rt:noalloc
func (d *durations) cumulative(buckets []uint64) (count uint64, sum float64) {
	for i := range d.buckets {
		count += d.buckets[i].Load()
		if i < len(bounds) {
			buckets[i] = count
		}
	}
	return count, time.Duration(d.sum.Load()).Seconds()
}

// changes counts how often the sessions have changed.
func (s *stats) changes() uint64 { return s.opened.Load() + s.closed.Load() }

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// round rounds to three decimals.
func round(v float64) float64 { return math.Round(v*1e3) / 1e3 }

// pace is the duration of an inference of one row, by which robots distinguish a slow server from a
// dead one. Until robots are served, it is measured in the self-test at load and in the warm-up.
// Atomic.
type pace struct {
	least atomic.Int64 // ns, the shortest inference; 0: unknown
	most  atomic.Int64 // ns, the longest inference before robots were served
	// ns, the longest inference before robots were served. It leaves out the first inference, which is slow on a GPU,
	// unless that was the only one.
	steady atomic.Int64
	runs   atomic.Int64 // number of inferences before robots were served
}

// warm records an inference of the self-test or the warm-up, before any robot is served.
func (p *pace) warm(took time.Duration) {
	p.served(took)
	p.most.Store(max(p.most.Load(), int64(took)))
	if p.runs.Add(1) <= 2 {
		p.steady.Store(int64(took))
	}
	p.steady.Store(max(p.steady.Load(), int64(took)))
}

// served records an inference's duration.
//
//rt:noalloc
func (p *pace) served(took time.Duration) {
	if took <= 0 {
		return
	}
	if least := p.least.Load(); least == 0 || int64(took) < least {
		p.least.Store(int64(took))
	}
}

// tally counts the requests and inferences of one model since it was loaded.
//
// Atomic; the histogram has one writer, the worker.
type tally struct {
	pace      pace
	answered  atomic.Uint64 // chunks
	failed    atomic.Uint64 // observations that had their turn and got no chunk
	inference *rt.Hist
}

func newTally() *tally { return &tally{inference: rt.NewHist()} }

// slowest returns the 99 % quantile of the durations of robots' inferences. Before the first such
// inference, it returns the longest duration known from the warm-up; 0: no duration is known.
func (t *tally) slowest() time.Duration {
	if h := t.inference; h.Count() > 0 {
		return h.Quantile(0.99)
	}
	return time.Duration(t.pace.steady.Load())
}

// failure is the kind of a device's failure.
type failure int

const (
	failureRun failure = iota
	failureMemory
	failureHang
	failureNotFinite
	numFailures
)

func (f failure) String() string {
	return [numFailures]string{"run", "memory", "hang", "not_finite"}[f]
}
