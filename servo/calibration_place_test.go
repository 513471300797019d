package servo

import (
	"encoding/json"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

var placeVariables = []string{"HF_LEROBOT_CALIBRATION", "HF_LEROBOT_HOME", "HF_HOME", "XDG_CACHE_HOME"}

// daemonHome is the home directory of the user daemon, which exists on every Linux.
var daemonHome = func() string {
	u, err := user.Lookup("daemon")
	if err != nil {
		return "~daemon"
	}
	return u.HomeDir
}()

// places are values of placeVariables, each with the folder that LeRobot uses for these values.
// TestCalibrationPlaceIsLeRobots compares them with LeRobot itself.
var places = []struct {
	env  map[string]string
	want string
}{
	{map[string]string{}, "/u/.cache/huggingface/lerobot/calibration"},
	{map[string]string{"XDG_CACHE_HOME": "/x"}, "/x/huggingface/lerobot/calibration"},
	{map[string]string{"XDG_CACHE_HOME": "~/x/"}, "/u/x/huggingface/lerobot/calibration"},
	{map[string]string{"XDG_CACHE_HOME": "$HOME/x"}, "/u/x/huggingface/lerobot/calibration"},
	{map[string]string{"XDG_CACHE_HOME": "/x", "HF_HOME": "~/h"}, "/u/h/lerobot/calibration"},
	{map[string]string{"HF_HOME": "${HOME}/h/"}, "/u/h/lerobot/calibration"},
	{map[string]string{"HF_HOME": "$TILDE/h"}, "/u/h/lerobot/calibration"},
	{map[string]string{"HF_HOME": "/h/$NO_SUCH_NAME"}, "/h/$NO_SUCH_NAME/lerobot/calibration"},
	{map[string]string{"HF_HOME": "h"}, "h/lerobot/calibration"},
	{map[string]string{"HF_LEROBOT_HOME": "~/l", "HF_HOME": "/h"}, "/u/l/calibration"},
	{map[string]string{"HF_LEROBOT_HOME": "$HOME/l"}, "$HOME/l/calibration"},
	{map[string]string{"HF_LEROBOT_HOME": ".//~/l"}, "/u/l/calibration"},
	{map[string]string{"HF_LEROBOT_HOME": "/l/../m"}, "/l/../m/calibration"},
	{map[string]string{"HF_LEROBOT_CALIBRATION": "~/c", "HF_LEROBOT_HOME": "/l"}, "/u/c"},
	{map[string]string{"HF_LEROBOT_CALIBRATION": "~daemon/c"}, daemonHome + "/c"},
	{map[string]string{"HF_LEROBOT_CALIBRATION": "$HOME/c"}, "$HOME/c"},
	{map[string]string{"HF_LEROBOT_CALIBRATION": "./c"}, "c"},
}

func TestCalibrationPlace(t *testing.T) {
	t.Setenv("HOME", "/u")
	t.Setenv("TILDE", "~")
	for _, tt := range places {
		for _, key := range placeVariables {
			t.Setenv(key, tt.env[key])
		}
		want := tt.want + "/robots/so_follower/black.json"
		rttest.Want(t, CalibrationPath(so101(), "black"), want, "%v: CalibrationPath", tt.env)
	}
}

// LeRobot reads a variable that is set and empty as the working directory. CalibrationPath returns LeRobot's file there
// if it exists, and otherwise the path that applies when no variable is set.
func TestCalibrationPlaceOfAnEmptyVariable(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, key := range placeVariables {
		t.Setenv(key, "")
	}
	t.Setenv("HOME", "/u")
	want := "/u/.cache/huggingface/lerobot/calibration/robots/so_follower/black.json"
	if got := CalibrationPath(so101(), "black"); got != want {
		t.Errorf("CalibrationPath = %s, want %s as if nothing were set", got, want)
	}
	rttest.Do(t, demoCalibration().Save("robots/so_follower/black.json"))
	if _, err := LoadCalibration(CalibrationPath(so101(), "black")); err != nil {
		t.Errorf("LeRobot's file in the working directory is not found: %v", err)
	}
}

func TestCalibrationPlaceIsLeRobots(t *testing.T) {
	python := rttest.Must(filepath.Abs("../.venv-export/bin/python"))(t)
	// `make export-env` creates python at its beginning and the stamp at its end. Without the stamp, `make export-env`
	// may be installing LeRobot now.
	if _, err := os.Stat("../.venv-export/.edgert-export"); err != nil {
		t.Skip("LeRobot is not installed here: make export-env")
	}
	var envs []map[string]string
	for _, tt := range places {
		envs = append(envs, tt.env)
	}
	input := rttest.Must(json.Marshal(envs))(t)
	const script = `
import importlib, json, os, sys
import huggingface_hub.constants as hub
import lerobot.utils.constants as constants
for env in json.load(sys.stdin):
    for name in sys.argv[1:]:
        os.environ.pop(name, None)
    os.environ.update(env)
    importlib.reload(hub)
    importlib.reload(constants)
    print(constants.HF_LEROBOT_CALIBRATION)
`
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-c", script}, placeVariables...)...)
	cmd.Env = append(os.Environ(), "HOME=/u", "TILDE=~", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("LeRobot: %v", err)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(got) != len(places) {
		t.Fatalf("LeRobot answers %d times, want %d:\n%s", len(got), len(places), out)
	}
	for i, tt := range places {
		rttest.Want(t, got[i], tt.want, "%v: LeRobot's folder", tt.env)
	}
}

func TestNoFolderNamedTilde(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const path = "~no-such-user/c.json"
	rttest.Fails(t, demoCalibration().Save(path), "~no-such-user")
	rttest.Fails(t, rttest.Err(LoadCalibration(path)), "no user for ~no-such-user")
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%s was made", left[0].Name())
	}
}
