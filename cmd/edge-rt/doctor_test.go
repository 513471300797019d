package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bringup/doctor"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire"
)

// The program measures a bus, a camera and the connection to a server, and reports a port and a server that are absent.
func TestDoctor(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	status := rttest.Must(s.Net.Queryable(wire.StatusKey(s.Prefix), func(q wire.Query) {
		defer q.Finish()
		_ = q.Reply(q.Key(), wire.Append(nil, &wire.Status{
			Capabilities: wire.Capabilities{ChunkSize: stillHorizon, WarmedUp: true},
		}))
	}))(t)
	defer status.Undeclare()
	file := filepath.Join(t.TempDir(), "report.json")
	run := func(args ...string) (found map[string]doctor.Finding, report doctor.Report) {
		t.Helper()
		p := stagetest.Command(t, binary, append([]string{"doctor", "--for", "1s", "--json", file}, args...)...)
		p.Start()
		p.Wait()
		text := rttest.Must(os.ReadFile(file))(t)
		if err := json.Unmarshal(text, &report); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		found = map[string]doctor.Finding{}
		for _, f := range report.Findings {
			found[f.Check] = f
		}
		return found, report
	}
	config := rttest.WriteFile(t, t.TempDir(), "left.yaml", fmt.Appendf(nil, "bus: %s\ncalibration: %s\n"+
		"camera: [\"top=pattern:320x240@30\"]\nconnect: [%s]\n", b.Path(), demoCalibration, s.Endpoint))
	found, report := run("--config", config)
	if l := report.Link; l == nil || l.Queries < 5 || l.Lost > 0 || l.P99 <= 0 || l.ChunkSize != stillHorizon {
		t.Errorf("link: %+v", l)
	}
	if f := found["bus"]; !strings.Contains(f.Found, "for all joints (p99)") {
		t.Errorf("%+v", f)
	}
	if f := found["disk"]; !strings.Contains(f.Found, t.Name()) {
		t.Errorf("%+v, want the disk of the records", f)
	}
	if f := found["camera top"]; f.Level != doctor.OK || !strings.Contains(f.Found, "pictures per second") {
		t.Errorf("%+v", f)
	}
	if on := underTorque(b); on > 0 {
		t.Errorf("%d motors are under torque", on)
	}
	_, port := stagetest.FreeEndpoint(t)
	found, _ = run("--bus", "/dev/ttyNONE9", "--connect", "tcp/127.0.0.1:"+port)
	if found["port"].Level != doctor.Problem || found["server"].Level != doctor.Problem {
		t.Errorf("%+v", found)
	}
}
