package server

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

// happy returns an admission that is accepted; each test vector of LeRobot's draft changes a part of it.
func happy() *admission {
	cfg := &manifest.Config{DefaultTask: "t", MaxSessions: 4}
	return &admission{
		cfg:   cfg,
		tasks: newTaskReader(cfg, nil, false),
		limit: 4,
		open: &wire.SessionOpen{
			ClientUUID:    "robot-07",
			RobotType:     "so100",
			PolicyType:    "pi0",
			FPS:           30,
			ActionNames:   []string{"a.pos", "b.pos"},
			CameraNames:   []string{frontCamera},
			StateDim:      6,
			SchemaVersion: 1,
			Task:          "t",
		},
		caps: wire.Capabilities{
			PolicyType:      "pi0",
			ActionNames:     []string{"a.pos", "b.pos"},
			ExpectedCameras: []string{frontCamera},
			StateDim:        6,
			ChunkSize:       50,
			TrainedFPS:      30,
			SupportsRTC:     true,
		},
	}
}

const frontCamera = front.ImagePrefix + "front"

func TestAdmissionGolden(t *testing.T) {
	for _, row := range golden[struct {
		Name string
		Open struct {
			SchemaVersion *int      `json:"schema_version"`
			ActionNames   *[]string `json:"action_names"`
			CameraNames   *[]string `json:"camera_names"`
			StateDim      *int      `json:"state_dim"`
			Task          *string
			FPS           *float64
			PolicyType    *string `json:"policy_type"`
			RTC           *bool   `json:"rtc_enabled"`
		} `json:"open_overrides"`
		Caps struct {
			ActionNames *[]string `json:"action_names"`
			Cameras     *[]string `json:"expected_cameras"`
			StateDim    *int      `json:"state_dim"`
			RTC         *bool     `json:"supports_rtc"`
		} `json:"caps_overrides"`
		Manifest struct {
			PinTask   *bool `json:"pin_task"`
			StrictFPS *bool `json:"strict_fps"`
		} `json:"manifest_overrides"`
		Active     int
		OK         bool
		Error      string
		Warnings   []string
		Downgraded bool `json:"rtc_downgraded"`
	}](t, "validate_session_open") {
		a := happy()
		open, caps := a.open, &a.caps
		a.active = row.Active
		override(&open.SchemaVersion, row.Open.SchemaVersion)
		override(&open.ActionNames, row.Open.ActionNames)
		override(&open.CameraNames, row.Open.CameraNames)
		override(&open.StateDim, row.Open.StateDim)
		override(&open.Task, row.Open.Task)
		override(&open.FPS, row.Open.FPS)
		override(&open.PolicyType, row.Open.PolicyType)
		override(&open.RTCEnabled, row.Open.RTC)
		override(&caps.ActionNames, row.Caps.ActionNames)
		override(&caps.ExpectedCameras, row.Caps.Cameras)
		override(&caps.StateDim, row.Caps.StateDim)
		override(&caps.SupportsRTC, row.Caps.RTC)
		override(&a.cfg.PinTask, row.Manifest.PinTask)
		override(&a.cfg.StrictFPS, row.Manifest.StrictFPS)
		a.tasks = newTaskReader(a.cfg, nil, false)
		text := ""
		if r := a.check(); r != nil {
			text = r.text
		}
		if text != row.Error || (text == "") != row.OK || len(a.warnings) != len(row.Warnings) ||
			len(a.warnings) > 0 && !reflect.DeepEqual(a.warnings, row.Warnings) || a.downgraded != row.Downgraded {
			t.Errorf("%s: check() = %q, warnings %q, downgraded %v\nwant %q, %q, %v",
				row.Name, text, a.warnings, a.downgraded, row.Error, row.Warnings, row.Downgraded)
		}
	}
}

