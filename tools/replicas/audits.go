package main

import (
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// inferred is one line of a server's audit.
type inferred struct {
	At      time.Time `json:"ts"`
	Client  string    `json:"client_uuid"`
	Seq     uint64    `json:"seq_id"`
	Outcome string    `json:"outcome"`
	Newer   int       `json:"superseded_seqs"` // number of older observations that this one replaced

	server *server
}

type key struct {
	client string
	seq    uint64
}

// readAudits counts the inferences by client and seq. A robot's seq grows over all its sessions, so
// a repeated seq is an observation that was inferred at two servers or in two epochs.
func (s *stand) readAudits(r *row) error {
	seen := map[key]int{}
	last := map[string]uint64{}
	again := map[string][]inferred{}
	for _, sv := range s.servers {
		lines, err := stage.ReadAudit[inferred](sv.audit, !sv.endedAt.IsZero())
		if err != nil {
			return err
		}
		for _, l := range lines {
			l.server = sv
			if l.Outcome != "ok" && !(l.Outcome == "unsent" && s.cut) {
				if sv.endedAt.IsZero() && l.At.Before(s.over) {
					r.problems = append(r.problems, fmt.Sprintf("%s: %s's %d: %s", sv.Name, l.Client, l.Seq, l.Outcome))
				}
				continue
			}
			seen[key{l.Client, l.Seq}]++
			if l.Client != draftID {
				r.superseded += l.Newer
			}
			last[l.Client] = max(last[l.Client], l.Seq)
			again[l.Client] = append(again[l.Client], l)
		}
	}
	for _, n := range seen {
		r.inferred++
		if n > 1 {
			r.twice++
		}
	}
	delete(last, draftID) // without a server, a client of the draft continues to send until its time-out
	for client, to := range last {
		for seq := uint64(1); seq <= to; seq++ {
			if seen[key{client, seq}] == 0 {
				r.missing++
			}
		}
	}
	r.missing = max(r.missing-r.superseded, 0)
	s.moves(r, again)
	return nil
}

// moves adds to r how many robots had to change their server, the longest time until such a robot's
// next inference, and how many other robots lost a session.
func (s *stand) moves(r *row, got map[string][]inferred) {
	for _, rb := range s.robots {
		had := 0
		for i, e := range s.events {
			if !e.moves[rb.id] {
				continue
			}
			had++
			r.moved++
			first := time.Time{}
			for _, l := range got[rb.id] {
				if l.At.After(e.at) && !l.server.endedBy(e) && (first.IsZero() || l.At.Before(first)) {
					first = l.At
				}
			}
			if first.IsZero() {
				r.problems = append(r.problems, fmt.Sprintf("%s never streamed again after event %d", rb.id, i+1))
				continue
			}
			r.again = max(r.again, first.Sub(e.at))
		}
		if lost := len(rb.Log.Lines(lostLine)); lost > had {
			r.lost++
		}
	}
}

// endedBy reports whether the event ended the server. If so, the server's last lines are expected.
func (sv *server) endedBy(e event) bool { return sv.endedAt.Equal(e.at) }
