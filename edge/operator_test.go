package edge

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestPauseHoldsAndKeepsTheQueue(t *testing.T) {
	r := newRig(t)
	r.slope = 0.1
	r.serve(60, 3, 10)
	size := r.view().Size
	n := r.view().N
	goal := r.arm.Goal[0]
	asked := r.requests()
	r.pause(true)
	r.step(500) // longer than degradedAfter and maxOffline
	if r.view().Size != size || r.view().N != n || r.arm.Goal[0] != goal ||
		r.requests() != asked {
		t.Errorf("pause: size %d → %d, n %d → %d, goal %v → %v, %d requests; want all as they were", size,
			r.view().Size, n, r.view().N, goal, r.arm.Goal[0],
			r.requests()-asked)
	}
	if r.starved() != 0 || r.run.state != stateStreaming {
		t.Errorf("pause: starved %d, state %v; want 0 and STREAMING", r.starved(), r.run.state)
	}
	if since := r.Now().Sub(rt.Instant(r.out.MergedAt.Load())); since > testPeriod {
		t.Errorf("pause: the link misses an answer for %v, want for none", since)
	}
	r.core.MaxAge = 0
	r.pause(false)
	r.step(1)
	rttest.Want(t, r.view().N, n+1, "resume: n")
}

func TestResetBeginsAnEpisode(t *testing.T) {
	r := running(t, 60)
	before := r.session.key
	r.operator.resets.Add(1)
	r.step(1)
	if r.session.episode != 2 || r.view().Size != 0 || r.stats.episode.Load() != 2 {
		t.Fatalf("episode %d with %d actions left, want 2 and none", r.session.episode, r.view().Size)
	}
	if r.session.key != before+1 {
		t.Fatalf("%d requests in the resetting tick, want 1", r.session.key-before)
	}
	snap, _, _ := r.out.Snapshots.Front()
	if !snap.Start || snap.Episode != 2 || snap.Ask.Rows != 0 {
		t.Errorf("next observation start %v episode %d prefix %d, want true 2 0", snap.Start, snap.Episode,
			snap.Ask.Rows)
	}
	r.answer(r.session.key, 10) // the rig answers for episode 1
	r.step(1)
	rttest.Want(t, r.stats.dropped[uplink.DropEpisode].Load(), 1, "chunks of the old episode dropped")
}

// Goal: a policy's run carries out each command.
func TestEveryCommandHasAnAction(t *testing.T) {
	e := &Edge{control: newRig(t).control}
	if all := e.panel().Actions; len(all) != len(operator.Commands)-1 {
		t.Errorf("%d commands, want all but status, which has no action", len(all))
	}
}

func TestCtlOverTheSocket(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	id := rttest.Must(operator.Claim("arm"))(t)
	defer id.Release()
	r := newRig(t)
	e := &Edge{
		identity: id, control: r.control, clock: rt.KernelClock(), cfg: Config{FPS: 100},
		drive: r.drive,
		link:  r.link,
	}
	e.commands = e.panel()
	rttest.Do(t, e.listenOperator(t.Context()))
	var threads sync.WaitGroup
	operator.Serve(e.operator, func(thread func() error) { threads.Go(func() { rttest.Do(t, thread()) }) },
		func(line string) operator.Reply { return e.commands.Command(context.Background(), line) })
	reply, err := operator.Ctl("", "pause")
	if err != nil || !reply.OK || !reply.Paused || reply.ID != "arm" || reply.State != "CONNECTING" {
		t.Errorf("pause = %+v, %v", reply, err)
	}
	if !r.operator.pause.Load() {
		t.Error("the tick was not told")
	}
	if reply, err = operator.Ctl("arm", "resume"); err != nil || reply.Paused {
		t.Errorf("resume = %+v, %v", reply, err)
	}
	// edge-rt --id accepts an id in this form, too
	if reply, err = operator.Ctl("arm ", "status"); err != nil || reply.ID != "arm" {
		t.Errorf("status of \"arm \" = %+v, %v", reply, err)
	}
	if _, err = operator.Ctl("//", "status"); exit.Of(err) != exit.Usage {
		t.Errorf("status of an id without letters = %v, want a wrong flag", err)
	}
	if _, err = operator.Ctl("arm", "pause now"); !rttest.Says(err, "takes no argument") || r.operator.pause.Load() {
		t.Errorf("pause with a text = %v, want it refused", err)
	}
	if _, err = operator.Ctl("arm", "dance"); !rttest.Says(err, "dance", "Ctrl-C") {
		t.Errorf("unknown command = %v", err)
	}
	if _, err = operator.Ctl("arm", "reset"); !rttest.Says(err, "tick") {
		t.Errorf("reset without a running tick = %v, want an error that says so", err)
	}
	e.operator.Close()
	threads.Wait()
	if _, err := os.Stat(operator.SocketPath(id.Dir, "arm")); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if _, err := operator.Ctl("arm", "status"); err == nil {
		t.Error("a dead edge answered")
	}
}
