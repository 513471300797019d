package wire

import (
	"fmt"
	"slices"
	"strings"
)

// ObservationRoom is the largest size in bytes of an observation without its pictures: state, prefixes, names, and a
// transport's own fields.
const ObservationRoom = 64 << 10

// Shapes holds the sizes that both sides agreed on when the session was opened. Every later message must have these
// sizes. A size that is 0, or an empty list, is not checked.
//
// Owner: constant after the session is open.
type Shapes struct {
	StateDim  int
	ActionDim int
	Horizon   int           // most rows of a chunk or prefix
	Cameras   []CameraShape // required pictures; if H and W are 0, they may have any size
	// Past is the number of steps before the newest. An observation has either all of these steps or no history. If
	// Past is 0, a history is not checked.
	Past int
}

// CheckObservation refuses an observation that the policy cannot take: a state of another length, a missing camera, a
// raw picture of another size (a JPEG's size is checked by its decoder), a history with other steps, cameras or sizes,
// a prefix longer than the horizon, a robot prefix of another width, or two prefixes of unequal length. It ignores
// cameras that the policy does not have.
//
//rt:noalloc
func (s *Shapes) CheckObservation(o *Observation) error {
	if s.StateDim != 0 && len(o.State) != s.StateDim {
		return errCount("state", len(o.State), s.StateDim)
	}
	for i := range s.Cameras {
		if err := s.Cameras[i].check(o.Images); err != nil {
			return err
		}
	}
	if s.Past > 0 && (o.PastStates.Rows > 0 || len(o.PastImages) > 0) {
		if err := s.past(o); err != nil {
			return err
		}
	}
	if err := s.matrix("prefix_model", &o.PrefixModel, 0); err != nil {
		return err
	}
	if err := s.matrix("prefix_robot", &o.PrefixRobot, s.ActionDim); err != nil {
		return err
	}
	if o.PrefixModel.Rows != 0 && o.PrefixRobot.Rows != 0 && o.PrefixModel.Rows != o.PrefixRobot.Rows {
		return errCount("rows of prefix_model beside prefix_robot", o.PrefixModel.Rows, o.PrefixRobot.Rows)
	}
	return nil
}

// matrix checks rows against the horizon and, when cols is not 0, the width.
//
//rt:noalloc
func (s *Shapes) matrix(field string, m *Matrix, cols int) error {
	if s.Horizon != 0 && m.Rows > s.Horizon {
		return errAtMost(field, m.Rows, s.Horizon)
	}
	if cols != 0 && m.Rows != 0 && m.Cols != cols {
		return errCount(field, m.Cols, cols)
	}
	return nil
}

//rt:noalloc
func (s *Shapes) past(o *Observation) error {
	switch states := &o.PastStates; {
	case states.Rows != s.Past:
		return errCount("rows of past_states", states.Rows, s.Past)
	case s.StateDim != 0 && states.Cols != s.StateDim:
		return errCount("columns of past_states", states.Cols, s.StateDim)
	}
	for i := range s.Cameras {
		camera := &s.Cameras[i]
		past := o.Past(camera.Name)
		if len(past) != s.Past {
			return errPast(camera.Name, len(past), s.Past)
		}
		for j := range past {
			if m := &past[j]; m.Codec == Raw && camera.H != 0 && (m.H != camera.H || m.W != camera.W) {
				return errPicture(m, camera, len(past)-j)
			}
		}
	}
	return nil
}

//rt:noalloc
func (s *CameraShape) check(images []Image) error {
	for i := range images {
		m := &images[i]
		if m.Name != s.Name {
			continue
		}
		if m.Codec == Raw && s.H != 0 && (m.H != s.H || m.W != s.W) {
			return errPicture(m, s, 0)
		}
		return nil
	}
	return errCamera(s.Name, images)
}

// CheckUnits refuses units in which the two sides differ: an arm that receives degrees and expects radians moves 57
// times too far. It checks nothing when one side gives no list.
func CheckUnits(field string, server, client []string) error {
	if len(server) == 0 || len(client) == 0 || slices.Equal(server, client) {
		return nil
	}
	return fmt.Errorf("wire: %s: client has %q, server wants %q, the units in which its policy was trained; norm in a "+
		"robot file sets the units of an arm", field, client, server)
}

// CheckCameraShapes refuses cameras for which the two sides give different sizes.
func CheckCameraShapes(server, client []CameraShape) error {
	for _, s := range server {
		i := slices.IndexFunc(client, func(c CameraShape) bool { return c.Name == s.Name })
		if i >= 0 && client[i] != s {
			return fmt.Errorf("wire: camera %s: client has %dx%dx%d, server wants %dx%dx%d (height x width x "+
				"channels): %w",
				s.Name, client[i].H, client[i].W, client[i].C, s.H, s.W, s.C, ErrShape)
		}
	}
	return nil
}

// CheckRaw refuses cameras whose raw pictures do not fit into one message together. The message has a picture of each
// camera for each of the steps. A camera of size 0, whose size is not known, counts as 0 bytes.
func CheckRaw(cameras []CameraShape, steps int) error {
	const room = MaxCarriedBytes - ObservationRoom
	sum, list := 0, make([]string, 0, len(cameras))
	for _, c := range cameras {
		n := steps * c.H * c.W * c.C
		sum += n
		list = append(list, fmt.Sprintf("%s %dx%dx%d (height x width x channels) at %d steps: %d", c.Name, c.H, c.W,
			c.C, steps, n))
	}
	if sum <= room {
		return nil
	}
	return fmt.Errorf("wire: raw pictures of one observation have %d bytes, want at most %d (%s); send JPEG, smaller "+
		"pictures or fewer: %w",
		sum, room, strings.Join(list, ", "), ErrTooLarge)
}

//go:noinline
func errCount(field string, got, want int) error {
	return fmt.Errorf("wire: %s: got %d, want %d: %w", field, got, want, ErrShape)
}

//go:noinline
func errPast(camera string, got, want int) error {
	return errCount("past_images of "+camera, got, want)
}

//go:noinline
func errAtMost(field string, got, want int) error {
	return fmt.Errorf("wire: rows of %s: got %d, want at most %d: %w", field, got, want, ErrShape)
}

// StepName names a picture in the text of an error: by its camera and, for an earlier step, by the number of steps
// before the newest.
func StepName(camera string, before int) string {
	if before == 0 {
		return camera
	}
	return fmt.Sprintf("%s at %d before the newest step", camera, before)
}

//go:noinline
func errPicture(got *Image, want *CameraShape, before int) error {
	return fmt.Errorf("wire: image %s: got %dx%d, want %dx%d (height x width): %w", StepName(want.Name, before), got.H,
		got.W, want.H, want.W, ErrShape)
}

//go:noinline
func errCamera(want string, images []Image) error {
	names := make([]string, len(images))
	for i := range images {
		names[i] = images[i].Name
	}
	return fmt.Errorf("wire: images: got %q, want %s among them: %w", names, want, ErrShape)
}
