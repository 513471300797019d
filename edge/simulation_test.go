package edge

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// Goal: the arm of --bus sim counts as simulated, and so does an arm at a pseudo-terminal if all
// cameras are simulated.
func TestWhichArmIsReal(t *testing.T) {
	link := filepath.Join(t.TempDir(), "arm")
	bus := servosimtest.Open(t, servosim.Config{Link: link})
	regular := rttest.WriteFile(t, t.TempDir(), "file", "")
	for _, tt := range []struct {
		bus     string
		cameras []string
		says    string // empty: simulated
	}{
		{device.Sim, nil, ""},
		{device.Sim, []string{"top=pattern"}, ""},
		{bus.Path(), nil, ""},
		{link, nil, ""},
		{link, []string{"top=sim", "side=sim:/tmp/scene"}, ""},
		{link, []string{"top=sim", "side=pattern"},
			"--camera side=pattern is not; give --camera side=sim, or side=sim:SOCKET of an " +
				"edge-rt sim-bus --scene SOCKET; else run it"},
		{link, []string{"top=/dev/video0"}, "--camera top=/dev/video0"},
		{link, []string{"top=./pictures"}, "--camera top=./pictures"},
		{"left=" + link + ",right=" + bus.Path(), []string{"left_top=sim"}, ""},
		{"left=" + link + ",right=sim", []string{"left_top=sim"}, ""},
		{"left=" + link + ",right=/dev/null", []string{"left_top=sim"}, "right=/dev/null is a serial port"},
		{"/dev/null", []string{"top=sim"}, "--bus /dev/null is a serial port"},
		{"/dev/ptmx", []string{"top=sim"}, "serial port"},
		{"/dev/ttyACM0", nil, "is a serial port, and on a real arm its actions mean nothing; run it with --bus sim, " +
			"or serve a policy that was trained on this arm"},
		{regular, nil, "serial port"},
		{"", nil, "serial port"},
	} {
		c := Config{Bus: tt.bus}
		for _, text := range tt.cameras {
			cam := rttest.Must(capture.Parse(text))(t)
			c.Cameras = append(c.Cameras, cam)
		}
		if why := c.realArm(); !strings.Contains(why, tt.says) || (why == "") != (tt.says == "") {
			t.Errorf("--bus %s with %v: %q, want %q", tt.bus, tt.cameras, why, tt.says)
		}
	}
}

// Goal: a bundle that has run for firstRun is noted as known, by a separate thread. A folder that
// cannot be written to only causes a log line.
func TestAFirstRunIsRemembered(t *testing.T) {
	rttest.RealTime(t) // simulated motors answer within real time-outs
	port := filepath.Join(t.TempDir(), "arm")
	servosimtest.Open(t, servosim.Config{Link: port})
	so101 := rttest.Must(device.Robot("so101"))(t)
	cfg := servo.ArmConfig{Path: port, Robot: so101, Calibration: device.SimCalibration(so101), Clock: rt.KernelClock()}
	arm := rttest.Must(device.OpenArm(cfg))(t)
	var log bytes.Buffer
	e := &Edge{
		cfg:      Config{Bus: port},
		devices:  devices{arms: hotplug.Parts{hotplug.New(arm, cfg, cfg.Clock)}},
		log:      slog.New(slog.NewTextHandler(&log, nil)),
		identity: &operator.Identity{ID: "black", Dir: t.TempDir()},
		contract: uplink.Contract{SHA256: "aa"},
		drive:    new(drive.Run),
	}
	e.reporter.Log = e.log
	e.model.Store(&e.contract)
	t.Cleanup(func() { e.arms.Close() })
	if got := e.easeIn(&e.contract); got != firstRun || !e.firstRun.Load() {
		t.Errorf("an unknown bundle is driven slowly for %v, want %v", got, firstRun)
	}
	e.report(event.Event{Code: event.FirstRun, A: firstRun.Milliseconds(), B: 30})
	rttest.Contains(t, log.String(), `bundle=aa speed="30 %" for=10s`)
	e.report(event.Event{Code: event.FirstRunOver})
	e.drive.Close()
	if got := e.easeIn(&e.contract); got != 0 {
		t.Errorf("a known bundle is driven slowly for %v, want not at all: %s", got, &log)
	}
	for _, change := range []func(){
		func() { e.cfg.Bus = device.Sim }, func() { e.cfg.Bus, e.contract.Simulation = port, true },
		func() { e.contract.Simulation, e.contract.SHA256 = false, "" },
	} {
		e.identity.ID = "white"
		if change(); e.easeIn(&e.contract) != 0 {
			t.Errorf("%s with %+v is driven slowly", e.cfg.Bus, e.contract)
		}
	}
	e.identity.Dir, e.contract.SHA256 = "/nowhere", "aa"
	if e.easeIn(&e.contract) != firstRun {
		t.Error("without a folder every bundle is unknown")
	}
	e.report(event.Event{Code: event.FirstRunOver})
	if e.drive.Close(); !strings.Contains(log.String(), "this bundle will start slowly again") {
		t.Errorf("it says %s", &log)
	}
}
