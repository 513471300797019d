package quota

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// The bounds on sessions per link and per host hold only where the link or the host is known.
func TestPlaces(t *testing.T) {
	link := func(name, host string) func(int) wire.Origin {
		return func(int) wire.Origin { return wire.Origin{Name: name, Host: host} }
	}
	for _, tt := range []struct {
		name string
		from func(i int) wire.Origin
		most int // number of sessions that are accepted; 0: any number
		says string
	}{
		{"one link", link("link 1", "10.0.0.1"), 3, "link 1 has 3, and one link may have 3 (sessions_per_link)"},
		{"one certificate", link("certificate arm", ""), 3, "certificate arm has 3"},
		{"many links of one host", func(i int) wire.Origin {
			return wire.Origin{Name: fmt.Sprint("link ", i), Host: "10.0.0.1"}
		}, 5, "host 10.0.0.1 has 5, and one host may have 5 (sessions_per_host)"},
		{"many links of this machine", func(i int) wire.Origin {
			return wire.Origin{Name: fmt.Sprint("link ", i)}
		}, 0, ""},
		{"robots behind a router", func(int) wire.Origin { return wire.Origin{} }, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := NewCounter(Limits{Link: 3, Host: 5})
			var entered []Place
			why := ""
			for i := range 50 {
				p := b.Place(tt.from(i))
				if why = p.Refuse(Place{}); why != "" {
					break
				}
				entered = append(entered, p.Enter())
			}
			if most := tt.most; len(entered) != most && most != 0 || most == 0 && len(entered) != 50 ||
				!strings.Contains(why, tt.says) || (why == "") != (most == 0) {
				t.Fatalf("%d sessions, then %q; want %d, then %q", len(entered), why, most, tt.says)
			}
			if last := entered[len(entered)-1]; last.Refuse(last) != "" {
				t.Errorf("its own next session is refused: %s", last.Refuse(last))
			}
			for _, p := range entered {
				p.Leave()
			}
			rttest.Want(t, len(b.groups), 0, "groups without members")
			rttest.Want(t, b.Place(tt.from(0)).Refuse(Place{}), "", "all have left, and one more is refused")
		})
	}
}

// The robots of a link share turns, and so do the links of a host.
func TestGroups(t *testing.T) {
	b := NewCounter(Limits{Link: 9, Host: 9})
	one := b.Place(wire.Origin{Name: "link 1", Host: "h"}).Enter()
	two := b.Place(wire.Origin{Name: "link 1", Host: "h"}).Enter()
	other := b.Place(wire.Origin{Name: "link 2", Host: "h"}).Enter()
	if one.Group() != two.Group() || one.Group() == other.Group() || one.Group().Host != other.Group().Host ||
		one.Group().Members() != 2 || one.Group().Host.Members() != 3 {
		t.Errorf("groups %+v, %+v and %+v", one.Group(), two.Group(), other.Group())
	}
	rttest.Want(t, b.Place(wire.Origin{}).Enter().Group(), nil, "group of an unknown robot")
}

// The meter of a robot is kept after its session, as long as it still has an effect.
func TestMeters(t *testing.T) {
	b := NewCounter(Limits{Robot: RobotLimits{Rate: 2}})
	m := b.Meter("arm")
	now := rt.Instant(time.Minute)
	for range 3 { // the robot may use two inferences in advance, the quota of one second
		m.Used(now, time.Millisecond)
	}
	if k, until := m.Held(now); k != Rate || until != now.Add(500*time.Millisecond) {
		t.Errorf("held until %v for %v", until, k)
	}
	b.Release(m, now)
	if again := b.Meter("arm"); again != m {
		t.Error("a new session has new quotas")
	}
	b.Release(m, now.Add(time.Second))
	rttest.Want(t, len(b.meters), 0, "meters without an effect")
	for i := range metersMost + 9 {
		m := b.Meter(fmt.Sprint(i))
		m.Used(now, 0)
		m.Used(now, 0)
		m.Used(now, 0)
		b.Release(m, now)
	}
	if len(b.meters) > metersMost {
		t.Errorf("%d robots are remembered, want at most %d", len(b.meters), metersMost)
	}
	rttest.NoAllocs(t, "a measurement allocates %v times", 100, func() { m.Used(now, time.Millisecond); m.Held(now) })
	if NewCounter(Limits{}).Meter("arm") != nil {
		t.Error("without quotas robots are measured")
	}
}
