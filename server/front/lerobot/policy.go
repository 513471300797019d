package lerobot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/lerobot"
)

const stateFeature = "observation.state"

// view describes how a client's observations are converted to observations of the policy.
type view struct {
	state   []string // the client's names of the joints, in the policy's order
	cameras []camera
	rows    int // rows of a chunk that the client gets
	bytes   int // most bytes of a pickled observation
}

// camera is one of the client's cameras that the policy uses.
type camera struct {
	key  string // key in the client's observation
	name string // name on the wire
}

// slack is the most bytes that a pickled observation takes in addition to its pictures.
const slack = 256 << 10

// compare returns the view of a client, and the request that opens its session. When the client's policy differs from
// the served policy, it returns an errMismatch that names the difference and how to remove it.
func compare(p *lerobot.Policy, m *policy.Meta) (v *view, open wire.SessionOpen, err error) {
	mismatch := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", errMismatch, fmt.Errorf(format, args...))
	}
	v = &view{rows: p.ActionsPerChunk, bytes: slack}
	open = wire.SessionOpen{
		RobotType:   "lerobot",
		PolicyType:  p.Type,
		ActionNames: m.ActionNames,
		StateDim:    len(m.StateNames),
	}
	switch {
	case p.Type != m.PolicyType:
		return nil, open, mismatch("the client asks for policy_type %.80q, this server serves %q: start the client "+
			"with --policy_type=%[2]s", p.Type, m.PolicyType)
	case p.ActionsPerChunk < 1 || p.ActionsPerChunk > m.ChunkSize:
		return nil, open, mismatch("the client asks for %d actions per chunk, the policy's chunks have %d: start the "+
			"client with --actions_per_chunk=%[2]d or less", p.ActionsPerChunk, m.ChunkSize)
	}
	i := slices.IndexFunc(p.Features, func(f lerobot.Feature) bool { return f.Name == stateFeature })
	if i < 0 || !slices.Equal(p.Features[i].Names, m.StateNames) {
		var got []string
		if i >= 0 {
			got = p.Features[i].Names
		}
		return nil, open, mismatch("the client's robot has the joints %s, the policy reads %s, in this order",
			list(got), list(m.StateNames))
	}
	v.state = m.StateNames
	var known []string
	for _, f := range p.Features {
		name := f.Name
		if to, renamed := p.Rename[name]; renamed {
			name = to
		}
		key, picture := strings.CutPrefix(f.Name, front.ImagePrefix)
		if !picture {
			continue
		}
		known = append(known, strings.TrimPrefix(name, front.ImagePrefix))
		if !slices.ContainsFunc(m.Cameras, func(c policy.Camera) bool { return front.ImageName(c.Name) == name }) {
			continue // the policy does not use this camera
		}
		if slices.Contains(open.CameraNames, name) {
			return nil, open, mismatch("camera %s of the client and another one have the name %s after rename_map: "+
				"give one of them another name there", f.Name, name)
		}
		if len(f.Shape) != 3 || f.Shape[2] != 3 || slices.Min(f.Shape) < 1 || slices.Max(f.Shape) > wire.MaxImageSide {
			return nil, open, mismatch("camera %s has the shape %v, want [height, width, 3]", f.Name, f.Shape)
		}
		v.cameras = append(v.cameras, camera{key: key, name: name})
		open.CameraNames = append(open.CameraNames, name)
		open.RawImages = append(open.RawImages, name)
		open.CameraShapes = append(open.CameraShapes, wire.CameraShape{
			Name: name,
			H:    f.Shape[0],
			W:    f.Shape[1],
			C:    3,
		})
	}
	for _, c := range m.Cameras {
		if !slices.Contains(open.CameraNames, front.ImageName(c.Name)) {
			return nil, open, mismatch("the policy needs camera %s, the client's robot has %s: give one that "+
				"name in --robot.cameras", strings.TrimPrefix(front.ImageName(c.Name), front.ImagePrefix), list(known))
		}
	}
	v.bytes += pictures(p.Features)
	return v, open, nil
}

// pictures returns the bytes of a client's raw pictures, also of those that the policy does not use.
func pictures(features []lerobot.Feature) (n int) {
	for _, f := range features {
		if strings.HasPrefix(f.Name, front.ImagePrefix) {
			size := 1
			for _, side := range f.Shape {
				size = min(size*side, wire.MaxMessageBytes)
			}
			n += size
		}
	}
	return min(n, wire.MaxMessageBytes-slack)
}

// list joins names into a text for people; of many names it takes only the first few.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	const most = 40
	text := fmt.Sprintf("%.400s", strings.Join(names[:min(len(names), most)], ", "))
	if len(names) > most {
		text += ", …"
	}
	return text
}