func override[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

// Cases that LeRobot's server accepts and this server refuses.
func TestAdmissionRefusesWhatTheDraftTolerates(t *testing.T) {
	for _, tt := range []struct {
		name      string
		change    func(a *admission)
		want      string
		temporary bool
	}{
		{"no id", func(a *admission) { a.open.ClientUUID = "" }, "client_uuid", false},
		{"reserved id", func(a *admission) { a.open.ClientUUID = "server" }, "client_uuid", false},
		{"id that is no key segment", func(a *admission) { a.open.ClientUUID = "a b" }, `"a-b"`, false},
		{"id with a wildcard", func(a *admission) { a.open.ClientUUID = "*" }, "client_uuid", false},
		{"id not on the list", func(a *admission) {
			a.cfg.Clients = []string{"robot-08"}
		}, "client 'robot-07' is not on this server's list: add it to clients in the manifest", false},
		{"radians for degrees", func(a *admission) {
			a.open.ActionUnits, a.caps.ActionUnits = []string{"radians", "radians"}, []string{"degrees", "degrees"}
		}, "action_units", false},
		{"state in other units", func(a *admission) {
			a.open.StateUnits, a.caps.StateUnits = []string{"radians"}, []string{"degrees"}
		}, "state_units", false},
		{"picture of another size", func(a *admission) {
			a.open.CameraShapes = []wire.CameraShape{{Name: frontCamera, H: 480, W: 640, C: 3}}
			a.caps.CameraShapes = []wire.CameraShape{{Name: frontCamera, H: 120, W: 160, C: 3}}
		}, "480x640", false},
		{"full is for now only", func(a *admission) { a.limit = 0 }, "server full: 0/0", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := happy()
			tt.change(a)
			r := a.check()
			if r == nil || !strings.Contains(r.text, tt.want) || (refusals[r.reason].retryAfter > 0) != tt.temporary {
				t.Errorf("check() = %+v, want a refusal with %q, temporary %v", r, tt.want, tt.temporary)
			}
		})
	}
}

// An open is accepted even if only one side names units and sizes.
func TestAdmissionAcceptsWhatOneSideLeavesOut(t *testing.T) {
	a := happy()
	a.caps.ActionUnits = []string{"degrees", "degrees"}
	a.caps.CameraShapes = []wire.CameraShape{{Name: frontCamera, H: 120, W: 160, C: 3}}
	a.cfg.Clients = []string{"robot-07"}
	if r := a.check(); r != nil || a.warnings != nil {
		t.Errorf("check() = %+v, warnings %q, want neither", r, a.warnings)
	}
}

func TestPyString(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a", `'a'`}, {"don't", `"don't"`}, {`say "don't"`, `'say "don\'t"'`}, {"a\nb\\", `'a\nb\\'`}, {"", `''`},
	} {
		rttest.Want(t, pyString(tt.in), tt.want, "pyString(%q)", tt.in)
	}
}

// serving_mode and max_sessions resolve as in the draft. Unlike in the draft, robots may share any policy of a bundle,
// because the graph of a bundle keeps no state.
func TestServingModeGolden(t *testing.T) {
	for _, row := range golden[struct {
		Name    string
		NObs    *int `json:"n_obs_steps"`
		API     bool `json:"chunk_api"`
		Resolve map[string]any
	}](t, "classify") {
		for mode, want := range row.Resolve {
			cfg := manifest.Config{ServingMode: mode, MaxSessions: 4}
			limit, got := cfg.Sessions()
			if reflect.DeepEqual(want, []any{got, float64(limit)}) {
				continue
			}
			if !deviates(t, "classify", row.Name) {
				t.Errorf("%s, n_obs_steps %v, chunk api %v: Sessions() with serving_mode %s = %s, %d, want %v or a "+
					"named deviation", row.Name, row.NObs, row.API, mode, got, limit, want)
			}
		}
	}
}

func TestManifestGolden(t *testing.T) {
	change := map[string]func(*manifest.Config){
		"no_repo":          func(c *manifest.Config) { c.Model.RepoOrPath = "" },
		"bad_mode":         func(c *manifest.Config) { c.ServingMode = "multiplexed" },
		"max0":             func(c *manifest.Config) { c.MaxSessions = 0 },
		"neg":              func(c *manifest.Config) { c.MaxSessions = -3 },
		"repo_error_first": func(c *manifest.Config) { *c = manifest.Config{ServingMode: "x"} },
	}
	for _, row := range golden[struct {
		Name  string
		Error *string
	}](t, "manifest_validation") {
		f, ok := change[row.Name]
		if !ok {
			if !deviates(t, "manifest_validation", row.Name) {
				t.Errorf("vector manifest_validation/%s is neither tested nor a named deviation", row.Name)
			}
			continue
		}
		cfg := manifest.Default()
		cfg.Model.RepoOrPath = "bundle"
		f(&cfg)
		err := cfg.Check()
		want := strings.TrimPrefix(*row.Error, "ValueError: ")
		if deviates(t, "manifest_validation", row.Name) {
			want = "model.repo_or_path is required" // this server has no flag --model.repo_or_path
		}
		if err == nil || !strings.HasPrefix(err.Error(), "manifest: "+want) {
			t.Errorf("%s: Check() = %v, want %q", row.Name, err, want)
		}
	}
}

