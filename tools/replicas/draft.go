package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// The behaviour of a client of LeRobot's remote inference draft: it sends a request every
// draftPeriod, and opens a new session if no chunk came for draftPatience.
const (
	draftPeriod   = 150 * time.Millisecond
	draftPatience = time.Second
	draftID       = "draft"
)

// draft is a robot of LeRobot's remote inference draft: its messages have no server, no instance
// and no epoch, and lack the keys that this project has added.
type draft struct {
	link   wire.Session
	prefix string
	hello  []byte // open message of the client
	obs    wire.Publisher
	body   []byte
	stop   chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex // guards the rest
	chunks   map[uint64]int
	last     time.Time // time at which the last chunk came
	opens    int
	problems []string
}

// addDraft starts a robot of the draft, and returns once the robot streams.
func (s *stand) addDraft() error {
	bundle, err := policy.LoadBundle(filepath.Join(s.o.Bundles, "bundle"))
	if err != nil {
		return err
	}
	o, err := stage.ObservationOf(&bundle.Meta, 0)
	if err != nil {
		return err
	}
	open := stage.OpenOf(&bundle.Meta, draftID)
	open.SessionEpoch, open.RTCEnabled = 0, false
	d := &draft{
		hello:  wire.Append(nil, &open),
		body:   wire.AppendObservation(nil, &o),
		stop:   make(chan struct{}),
		chunks: map[uint64]int{},
	}
	if d.prefix, err = wire.ServicePrefix(stage.DemoModel, "main", stage.DemoService); err != nil {
		return err
	}
	cfg := zenoh.Config{Connect: []string{s.router.Endpoint}}
	if d.link, err = network.Open(context.Background(), cfg); err != nil {
		return err
	}
	if err := errors.Join(d.declare(), d.open()); err != nil {
		return errors.Join(err, d.link.Close())
	}
	d.ended.Go(d.run)
	s.draft = d
	if !stage.Until(startLimit, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.chunks) > 0
	}) {
		return fmt.Errorf("the draft's robot streams: not within %v", startLimit)
	}
	return nil
}

func (d *draft) declare() (err error) {
	action, err1 := wire.ActionKey(d.prefix, draftID)
	obs, err2 := wire.ObsKey(d.prefix, draftID)
	alive, err3 := wire.ClientAliveKey(d.prefix, draftID)
	if err = errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, err1 = d.link.Subscribe(action, d.receive)
	_, err2 = d.link.Token(alive)
	d.obs, err3 = d.link.Publisher(obs, wire.ObservationQoS)
	return errors.Join(err1, err2, err3)
}

// open opens a session at the server that answers, which should be the only one. At some moments no
// server answers, because each assumes that another will answer.
func (d *draft) open() error {
	replies, err := d.link.Get(context.Background(), wire.SessionKey(d.prefix), d.hello, draftPatience)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = time.Now()
	if len(replies) > 1 {
		d.problems = append(d.problems, fmt.Sprintf("an open of the draft's robot got %d answers", len(replies)))
	}
	if len(replies) == 1 {
		d.opens++
	}
	return nil
}

func (d *draft) receive(sample wire.Sample) {
	h, err := wire.ParseHeader(sample.Attachment)
	if err != nil || h.MsgType != wire.MsgActionChunk {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chunks[h.SeqID]++
	d.last = time.Now()
}

func (d *draft) run() {
	for seq := uint64(1); ; seq++ {
		_ = d.obs.Put(d.body, wire.AppendHeader(nil,
			wire.Header{SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgObservation, SeqID: seq}))
		select {
		case <-d.stop:
			return
		case <-time.After(draftPeriod):
		}
		d.mu.Lock()
		silent := time.Since(d.last) > draftPatience
		d.mu.Unlock()
		if silent {
			_ = d.open()
		}
	}
}

// server returns the server of the robot's newest chunk.
func (d *draft) server(s *stand) *server {
	var at *server
	var when time.Time
	for _, sv := range s.servers {
		if l := sv.Log.Lines(draftOpened); len(l) > 0 && l[len(l)-1].At.After(when) {
			at, when = sv, l[len(l)-1].At
		}
	}
	return at
}

// judgeDraft checks that the draft's robot got one chunk for each request, and that the last chunk is recent.
func (s *stand) judgeDraft() error {
	d := s.draft
	d.mu.Lock()
	defer d.mu.Unlock()
	for seq, n := range d.chunks {
		if n > 1 {
			d.problems = append(d.problems, fmt.Sprintf("the draft's robot got %d chunks for its request %d", n, seq))
		}
	}
	if quiet := time.Since(d.last); quiet > draftPatience {
		d.problems = append(d.problems, fmt.Sprintf("the draft's robot is without a chunk for %.1f s", quiet.Seconds()))
	}
	s.problems = append(s.problems, d.problems...)
	fmt.Printf("      the draft's robot: %d chunks, %d opens\n", len(d.chunks), d.opens)
	return nil
}

func (d *draft) leave() {
	close(d.stop)
	d.ended.Wait()
	_ = d.link.Close()
}
