package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const twinDelay = 150 * time.Millisecond

// draftServer returns a server that answers late, and in the way of LeRobot's draft: it sends every chunk to all
// robots with the same name, and echoes only the request's header. A chunk's action for the first joint shows which
// task the chunk is for, and so which robot.
func draftServer(t *testing.T) (p *player, answered func() (one, two int64)) {
	t.Helper()
	s := newHoldServer(t)
	var counts [2]atomic.Int64
	var pending sync.WaitGroup
	var ended atomic.Bool
	t.Cleanup(func() { ended.Store(true); pending.Wait() })
	s.SetAck(func(ack *wire.SessionAck) { ack.T, ack.TrainedFPS = 0, 30 })
	s.SetAnswer(func(sample wire.Sample) {
		h, o, ok := stage.ParseRequest(sample)
		if !ok || ended.Load() {
			return
		}
		m := s.Chunk(o.State, func(row []float32, _ int) { row[0] = twinAction(o.Task) })
		if o.Task == "one" {
			counts[0].Add(1)
		} else {
			counts[1].Add(1)
		}
		pending.Go(func() {
			time.Sleep(twinDelay) // a slow policy: the other robot's request arrives before the answer
			s.Reply(h, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m})
		})
	})
	return &player{holdServer: s}, func() (int64, int64) { return counts[0].Load(), counts[1].Load() }
}

func twinAction(task string) float32 { return map[string]float32{"one": 15, "two": -15}[task] }

// Two robots with the same name use a server that answers after 150 ms, does not refuse the second robot and does not
// mark whose answer a chunk is. Each robot also receives the other robot's chunks, which have that robot's sequence
// numbers, epochs and episodes, and runs none of their actions.
func TestTwinsRunTheirOwnActions(t *testing.T) { // not in parallel: another test could delay one twin
	rttest.RealTime(t) // both robots must get ten answers within the run
	p, answered := draftServer(t)
	d := 5 * time.Second
	var foreign atomic.Uint64
	t.Run("both", func(t *testing.T) {
		for _, task := range []string{"one", "two"} {
			t.Run(task, func(t *testing.T) {
				t.Parallel()
				s, actions := p.play(t, d, "--task", task)
				others := 0
				for _, a := range actions {
					if a.Action.V[0] != twinAction(task) {
						others++
					}
				}
				t.Logf("%d chunks of %d requests, dropped %v; of %d actions %d came from the other's requests",
					s.Chunks, s.Requests, s.ChunksDropped, len(actions), others)
				if others > 0 || len(actions) < 30 { // an idle machine records some 250 actions
					t.Errorf("of %d actions that ran, %d came from the other's requests, want 0 of at least 30",
						len(actions), others)
				}
				foreign.Add(s.ChunksDropped["foreign"])
			})
		}
	})
	if one, two := answered(); one < 10 || two < 10 || foreign.Load() == 0 {
		t.Errorf("the server answered %d and %d requests, %d foreign answers arrived: the two did not meet", one,
			two, foreign.Load())
	}
}

// Two robots with the same name on two hosts use one lean-server. The first robot keeps the name. The second robot
// reports the host of the first one and does not touch its own arm. When the first robot becomes silent, a third robot
// gets the name after the lease.
func TestANameBelongsToOneRobot(t *testing.T) {
	rttest.RealTime(t) // everything must happen within two leases
	t.Parallel()
	server, endpoint := startLeanServer(t, demo+"/server.yaml")
	black := func(args ...string) *process { // starts a robot with a state directory of its own, as on a separate host
		r := edgeCommand(t, []string{"--id", "black", "--bus", "sim", "--camera", "top=sim", "--connect", endpoint,
			"--duration", "30s", "--rt", "off"}, args...)
		r.Start()
		return r
	}
	const opened = "session open"
	first := black()
	first.Await(opened)
	host := rttest.Must(os.Hostname())(t)
	second := black("--max-offline", "2s")
	code := second.End()
	want := fmt.Sprintf("another robot on host %s runs as black: give one of them another --id", host)
	if text := second.Log.String(); code != 4 || !strings.Contains(text, want) || strings.Contains(text, opened) {
		t.Errorf("the second ended with code %d, want 4, and said\n%s\nwant %q", code, text, want)
	}

	// Like a host that loses power, a stopped process neither undeclares its token nor renews its
	// lease. So the name is free only when the lease of the link ends.
	first.Process.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	third := black("--duration", "6s")
	third.Await(opened)
	if took := time.Since(stopped); took > 2*zenoh.DefaultLease {
		t.Errorf("its successor is in %v after it was stopped, want the lease of %v and an attempt", took,
			zenoh.DefaultLease)
	}
	if n := strings.Count(first.Log.String(), opened); n != 1 {
		t.Fatalf("the first opened %d sessions so far", n)
	}
	first.Process.Signal(syscall.SIGCONT) // the first robot goes on, but the name belongs to another robot now
	first.Await(want)
	third.EndsWith(0)
	if s := third.summary(); s.Chunks == 0 || s.ChunksDropped["foreign"] != 0 {
		t.Errorf("the successor: %d chunks, dropped %v, want chunks and none foreign", s.Chunks, s.ChunksDropped)
	}
	first.End(syscall.SIGKILL) // the process does not undeclare its token, but the kernel closes its link
	fourth := black("--duration", "1s")
	if code := fourth.End(); code != 0 || strings.Contains(fourth.Log.String(), want) {
		t.Errorf("after a kill the next ended with code %d, want 0 and no word of another\n%s", code, fourth.Log)
	}
	server.CheckSays("reason=taken")
}
