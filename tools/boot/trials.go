package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/stage"
)

// outcome is the state in which a fault leaves the arm.
type outcome string

const (
	limp  outcome = "limp"  // no motor has torque
	holds outcome = "holds" // each motor keeps its torque
)

// A trial is one fault and its bounds.
type trial struct {
	name   string
	always bool // later trials need the effect of this trial, so it is always played, and only once
	do     func(context.Context, *system) error
	leaves outcome
	safe   time.Duration // limp: longest time from the end of function do until no motor has torque
	mend   func(context.Context, *system) error
	again  time.Duration // longest time from the end of function mend until the arm moves; 0: it does not move
}

// streamsOn is the longest time until the arm moves in a trial that does not stop the arm. It is this long because the
// motors of a busy machine may answer late.
const streamsOn = 10 * time.Second

// trials are in the order in which they are played; the last one removes the packages.
var trials = []trial{
	{
		name:   "installation",
		always: true,
		do:     install,
		leaves: limp,
		mend:   commands("systemctl enable --now lean-server edge-rt@left"),
		again:  20 * time.Second,
	},
	{
		name:   "units verified, exposure at most 2.5",
		do:     verify,
		leaves: holds,
		again:  streamsOn,
	},
	{
		name:   "kernel, memory, threads",
		do:     threads,
		leaves: holds,
		again:  streamsOn,
	},
	{
		name:   "edge-rt killed",
		do:     kill("KILL", "edge-rt@left"),
		leaves: limp,
		safe:   time.Second,
		again:  15 * time.Second,
	},
	{
		name:   "tick hangs",
		do:     kill("STOP", "edge-rt@left"),
		leaves: limp,
		safe:   4 * time.Second,
		again:  15 * time.Second,
	},
	{
		name: "lean-server killed",
		do: func(ctx context.Context, s *system) error {
			err := kill("KILL", "lean-server")(ctx, s)
			stage.Until(time.Second, func() bool { return !s.streams(ctx) })
			return err
		},
		leaves: holds,
		again:  15 * time.Second,
	},
	{
		name:   "adapter unplugged for 3 s",
		do:     func(ctx context.Context, s *system) error { return s.unplug(ctx) },
		leaves: holds,
		mend: func(ctx context.Context, s *system) error {
			if _, err := s.run(ctx, "sleep 3"); err != nil {
				return err
			}
			return s.plug(ctx)
		},
		again: 15 * time.Second,
	},
	{
		name:   "upgrade while streaming",
		do:     upgrade,
		leaves: holds,
		again:  streamsOn,
	},
	{
		name:   "restart after the upgrade",
		do:     commands("systemctl stop edge-rt@left"),
		leaves: limp,
		safe:   5 * time.Second,
		mend:   commands("systemctl start edge-rt@left", "test $(dpkg-query -W -f '${Version}' edge-rt) = 99"),
		again:  10 * time.Second,
	},
	{
		name: "disk full",
		// edge-rt deletes its oldest records to make room, and dd fills this room again.
		do: commands("for i in 1 2 3; do dd if=/dev/zero of=/var/lib/edge-rt/ballast$i bs=1M 2>/dev/null; "+
			"edge-rt ctl --id left save; sleep 1; done",
			"journalctl -u edge-rt@left | grep -q 'nothing can be recorded'"),
		leaves: holds,
		mend:   commands("rm /var/lib/edge-rt/ballast*"),
		again:  streamsOn,
	},
	{
		name: "port appears late",
		do: func(ctx context.Context, s *system) error {
			return errors.Join(commands("systemctl stop edge-rt@left")(ctx, s), s.unplug(ctx), commands(
				"systemctl start --no-block edge-rt@left; sleep 3; ! systemctl is-active edge-rt@left")(ctx, s))
		},
		leaves: limp,
		mend:   func(ctx context.Context, s *system) error { return s.plug(ctx) },
		again:  20 * time.Second,
	},
	{
		name: "all processes gone at once",
		do: func(ctx context.Context, s *system) error {
			_, err := s.run(ctx, "edge-rt ctl --id left save; sleep 3; ls /var/lib/edge-rt/records/*.mcap")
			s.off()
			return err
		},
		leaves: holds,
		mend:   boot,
		again:  30 * time.Second,
	},
	{
		name: "records after that",
		do: commands("edge-rt ctl --id left save; sleep 3; edge-rt why --id left",
			"test $(ls /var/lib/edge-rt/records | wc -l) -ge 2"),
		leaves: holds,
		again:  streamsOn,
	},
	{
		name:   "packages removed while streaming",
		do:     commands("dpkg -r edge-rt lean-server", "test ! -e /usr/bin/edge-rt"),
		leaves: limp,
	},
}

// commands returns a fault that runs command lines; each of them must succeed.
func commands(lines ...string) func(context.Context, *system) error {
	return func(ctx context.Context, s *system) error {
		for _, line := range lines {
			if _, err := s.run(ctx, line); err != nil {
				return err
			}
		}
		return nil
	}
}

// kill returns a fault that sends a signal to the main process of a service.
func kill(signal, service string) func(context.Context, *system) error {
	return commands("systemctl kill --kill-whom=main -s " + signal + " " + service)
}

