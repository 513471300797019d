package wire

import (
	"math"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestCheckUUID(t *testing.T) {
	for _, tt := range []struct {
		name, uuid string
		want       error
	}{
		{"a name", "robot-07", nil},
		{"hex", "8f14e45fceea467fa0e67a1b3c2d1e0f", nil},
		{"the longest", strings.Repeat("x", MaxUUIDBytes), nil},
		{"one too long", strings.Repeat("x", MaxUUIDBytes+1), ErrTooLarge},
		{"empty", "", ErrSlugEmpty},
		{"reserved", "server", ErrSlugReserved},
		{"space", "a b", ErrKey},
		{"another chunk", "x/y", ErrKey},
		{"wildcard", "*x", ErrKey},
		{"dot at the end", "x.", ErrKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.FailsAs(t, CheckUUID(tt.uuid), tt.want)
		})
	}
}

func TestServiceOf(t *testing.T) {
	for _, tt := range []struct {
		key  string
		want Service
		ok   bool
	}{
		{"@lerobot/demo-around-the-post/main/demo/server/alive", Service{"demo-around-the-post", "main", "demo"}, true},
		{"@lerobot/m/main/s/robot/alive", Service{}, false},
		{"@lerobot/m/main/server/alive", Service{}, false},
		{"@lerobot/m/main//server/alive", Service{}, false},
		{"@other/m/main/s/server/alive", Service{}, false},
		{"@lerobot/m/main/s/x/server/alive", Service{}, false},
		{"", Service{}, false},
	} {
		got, err := ServiceOf(tt.key)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ServiceOf(%q) = %v, %v, want %v, ok %v", tt.key, got, err, tt.want, tt.ok)
		}
	}
}

func TestParseEpochAlive(t *testing.T) {
	const p = "@lerobot/m/main/s"
	for _, tt := range []struct {
		key   string
		uuid  string
		epoch uint32
		ok    bool
	}{
		{p + "/robot/0/alive", "robot", 0, true},
		{p + "/robot/4294967295/alive", "robot", math.MaxUint32, true},
		{p + "/robot/4294967296/alive", "", 0, false},
		{p + "/robot/x/alive", "", 0, false},
		{p + "/robot/alive", "", 0, false},
		{p + "/robot/1/obs", "", 0, false},
		{"@lerobot/m/main/other/robot/1/alive", "", 0, false},
	} {
		uuid, epoch, err := ParseEpochAlive(p, tt.key)
		if uuid != tt.uuid || epoch != tt.epoch || (err == nil) != tt.ok {
			t.Errorf("ParseEpochAlive(%q) = %q, %d, %v, want %q, %d, ok %v", tt.key, uuid, epoch, err, tt.uuid,
				tt.epoch, tt.ok)
		}
	}
	if key, err := EpochAliveKey(p, "robot", 12); key != p+"/robot/12/alive" || err != nil {
		t.Errorf("EpochAliveKey = %q, %v", key, err)
	}
	rttest.Want(t, EpochAliveWildcard(p), p+"/*/*/alive", "EpochAliveWildcard")
}

func TestHeaderCheckAndReply(t *testing.T) {
	h := Header{SchemaVersion: 1, MsgType: MsgObservation, SeqID: 5, EpisodeID: 6, ClientMonoNs: 7, SessionEpoch: 8}
	r := h.Reply(MsgActionChunk)
	rttest.Want(t, r, Header{1, MsgActionChunk, 5, 6, 7, 8}, "Reply")
	if err := r.Check(MsgActionChunk); err != nil {
		t.Errorf("Check of its own type = %v", err)
	}
	r.SchemaVersion = 2
	rttest.FailsAs(t, r.Check(MsgActionChunk), ErrMalformed) // this header has schema 2
}
