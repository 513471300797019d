package main

import (
	"context"
	"errors"
	"fmt"
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
	always bool // its effect is needed by the next trials
	do     func(context.Context, *system) error
	leaves outcome
	safe   time.Duration // limp: bound from the end of do until no motor has torque
	mend   func(context.Context, *system) error
	again  time.Duration // bound from the end of mend until the arm moves again; 0: it does not
}

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
		again:  time.Second,
	},
	{
		name:   "kernel, memory, threads",
		do:     threads,
		leaves: holds,
		again:  time.Second,
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
		again:  time.Second,
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
		do: commands("dd if=/dev/zero of=/var/lib/edge-rt/ballast bs=1M 2>/dev/null; sleep 3; "+
			"df --output=avail /var/lib/edge-rt | grep -qx ' *0'", "journalctl -n 1 >/dev/null"),
		leaves: holds,
		mend:   commands("rm /var/lib/edge-rt/ballast"),
		again:  time.Second,
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
		do: func(_ context.Context, s *system) error {
			s.off()
			return nil
		},
		leaves: holds,
		mend:   boot,
		again:  30 * time.Second,
	},
	{
		name:   "records after that",
		do:     commands("edge-rt why --id left", "test $(ls /var/lib/edge-rt/records | wc -l) -ge 2"),
		leaves: holds,
		again:  time.Second,
	},
	{
		name:   "packages removed while streaming",
		do:     commands("dpkg -r edge-rt lean-server", "test ! -e /usr/bin/edge-rt"),
		leaves: limp,
	},
}

// commands makes a fault of command lines, each of which must succeed.
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

// kill sends a signal to the main process of a service.
func kill(signal, service string) func(context.Context, *system) error {
	return commands("systemctl kill --kill-whom=main -s " + signal + " " + service)
}

// play plays a trial in which the arm moves, and prints the times.
func (s *system) play(ctx context.Context, t *trial, checks *stage.Checks) error {
	s.limp.Store(0)
	began := rt.KernelClock().Now()
	if err := t.do(ctx, s); err != nil {
		return err
	}
	line := t.name
	if t.leaves == limp {
		ok := stage.Until(s.slow*(t.safe+time.Second), s.isLimp)
		took := rt.Instant(s.limp.Load()).Sub(began)
		if !ok {
			checks.That(false, "%s: the arm is still under torque", t.name)
			return nil
		}
		if s.limp.Load() != 0 {
			line += fmt.Sprintf(", limp after %.2f s", took.Seconds())
		}
		checks.That(t.safe == 0 || took <= s.slow*t.safe, "%s", line)
	}
	if t.mend != nil {
		if err := t.mend(ctx, s); err != nil {
			return err
		}
	}
	if t.again == 0 {
		return nil
	}
	mended := time.Now()
	goals := s.goals.Load()
	ok := stage.Until(s.slow*t.again, func() bool {
		return s.arm.Armed() && s.goals.Load() > goals+30/int64(s.slow) && s.streams(ctx)
	})
	if t.leaves == holds && s.limp.Load() != 0 {
		checks.That(false, "%s: a motor lost its torque", t.name)
	}
	checks.That(ok, "%s: streams again after %.1f s, want %v at most", t.name, time.Since(mended).Seconds(),
		s.slow*t.again)
	return nil
}

// streams reports whether the edge's service is in the state STREAMING.
func (s *system) streams(ctx context.Context) bool {
	out, _ := s.run(ctx, "systemctl show -p StatusText --value edge-rt@left")
	return strings.TrimSpace(out) == "STREAMING"
}

func (s *system) isLimp() bool {
	for _, on := range s.arm.TorqueEnabled() {
		if on {
			return false
		}
	}
	return true
}

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

// threads prints the kernel, the size of its pages, doctor's name for it, and the classes and priorities
// of edge-rt's threads. On a kernel of its own edge-rt has locked its memory, and its tick has SCHED_FIFO
// 80; a container may not raise its limits.
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

// upgrade installs the same packages as version 99. The arm goes on with the program that it has.
func upgrade(ctx context.Context, s *system) error {
	return commands("systemctl show -p MainPID edge-rt@left >/run/before",
		"mkdir /new && cd /new && for deb in /boot/edge-rt_*.deb /boot/edge-rt-common*.deb /boot/lean*.deb; do "+
			"rm -rf x; dpkg-deb -R $deb x; sed -i s/$(dpkg-deb -f $deb Version)/99/ x/DEBIAN/control; dpkg-deb "+
			"-Znone -b x . >/dev/null; done",
		"dpkg -i --force-confold /new/*.deb",
		"systemctl show -p MainPID edge-rt@left | cmp - /run/before")(ctx, s)
}

func boot(ctx context.Context, s *system) error { return s.boot(ctx) }
