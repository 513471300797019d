package edge

import (
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/uplink"
)

// Status is the progress of a policy's run: the keys that its page and its summary share.
type Status struct {
	drive.Status
	Server  *ServerSummary `json:"server,omitempty"`  // the newest session's server
	Profile string         `json:"profile,omitempty"` // --profile
	// ms, --buffer-time now; absent for a schedule without a buffer
	BufferMS float64 `json:"buffer_ms,omitempty"`
	// ticks without an action though one was due, from the first action on
	StarvedTicks uint64 `json:"starved_ticks"`
	Actions      uint64 `json:"actions"` // actions that ran
	// actions that did not run because they were older than --max-action-age
	ActionsTooOld uint64 `json:"actions_too_old"`
	// ms, from the measurement of an action's state, or of its oldest picture, to its run
	ActionAgeMS drive.ShortQuantiles `json:"action_age_ms"`
	Requests    uint64               `json:"requests"` // requests for a chunk
	Chunks      uint64               `json:"chunks"`   // chunks merged into the schedule
	// [reason] chunks that were not merged, by reason: header or body (not readable), epoch,
	// episode (of an earlier one), unknown_seq (not requested), superseded (a newer one came before
	// the merge), foreign (the answer to another robot of this name, or another server's event),
	// late (all its steps had run), older, duplicate, bad_shape, ahead, not_finite
	ChunksDropped map[string]uint64 `json:"chunks_dropped"`
	// ms, from the reading of a request's state to the merge of its chunk
	RTTms     drive.ShortQuantiles `json:"rtt_ms"`
	NetworkMS drive.ShortQuantiles `json:"network_ms"`              // ms, rtt_ms less the time that the server reports
	History   *History             `json:"history,omitempty"`       // absent unless the policy looks back
	Leader    *leader.RemoteStats  `json:"remote_leader,omitempty"` // with --leader zenoh:NAME
}

// History describes the observations that are sent together for a policy that looks back.
type History struct {
	Steps int `json:"steps"` // observations that the policy looks at together
	// restarts of the history: by an episode, a session, or an action step that was missing or
	// incomplete
	Anew   uint64 `json:"begun_anew"`
	NoRoom uint64 `json:"no_room"` // action steps that were left out because the sender was too slow
}

// Live is the JSON of the page: the progress of a run and the positions of the joints.
type Live struct {
	Status
	drive.Live
	Phase   string `json:"phase,omitempty"` // phase of the take-over, in a run with a leader
	Taken   string `json:"taken,omitempty"` // of several parts: the parts that a person drives
	Episode uint32 `json:"episode_id"`      // number of the episode
	Queue   int64  `json:"queue"`           // actions that wait

	Jog []string `json:"jog,omitempty"` // joints that the page may jog now (POST /jog)
}

// ServerSummary is the server of the newest session.
type ServerSummary struct {
	Model    string `json:"model"`                  // name of the model
	Revision string `json:"revision"`               // revision of the model
	SHA256   string `json:"model_sha256,omitempty"` // digest of the bundle
	Prefix   string `json:"prefix"`                 // beginning of the server's keys
}

func serverSummary(s *uplink.Session) *ServerSummary {
	if s == nil {
		return nil
	}
	return &ServerSummary{
		Model:    s.Model,
		Revision: s.Revision,
		SHA256:   s.SHA256,
		Prefix:   s.Service,
	}
}