// play plays a trial in which the arm moves, and prints the times. The error names the failed condition.
func (s *system) play(ctx context.Context, t *trial) error {
	s.limp.Store(0)
	began := rt.KernelClock().Now()
	if err := t.do(ctx, s); err != nil {
		return err
	}
	line := "ok    " + t.name
	if t.leaves == limp {
		ok := stage.Until(s.slow*(t.safe+time.Second), s.isLimp)
		took := rt.Instant(s.limp.Load()).Sub(began)
		switch {
		case !ok:
			return errors.New("the arm is still under torque")
		case t.safe != 0 && took > s.slow*t.safe:
			return fmt.Errorf("limp after %.2f s, want %v at most", took.Seconds(), s.slow*t.safe)
		case s.limp.Load() != 0:
			line += fmt.Sprintf(", limp after %.2f s", took.Seconds())
		}
	}
	if t.mend != nil {
		if err := t.mend(ctx, s); err != nil {
			return err
		}
	}
	if t.again != 0 {
		mended := time.Now()
		if !s.moves(ctx, s.slow*t.again) {
			return fmt.Errorf("no movement and STREAMING within %v", s.slow*t.again)
		}
		line += fmt.Sprintf(", streams again after %.1f s", time.Since(mended).Seconds())
	}
	if t.leaves == holds && s.limp.Load() != 0 {
		return errors.New("a motor lost its torque")
	}
	fmt.Println(line)
	return nil
}

// moves waits until the arm gets new goals under torque and its service streams.
func (s *system) moves(ctx context.Context, limit time.Duration) bool {
	goals := s.goals.Load()
	return stage.Until(limit, func() bool {
		return s.arm.Armed() && s.goals.Load() > goals+30/int64(s.slow) && s.streams(ctx)
	})
}

// tries plays a trial up to three times until it succeeds, because a busy machine may delay all of
// its programs. It plays a trial once if later trials need its effect.
func (s *system) tries(ctx context.Context, t *trial) error {
	for try := 1; ; try++ {
		err := s.play(ctx, t)
		if err == nil {
			return nil
		}
		if try == 3 || t.always || ctx.Err() != nil {
			return err
		}
		fmt.Printf("again %s: %v\n", t.name, err)
		if _, err := s.run(ctx, "rm -f /var/lib/edge-rt/ballast*; systemctl reset-failed; "+
			"systemctl restart lean-server edge-rt@left"); err != nil {
			return err
		}
		if !s.moves(ctx, s.slow*time.Minute) {
			return errors.New("the arm does not move after a restart of its services")
		}
	}
}

// streams reports whether the edge's service is in the state STREAMING.
func (s *system) streams(ctx context.Context) bool {
	out, _ := s.run(ctx, "systemctl show -p StatusText --value edge-rt@left")
	return strings.TrimSpace(out) == "STREAMING"
}

func (s *system) isLimp() bool { return !slices.Contains(s.arm.TorqueEnabled(), true) }

// install boots the system, and installs and configures the packages.
func install(ctx context.Context, s *system) error {
	if err := s.boot(ctx); err != nil {
		return err
	}
	return commands("dpkg -i --force-confold /boot/*.deb", "id edge-rt; id lean-server",
		`sed -i 's,repo_or_path:.*,repo_or_path: /boot/policy,' /etc/lean-server/server.yaml`,
		"chmod -R a+rX /boot/policy")(ctx, s)
}

// verify has systemd check both units.
func verify(ctx context.Context, s *system) error {
	return commands("systemd-analyze verify edge-rt@left.service lean-server.service 2>&1 | tee /dev/stderr | wc -l "+
		"| grep -qx 0",
		"systemd-analyze security --threshold=25 edge-rt@left",
		"systemd-analyze security --threshold=25 lean-server")(ctx, s)
}

// threads prints the kernel, the size of its pages, the name that edge-rt doctor gives the kernel, and
// the classes and priorities of edge-rt's threads. In QEMU it also checks that edge-rt has locked its
// memory, and that its tick has SCHED_FIFO 80; a container may not raise its limits.
func threads(ctx context.Context, s *system) error {
	const edge = "edge=$(systemctl show -p MainPID --value edge-rt@left); "
	out, err := s.run(ctx, edge+"uname -srvm; echo pages of $(getconf PAGESIZE) bytes; edge-rt doctor 2>/dev/null | "+
		"grep kernel; echo threads of edge-rt: $(ps -L -o cls=,rtprio=,ni= -p $edge | sort | uniq -c); "+
		"grep VmLck /proc/$edge/status")
	fmt.Print(out)
	if _, own := s.host.(*machine); !own || err != nil {
		return err
	}
	return commands(edge+"ps -L -o cls=,rtprio= -p $edge | grep -qx ' *FF *80'",
		edge+"! grep -q 'VmLck:.* 0 kB' /proc/$edge/status")(ctx, s)
}

// upgrade installs the same packages as version 99. The arm still moves, run by the old program.
func upgrade(ctx context.Context, s *system) error {
	return commands("systemctl show -p MainPID edge-rt@left >/run/before",
		"rm -rf /new; mkdir /new",
		"cd /new && for deb in /boot/edge-rt_*.deb /boot/edge-rt-common*.deb /boot/lean*.deb; do "+
			"rm -rf x; dpkg-deb -R $deb x; sed -i s/$(dpkg-deb -f $deb Version)/99/ x/DEBIAN/control; dpkg-deb "+
			"-Znone -b x . >/dev/null; done",
		"dpkg -i --force-confold /new/*.deb",
		"systemctl show -p MainPID edge-rt@left | cmp - /run/before")(ctx, s)
}

func boot(ctx context.Context, s *system) error { return s.boot(ctx) }
