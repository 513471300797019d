package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// version is one official wheel.
type version struct {
	name   string
	newest bool // this is the newest installed version
	zenohtest.Python
}

// later is the value of EDGERT_INTEROP with which these tests are skipped, because a later make interop runs them.
const later = "later"

// required are the versions in EDGERT_INTEROP, such as EDGERT_INTEROP=1.9.0,1.10.2. make interop sets it. If a version
// is missing, the tests then fail instead of being skipped.
var required = strings.FieldsFunc(os.Getenv("EDGERT_INTEROP"), func(r rune) bool { return r == ',' })

// versions finds the official wheels: the one of the test's Python interpreter, and those in the folders that
// tools/setup.sh makes beside it.
var versions = sync.OnceValues(func() (all []version, missing string) {
	python := os.Getenv("EDGERT_PYTHON")
	if python == "" {
		python, _ = filepath.Abs("../../../.venv/bin/python")
	}
	folders, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(python)), "zenoh-*"))
	for _, folder := range append([]string{""}, folders...) {
		p := zenohtest.Python{Path: python, Packages: folder}
		name, err := p.Check()
		if err != nil {
			missing = err.Error() + "; run make interop, or name an interpreter in EDGERT_PYTHON"
			continue
		}
		all = append(all, version{name: name, Python: p})
	}
	if len(all) > 0 {
		all[len(all)-1].newest = true
	}
	return all, missing
})

// over runs a test over every version.
func over(t *testing.T, test func(t *testing.T, v version)) {
	if slices.Equal(required, []string{later}) {
		t.Skip("EDGERT_INTEROP=later: make interop runs this and more")
	}
	all, missing := versions()
	for _, name := range required {
		if !slices.ContainsFunc(all, func(v version) bool { return v.name == name }) {
			t.Fatalf("eclipse-zenoh %s is required and absent: %s", name, missing)
		}
	}
	if len(all) == 0 {
		t.Skip(missing)
	}
	if len(required) == 0 {
		all = all[:1]
	}
	for _, v := range all {
		t.Run(v.name, func(t *testing.T) { test(t, v) })
	}
}

// start starts an official node.
func (v version) start(t *testing.T) *zenohtest.Node {
	t.Helper()
	n := rttest.Must(zenohtest.Start(v.Python))(t)
	t.Cleanup(func() {
		n.Stop()
		if text := n.Output(); text != "" && t.Failed() {
			t.Logf("official node %d printed: %s", n.PID(), text)
		}
	})
	return n
}

// open opens a node's session.
func open(t *testing.T, n *zenohtest.Node, cfg zenohtest.Config) *zenohtest.Session {
	t.Helper()
	s := rttest.Must(n.Open(cfg))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// router starts an official router and returns its endpoint.
func (v version) router(t *testing.T, connect ...string) (n *zenohtest.Node, at string) {
	t.Helper()
	n, at = v.start(t), sessiontest.FreeEndpoint(t)
	open(t, n, zenohtest.Config{Mode: "router", Listen: []string{at}, Connect: connect})
	return n, at
}

// proxy forwards to an endpoint.
func proxy(t *testing.T, at string) *netfault.Proxy {
	t.Helper()
	p := rttest.Must(netfault.NewProxy(at))(t)
	t.Cleanup(p.Close)
	return p
}

// quick changes the configuration of a session so that it reconnects soon, and lengthens its lease. The official side
// ends a link when its reading task does not run within the lease, and on a busy machine our default of 2 s is too
// short for that.
func quick(cfg zenoh.Config) zenoh.Config {
	cfg.BackoffMin, cfg.BackoffMax = 20*time.Millisecond, 200*time.Millisecond
	if cfg.Lease == 0 {
		cfg.Lease = 20 * time.Second
	}
	return cfg
}

// ours opens a session of ours.
func ours(t *testing.T, cfg zenoh.Config) *zenoh.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var over atomic.Bool
	if cfg.Log == nil {
		cfg.Log = func(line string) {
			if !over.Load() {
				t.Log(line)
			}
		}
	}
	s := rttest.Must(zenoh.Open(ctx, quick(cfg)))(t)
	t.Cleanup(func() { over.Store(true); s.Close() })
	return s.(*zenoh.Session)
}

const patience = 20 * time.Second

// diary notes the arriving samples and tokens.
type diary struct{ sessiontest.Diary }

func (d *diary) sample(s wire.Sample) { d.Note(string(s.Payload)) }

// reads waits until the diary contains exactly these entries.
func (d *diary) reads(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("the diary has %v", got)
		}
	}()
	rttest.Eventually(t, fmt.Sprint("the entries ", want), func() bool {
		got = d.Entries()
		return slices.Equal(got, want)
	})
}
