package remote

import (
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/manifest"
)

// Describe returns the policy that the manifest's model.inputs describe, without its cameras. It is for a server whose
// protocol does not describe its policy. The error for a missing key names the key.
func Describe(cfg *manifest.Config, kind, source string) (m policy.Meta, err error) {
	in := &cfg.Model.Inputs
	for _, key := range []struct {
		name    string
		missing bool
		reason  string
	}{
		{"fps", in.FPS == 0, "the rate that the policy was trained at, in Hz, such as 30"},
		{"chunk_size", in.ChunkSize == 0, "the number of actions in an answer"},
		{"action_names", len(in.ActionNames) == 0,
			"the joints of an action, in its order, such as [shoulder_pan.pos, …, gripper.pos]"},
		{"action_units", len(in.ActionUnits) == 0,
			"the units of an action, one for each name, such as [degrees, …, range_0_100]"},
		{"state_units", len(in.StateUnits) == 0 && len(in.StateNames) > 0,
			"the units of the state, one for each of state_names"},
	} {
		if key.missing {
			return m, cfg.Missing("inputs."+key.name, "the server does not report "+key.reason)
		}
	}
	m = policy.Meta{
		BundleVersion: policy.BundleVersion,
		PolicyType:    kind,
		SourceRepo:    source,
		RTC:           "none", // no protocol sends the actions that run during the inference
		FPS:           in.FPS,
		ChunkSize:     in.ChunkSize,
		NActionSteps:  in.ChunkSize,
		ActionDim:     len(in.ActionNames),
		ActionNames:   in.ActionNames,
		ActionUnits:   in.ActionUnits,
		StateNames:    in.StateNames,
		StateUnits:    in.StateUnits,
	}
	if len(in.StateNames) == 0 {
		m.StateNames = in.ActionNames
		if len(in.StateUnits) == 0 {
			m.StateUnits = in.ActionUnits
		}
	}
	return m, nil
}
