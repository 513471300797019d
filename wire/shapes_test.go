package wire

import (
	"errors"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestCheckObservation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Observation)
		ok     bool
	}{
		{"as agreed", func(*Observation) {}, true},
		{"no prefix", func(o *Observation) { o.PrefixModel, o.PrefixRobot = Matrix{}, Matrix{} }, true},
		{"only one prefix", func(o *Observation) { o.PrefixModel = Matrix{} }, true},
		{"an empty prefix of any width", func(o *Observation) { o.PrefixRobot = Matrix{Cols: 9} }, true},
		{"a JPEG, whose size the decoder judges", func(o *Observation) {
			o.Images[0] = Image{Name: "top", Data: []byte{1}}
		}, true},
		{"state one long", func(o *Observation) { o.State = append(o.State, 0) }, false},
		{"raw picture of another height", func(o *Observation) { o.Images[0].H = 2 }, false},
		{"raw picture of another width", func(o *Observation) { o.Images[0].W = 3 }, false},
		{"camera renamed", func(o *Observation) { o.Images[0].Name = "Top" }, false},
		{"prefix longer than the horizon", func(o *Observation) {
			o.PrefixModel.Rows, o.PrefixRobot.Rows = 5, 5
		}, false},
		{"prefix of another width", func(o *Observation) { o.PrefixRobot.Cols = 3 }, false},
		{"prefixes of unequal length", func(o *Observation) { o.PrefixModel.Rows = 1 }, false},
		{"no history", func(o *Observation) { o.PastStates, o.PastImages = Matrix{}, nil }, true},
		{"no pictures of a camera that the policy does not know", func(o *Observation) {
			o.PastImages = o.PastImages[:2]
		}, true},
		{"a history of another length", func(o *Observation) { o.PastStates.Rows = 1 }, false},
		{"a history of another width", func(o *Observation) { o.PastStates.Cols = 1 }, false},
		{"a history without states", func(o *Observation) { o.PastStates = Matrix{} }, false},
		{"a history without pictures", func(o *Observation) { o.PastImages = nil }, false},
		{"a history without one of the pictures", func(o *Observation) { o.PastImages = o.PastImages[1:] }, false},
		{"a history of a camera renamed", func(o *Observation) { o.PastImages = o.PastImages[2:] }, false},
		{"a raw picture of another width in the history", func(o *Observation) { o.PastImages[0].W = 3 }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := demoObservation()
			o.PastImages = slices.Clone(o.PastImages)
			tt.change(o)
			if err := demoShapes.CheckObservation(o); (err == nil) != tt.ok || err != nil &&
				!errors.Is(err, ErrShape) {
				t.Errorf("CheckObservation = %v, want ok %v", err, tt.ok)
			}
		})
	}
	var anything Shapes
	rttest.Do(t, anything.CheckObservation(&Observation{}))
}

func TestCheckUnitsAndCameraShapes(t *testing.T) {
	deg, rad := []string{"deg", "deg"}, []string{"deg", "rad"}
	for _, tt := range []struct {
		name           string
		server, client []string
		ok             bool
	}{
		{"equal", deg, deg, true},
		{"only the server names them", deg, nil, true},
		{"only the robot names them", nil, rad, true},
		{"different", deg, rad, false},
		{"another number", deg, deg[:1], false},
	} {
		rttest.Want(t, CheckUnits("action_units", tt.server, tt.client) == nil, tt.ok,
			"%s: whether CheckUnits accepts it", tt.name)
	}
	top := CameraShape{"top", 120, 160, 3}
	for _, tt := range []struct {
		name           string
		server, client []CameraShape
		ok             bool
	}{
		{"equal", []CameraShape{top}, []CameraShape{{"wrist", 1, 1, 3}, top}, true},
		{"not given", []CameraShape{top}, nil, true},
		{"turned", []CameraShape{top}, []CameraShape{{"top", 160, 120, 3}}, false},
	} {
		rttest.Want(t, CheckCameraShapes(tt.server, tt.client) == nil, tt.ok,
			"%s: whether CheckCameraShapes accepts it", tt.name)
	}
}

// TestTemporary: a refusal is temporary if its reason is capacity or draining, or if it names a time to retry. Any
// other refusal is final.
func TestTemporary(t *testing.T) {
	for _, tt := range []struct {
		name string
		ack  SessionAck
		want bool
	}{
		{"accepted", SessionAck{Accepted: true, RetryAfterMs: 1}, false},
		{"an old server is full", SessionAck{Error: "server full: 5/5 sessions active"}, true},
		{"draining", SessionAck{Draining: true}, true},
		{"a time to retry", SessionAck{RetryAfterMs: 100}, true},
		{"contract", SessionAck{Error: "state dim mismatch: server=6, client=7"}, false},
	} {
		rttest.Want(t, tt.ack.Temporary(), tt.want, "%s: Temporary", tt.name)
	}
}

// TestParseOp: a session query is an open or a close, and a close is not read as an open.
func TestParseOp(t *testing.T) {
	open, close := Append(nil, &SessionOpen{}), Append(nil, &SessionClose{})
	for _, tt := range []struct {
		src  []byte
		want string
	}{{open, OpOpen}, {close, OpClose}, {[]byte{0x80}, OpOpen}} {
		rttest.Want(t, rttest.Must(ParseOp(tt.src))(t), tt.want, "ParseOp(% x)", tt.src)
	}
	// Parse refuses a close as an open, and an open as a close
	rttest.FailsAs(t, Parse(new(SessionOpen), close), ErrMalformed)
	rttest.Fails(t, Parse(new(SessionClose), open), `"op": got "open", want close`)
}

// Raw pictures of all steps either fit into one message or are refused with their total size.
func TestCheckRaw(t *testing.T) {
	top, wrist := CameraShape{"top", 1080, 1920, 3}, CameraShape{"wrist", 480, 640, 3}
	for _, tt := range []struct {
		cameras []CameraShape
		steps   int
		says    string // a part of the error's text; empty: the pictures fit
	}{
		{nil, MaxSteps, ""},
		{[]CameraShape{top, top}, 1, ""},
		{[]CameraShape{top, wrist}, 2, ""},
		{[]CameraShape{top, top, wrist, wrist, wrist, wrist, wrist}, 1,
			"have 17049600 bytes, want at most 16711680 (top 1080x1920x3 (height x width x channels) at 1 steps: " +
				"6220800"},
		{[]CameraShape{top, wrist}, 3, "wrist 480x640x3 (height x width x channels) at 3 steps: 2764800); send JPEG"},
		{[]CameraShape{{"any", 0, 0, 3}, top}, 2, ""},
		{[]CameraShape{{"edge", 16711680 / 3 / 16, 16, 3}}, 1, ""},
		{[]CameraShape{{"above", 16711680/3/16 + 1, 16, 3}}, 1, "16711728"},
	} {
		err := CheckRaw(tt.cameras, tt.steps)
		if (err == nil) != (tt.says == "") || err != nil &&
			(!errors.Is(err, ErrTooLarge) || !rttest.Says(err, tt.says)) {
			t.Errorf("CheckRaw(%v, %d) = %v, want %q", tt.cameras, tt.steps, err, tt.says)
		}
	}
}
