package wire

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func leaderPose() *LeaderPose {
	return &LeaderPose{
		Answers:  true,
		Instance: 7,
		Seq:      1 << 40,
		Joints:   LeaderJoints([]string{"pan", "grip"}, []string{"degrees", "range_0_100"}),
		Stamp:    99,
		AgeUS:    1500,
		Held:     2,
		Echo:     Echo{Instance: 8, Stamp: 5, HeldUS: 300},
		Place:    []float32{-12.5, 40},
	}
}

func TestLeaderMessages(t *testing.T) {
	pose, use := leaderPose(), &LeaderUse{
		Drives:   true,
		Instance: 8,
		Seq:      3,
		Stamp:    5,
		Echo:     Echo{7, 99, 20},
	}
	poseBytes, useBytes := AppendLeaderPose(nil, pose), AppendLeaderUse(nil, use)
	if len(poseBytes) != leaderPoseSize+8 || len(useBytes) != leaderUseSize {
		t.Errorf("sizes %d and %d, want %d and %d", len(poseBytes), len(useBytes), leaderPoseSize+8, leaderUseSize)
	}
	var gotPose LeaderPose
	var gotUse LeaderUse
	if err := ParseLeaderPose(&gotPose, poseBytes); err != nil || !reflect.DeepEqual(&gotPose, pose) {
		t.Errorf("ParseLeaderPose: %+v, %v, want %+v", gotPose, err, pose)
	}
	if err := ParseLeaderUse(&gotUse, useBytes); err != nil || gotUse != *use {
		t.Errorf("ParseLeaderUse: %+v, %v, want %+v", gotUse, err, use)
	}
	rttest.NoAllocs(t, "the messages allocate %v times, want 0", 100, func() {
		poseBytes = AppendLeaderPose(poseBytes[:0], pose)
		useBytes = AppendLeaderUse(useBytes[:0], use)
		if ParseLeaderPose(&gotPose, poseBytes) != nil || ParseLeaderUse(&gotUse, useBytes) != nil {
			t.Fatal("malformed")
		}
	})
	for name, change := range map[string]func(b []byte) []byte{
		"cut":             func(b []byte) []byte { return b[:len(b)-1] },
		"longer":          func(b []byte) []byte { return append(b, 0) },
		"another magic":   func(b []byte) []byte { b[0] = 'X'; return b },
		"another version": func(b []byte) []byte { b[4] = 2; return b },
		"another flag":    func(b []byte) []byte { b[5] = 4; return b },
		"reserved":        func(b []byte) []byte { b[7] = 1; return b },
		"no instance":     func(b []byte) []byte { clear(b[8:16]); return b },
		"empty":           func([]byte) []byte { return nil },
	} {
		if ParseLeaderPose(&gotPose, change(bytes.Clone(poseBytes))) == nil {
			t.Errorf("a pose, %s, is accepted", name)
		}
		if ParseLeaderUse(&gotUse, change(bytes.Clone(useBytes))) == nil {
			t.Errorf("a use, %s, is accepted", name)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		pose.Place[1] = float32(v)
		if ParseLeaderPose(&gotPose, AppendLeaderPose(nil, pose)) == nil {
			t.Errorf("a joint at %v is accepted", v)
		}
	}
	pose = leaderPose()
	if pose.Held = 4; ParseLeaderPose(&gotPose, AppendLeaderPose(nil, pose)) == nil {
		t.Error("a bit without a joint is accepted")
	}
}

// Property: when bytes parse, appending the parsed message gives the same bytes.
func FuzzLeader(f *testing.F) {
	f.Add(AppendLeaderPose(nil, leaderPose()))
	f.Add(AppendLeaderUse(nil, &LeaderUse{Instance: 1}))
	f.Fuzz(func(t *testing.T, src []byte) {
		var pose LeaderPose
		if ParseLeaderPose(&pose, src) == nil && !bytes.Equal(AppendLeaderPose(nil, &pose), src) {
			t.Errorf("a pose differs after its parsing: %x", src)
		}
		var use LeaderUse
		if ParseLeaderUse(&use, src) == nil && !bytes.Equal(AppendLeaderUse(nil, &use), src) {
			t.Errorf("a use differs after its parsing: %x", src)
		}
	})
}
