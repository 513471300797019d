package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire"
)

// A run publishes its metrics, and fleet top shows them; foreign bytes at the key of a robot change nothing.
func TestFleetTop(t *testing.T) {
	t.Parallel()
	s := newHoldServer(t)
	r := edgeCommand(t, []string{"--fps", "10", "--bus", "sim", "--id", "arm", "--connect", s.Endpoint,
		"--telemetry", "200ms"}, "--quiet")
	r.Start()
	foreign := rttest.Must(s.Net.Publisher(rttest.Must(wire.TelemetryKey(s.Prefix, "other"))(t), wire.TelemetryQoS))(t)
	for _, text := range []string{"", "{", `{"edge_rt_state":7}`, `{}`} {
		_ = foreign.Put([]byte(text), nil)
	}
	file := filepath.Join(t.TempDir(), "fleet.json")
	var robots bringup.FleetReport
	var output string
	rttest.Eventually(t, "the robot streams", func() bool {
		_, output, _ = stagetest.Command(t, binary, "fleet", "top", "--connect", s.Endpoint, "--every", "1s", "--json",
			file).Run()
		robots = bringup.FleetReport{}
		text, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(text, &robots) == nil && len(robots.Robots) == 1 &&
			robots.Robots[0].State == "STREAMING"
	})
	if a := robots.Robots[0]; a.ID != "arm" || a.Robot != "so101" || a.Service != s.Prefix || a.RTT <= 0 || a.Age > 5 ||
		!strings.Contains(output, "arm ") {
		t.Errorf("%+v in\n%s", robots, output)
	}
	r.End(os.Interrupt)
}

// If a router does not answer, fleet top ends within a few seconds with an error that names the
// router.
func TestFleetTopAtADeadAddress(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	silent := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // the kernel takes the connection, but no one answers
	defer silent.Close()
	at := "tcp/" + silent.Addr().String()
	began := time.Now()
	refuses(t, "=> 4 "+at+"|--connect|within 3s", "fleet", "top", "--once", "--connect", at)
	if _, help, _ := edgeRT(t, "fleet", "--help"); strings.Contains(help, "--bus") {
		t.Errorf("fleet --help has the flags of a run:\n%s", help)
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("it took %v, want about 3s", took)
	}
}
