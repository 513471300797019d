package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// crowd is the sessions that one link has opened, each under another name, and floods with observations.
type crowd struct {
	open    []wire.Publisher
	refused string // text of the last refusal
	body    []byte
}

// crowd returns a crowd of n sessions, or as many as the server allows. Every observation will have this body.
func (r *running) crowd(n int, body wire.Observation) *crowd {
	r.t.Helper()
	network, prefix := r.dial()
	c := new(crowd)
	for i := range n {
		o := demoOpen(r.t, fmt.Sprintf("bot-%03d", i))
		o.CameraNames = append(o.CameraNames, "observation.images.side")
		ack := openSession(r.t, network, prefix, o)
		if !ack.Accepted {
			c.refused = ack.Error
			if !ack.Temporary() {
				r.t.Fatalf("a refusal for good: %+v", ack)
			}
			continue
		}
		key, _ := wire.ObsKey(prefix, o.ClientUUID)
		obs := rttest.OrPanic(network.Publisher(key, wire.ObservationQoS))
		c.open = append(c.open, obs)
	}
	body.Images = append(slices.Clip(body.Images),
		wire.Image{Name: "observation.images.side", Data: make([]byte, 640*480*3)})
	body.RunwayMs, body.HasRunway = 1, true
	c.body = wire.AppendObservation(nil, &body)
	return c
}

// headOf returns the header of an observation.
func headOf(seq uint64, epoch uint32) []byte {
	return wire.AppendHeader(nil, wire.Header{
		SchemaVersion: wire.SchemaVersion,
		MsgType:       wire.MsgObservation,
		SeqID:         seq,
		SessionEpoch:  epoch,
	})
}

// flood sends observations of all sessions in turn, perS per second, until the channel over is closed.
func (c *crowd) flood(perS int, over <-chan struct{}) {
	pace := time.NewTicker(time.Second / time.Duration(perS))
	defer pace.Stop()
	for seq := uint64(1); ; seq++ {
		for _, obs := range c.open {
			select {
			case <-pace.C:
			case <-over:
				return
			}
			_ = obs.Put(c.body, headOf(seq, 0)) // dropped observations are not repeated
		}
	}
}

// Goal: one link cannot take the server from the others. One link opens 290 sessions and floods them with
// observations that have raw pictures of 640x480 and short runways (few remaining actions). Two robots on other links
// get chunks as before, and the server's memory hardly grows. Soon after the link's end, the server has freed its
// memory.
func TestOneLinkAmongRobots(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("half a minute")
	}
	r, _, _ := serve(t, "--quiet", "--manifest", writeManifest(t, demoBundle(t)+"max_sessions: 300\n"))
	const robots, pause = 2, 50 * time.Millisecond
	var arms []*arm
	for i := range robots {
		network, _ := r.dial()
		arms = append(arms, newArmNamed(t, network, fmt.Sprintf("arm-%d", i)))
	}
	chunks := func(during time.Duration) (perS float64) {
		n, began := 0, time.Now()
		for ; time.Since(began) < during; time.Sleep(pause) { // robots pause between their requests, too
			for _, a := range arms {
				a.send()
			}
			for _, a := range arms {
				a.answer()
				n++
			}
		}
		return float64(n) / time.Since(began).Seconds()
	}
	chunks(time.Second / 2)
	idle, _ := zenohtest.Resident(t, r.Process.Pid)
	before := chunks(1500 * time.Millisecond)
	c := r.crowd(290, arms[0].Observation)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); c.flood(150, over) }()
	chunks(time.Second)
	during := chunks(2 * time.Second)
	_, peak := zenohtest.Resident(t, r.Process.Pid)
	close(over)
	<-ended
	t.Logf("%d sessions; RSS %d MB, at most %d MB; chunks/s of %d robots %.1f, then %.1f", len(c.open), idle>>20,
		peak>>20, robots, before, during)
	if len(c.open) != 8 || !strings.Contains(c.refused, "sessions_per_link") {
		t.Errorf("%d sessions of one link, want 8; the last refusal: %s", len(c.open), c.refused)
	}
	if grown := (peak - idle) >> 20; grown > 128 {
		t.Errorf("the server grew by %d MB, want at most 128", grown)
	}
	if during < before/2 {
		t.Errorf("robots got %.1f chunks/s instead of %.1f, want at least half", during, before)
	}
	s := r.stop(syscall.SIGTERM)
	if s.Memory.MostMB > s.Memory.LimitMB || s.Memory.MostMB == 0 || s.Refusals["quota"] != 282 {
		t.Errorf("memory %+v, refusals %v", s.Memory, s.Refusals)
	}
}
