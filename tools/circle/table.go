package main

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/scene"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
)

// table is a simulated arm with its world, a leader beside it, and the teacher's hand at
// the leader.
type table struct {
	dir      string // folder of the links and the socket
	follower *stage.Child
	leader   *servosim.Bus
	hand     *hand
}

func (t *table) bus() string    { return filepath.Join(t.dir, "follower") }
func (t *table) lead() string   { return filepath.Join(t.dir, "leader") }
func (t *table) socket() string { return filepath.Join(t.dir, "scene") }
func (t *table) camera() string { return "top=sim:" + t.socket() }

// arms returns edge-rt's flags for both arms, and for the camera with this size.
func (t *table) arms(size string) []string {
	return []string{
		"--robot", robotName, "--bus", t.bus(), "--calibration", calibration, "--id", id,
		"--leader", t.lead(), "--leader-calibration", calibration, "--camera", t.camera() + size, "--task", task,
		"--quiet",
	}
}

// lay sets up the world of a seed. edge-rt sim-bus simulates the arm, and this process simulates
// the leader, which begins at the arm's position.
func lay(ctx context.Context, p *plan, dir string, seed int) (t *table, err error) {
	t = &table{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.clear())
		}
	}()
	t.follower, err = stage.StartSimBus(p.given.Bin, t.bus(), "--robot", robotName, "--seed", strconv.Itoa(seed),
		"--scene", t.socket(), "--weightless")
	if err != nil {
		return t, err
	}
	eye, err := scene.Dial(t.socket())
	if err != nil {
		return t, err
	}
	r, err := robot.ByName(robot.Robot{Name: robotName}.DefaultLeader())
	if err != nil {
		return t, err
	}
	shafts := sim.NewHand(len(r.Motors), 0)
	cfg := device.SimBus(r, shafts, rt.KernelClock())
	cfg.Link = t.lead()
	t.hand = newHand(eye, shafts)
	if err := t.hand.place(); err != nil {
		return t, err
	}
	if t.leader, err = servosim.Open(cfg); err != nil {
		return t, err
	}
	go t.hand.move(ctx)
	return t, nil
}

// clear ends everything on the table.
func (t *table) clear() (err error) {
	if t.leader != nil {
		err = t.hand.end()
		t.leader.Close()
	}
	if t.follower != nil {
		err = errors.Join(err, t.follower.Stop())
	}
	return err
}

// tick is the interval of the hand's movements and of the world's ticks.
const tick = time.Second / 60

// judgement returns the number of legs that have ended, with any result.
func judgement(v sim.Score) int { return v.Reached + v.Collided + v.Timeouts }