// Goal: if a robot requests RTC and the manifest switches conditioning off, the ack has a warning. The log has the same
// warning, with the robot's tags.
func TestAWarningAndTagsAreLogged(t *testing.T) {
	cfg := config()
	cfg.Conditioning.Mode = "off"
	var log strings.Builder
	b := newBench(t, cfg, logTo(&log))
	o := fakeOpen("arm")
	o.Tags = []wire.Tag{{Key: "site", Value: "lab"}, {Key: "shift", Value: "b"}}
	ack := b.openFrom(wire.Origin{}, o)
	if !ack.Accepted || !strings.Contains(strings.Join(ack.Warnings, " "), "conditioning.mode off") {
		t.Errorf("ack = %+v, want a warning about conditioning.mode", ack)
	}
	rttest.Contains(t, log.String(), "site=lab,shift=b", "conditioning.mode off")
}

// Goal: a megabyte of tags fills neither the audit's disk nor the log, and the ack reports how many
// tags were left out.
func TestTooManyTagsAreCutWithAWarning(t *testing.T) {
	var log strings.Builder
	b := newBench(t, config(), logTo(&log))
	o := fakeOpen("arm")
	o.Tags = []wire.Tag{{Key: "site", Value: "lab"}, {Key: "x", Value: strings.Repeat("long", 1000)},
		{Key: "y", Value: "z"}}
	ack := b.openFrom(wire.Origin{}, o)
	if want := "3 tags are too long together: the log and the audit have only the first 1"; !ack.Accepted ||
		!slices.Contains(ack.Warnings, want) {
		t.Errorf("ack = %+v, want the warning %q", ack, want)
	}
	if s := b.server.sessions.find("arm"); s.tags != `{"site":"lab"}` || strings.Contains(log.String(), "long"+"long") {
		t.Errorf("tags = %s, log = %s, want the first alone", s.tags, log.String())
	}
}

// An open whose raw pictures fit into no message is refused with their total size. The total includes the policy's
// cameras for all steps that the robot sends, and other cameras whose size is in the open.
func TestRawPicturesThatNoMessageHolds(t *testing.T) {
	wide := wire.CameraShape{Name: frontCamera, H: 1080, W: 1920, C: 3}
	side := wire.CameraShape{Name: "side", H: 2160, W: 3840, C: 3}
	for _, tt := range []struct {
		name           string
		raw            []string
		others         []wire.CameraShape
		observed, sent int
		says           string
	}{
		{"one step", []string{frontCamera}, nil, 1, 16, ""},
		{"a robot that sends one", []string{frontCamera}, nil, 3, 0, ""},
		{"two steps of two", []string{frontCamera}, nil, 3, 2, ""},
		{"three steps", []string{frontCamera}, nil, 3, 16, "18662400 bytes, want at most 16711680"},
		{"JPEG", nil, []wire.CameraShape{side}, 3, 16, ""},
		{"another camera", []string{"side"}, []wire.CameraShape{side}, 1, 1, "24883200 bytes"},
		{"another camera, of which nothing is known", []string{"side"}, nil, 1, 1, ""},
		{"both sides know the size", []string{frontCamera}, []wire.CameraShape{wide}, 2, 16, ""},
	} {
		a := happy()
		a.open.RawImages = tt.raw
		a.open.CameraShapes = tt.others
		a.open.Steps = tt.sent
		a.observed = tt.observed
		a.caps.CameraShapes = []wire.CameraShape{wide}
		a.cameras = []policy.Camera{{Name: "front", H: 1080, W: 1920}}
		switch r := a.check(); {
		case tt.says == "" && r != nil:
			t.Errorf("%s: refused: %v", tt.name, r)
		case tt.says != "" && (r == nil || r.reason != refusedCameras || !strings.Contains(r.text, tt.says)):
			t.Errorf("%s: %v, want %q", tt.name, r, tt.says)
		}
	}
}
