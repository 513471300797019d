package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// written writes a manifest with a bundle, followed by more lines, and returns its path.
func written(t *testing.T, more string) string {
	t.Helper()
	return write(t, "model: {repo_or_path: old}\n"+more)
}

func TestRolloutBlock(t *testing.T) {
	for _, tt := range []struct{ name, block, says string }{
		{"a text", "rollout: {model: new, share: 0.1}", ""},
		{"a mapping", "rollout:\n  model: {repo_or_path: new, sha256: 0123abcd}\n  robots: [a]\n  keep: [b]", ""},
		{"too large", "rollout: {model: new, share: 30}", ":2: rollout.share must be 0..1 of the robots, got 30"},
		{"not a number", "rollout: {model: new, share: .nan}", "rollout.share must be a number"},
		{"no model", "rollout: {share: 0.1}", "rollout names no model"},
		{"no digest", "rollout: {model: {repo_or_path: new, sha256: latest}}", "8 to 64 digits of a digest"},
		{"no robot", "rollout: {model: new, robots: [a/b]}", "rollout.robots names no robot"},
		{"both", "rollout: {model: new, robots: [a], keep: [a]}", "both name 'a'"},
		{"another key", "rollout: {model: new, percent: 10}",
			`unknown key "rollout.percent", known to this version: model, share`},
		{"a list", "rollout: {model: [new]}", "rollout.model must be a mapping"},
	} {
		folder, file := filepath.Split(written(t, tt.block+"\n"))
		t.Chdir(folder)
		cfg, err := Load(file)
		switch {
		case tt.says == "" && (err != nil || !cfg.Rollout.Active() || cfg.Rollout.Model.RepoOrPath != folder+"new"):
			t.Errorf("%s: %+v, %v", tt.name, cfg.Rollout, err)
		case tt.says != "" && !rttest.Says(err, tt.says):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
}

// The part of the robots that gets the new model is about the manifest's share. A larger share includes every robot of
// a smaller one.
func TestShares(t *testing.T) {
	const robots = 10_000
	var before []string
	for _, share := range []float64{0, 0.1, 0.5, 1} {
		r := Rollout{Share: share, Robots: []string{"always"}, Keep: []string{"never"}}
		var taken []string
		for i := range robots {
			if id := fmt.Sprintf("arm-%d", i); r.Takes(id) {
				taken = append(taken, id)
			}
		}
		if n := float64(len(taken)) / robots; n < share-0.02 || n > share+0.02 {
			t.Errorf("share %g takes %g", share, n)
		}
		if slices.ContainsFunc(before, func(id string) bool { return !r.Takes(id) }) {
			t.Errorf("a robot leaves with the larger share %g", share)
		}
		if before = taken; !r.Takes("always") || r.Takes("never") {
			t.Errorf("share %g: the lists do not win", share)
		}
	}
}

// An edit leaves the other lines as they are, with their comments, and the file's permissions.
func TestEditRollout(t *testing.T) {
	const before, after = "# mine\nmodel: {repo_or_path: old} # old\n", "\n# the port\nhealth_port: 0 # off\n"
	set := func(r *Rollout) { r.Model.RepoOrPath, r.Share = "/new", 0.25 }
	const several, byHand = "rollout: {\n  model: new,\n  share: 0.5\n}\n", "in a file of this form: write it by hand"
	const beside = "{model: {repo_or_path: old}, threads: 2,\nrollout: {model: new}}\n"
	const block = "rollout:\n  model: {\"repo_or_path\":\"/new\"}\n  share: 0.25\n"
	for _, tt := range []struct {
		name, text string
		change     func(*Rollout)
		want, says string
	}{
		{"added", before + after, set, before + after + block, ""},
		{"without an end", before + "health_port: 0", set, before + "health_port: 0\n" + block, ""},
		{"replaced", before + "rollout: # a canary\n  model: new\n\n  robots:\n    - a\n" + after, set,
			before + block + "  robots: [\"a\"]\n" + after, ""},
		{"a relative path", before + "rollout: {model: new}\n" + after, func(r *Rollout) { r.Keep = []string{"a"} },
			before + "rollout:\n  model: {\"repo_or_path\":\"new\"}\n  share: 0\n  keep: [\"a\"]\n" + after, ""},
		{"removed", before + "rollout: {model: /new}\n" + after, func(r *Rollout) {
			*r = Rollout{}
		}, before + after, ""},
		{"impossible", before, func(r *Rollout) { set(r); r.Share = 2 }, before, "rollout.share must be 0..1"},
		{"in one line", "{model: {repo_or_path: old}}\n", set, "{model: {repo_or_path: old}}\n", byHand},
		{"over several lines", before + several, set, before + several, byHand},
		{"beside another key", beside, set, beside, byHand},
	} {
		file := filepath.Join(t.TempDir(), "server.yaml")
		rttest.Do(t, os.WriteFile(file, []byte(tt.text), 0o640))
		_, err := EditRollout(file, tt.change)
		got := rttest.ReadFile(t, file)
		if got != tt.want || (err == nil) != (tt.says == "") || err != nil && !rttest.Says(err, tt.says) {
			t.Errorf("%s: %v,\n%s\nwant\n%s", tt.name, err, got, tt.want)
		}
		rttest.Want(t, rttest.Must(os.Stat(file))(t).Mode().Perm(), 0o640, "%s: mode", tt.name)
	}
}

// Changed compares readings of the file, not the settings that the server changed later. It also detects a changed
// secret, which no report shows.
func TestChanged(t *testing.T) {
	const text = "model: {runtime: openpi, url: \"ws://me:first@a\", api_key: first}\n"
	cfg := rttest.Must(load(t, text))(t)
	rttest.Do(t, cfg.Exclude(true))
	cfg.HealthPort = 1
	to := rttest.Must(load(t, strings.ReplaceAll(text, "first", "second")+"threads: 2\n"))(t)
	rttest.Equal(t, cfg.Changed(&to), []string{"model.url", "model.api_key", "threads"}, "Changed")
	shown := rttest.Must(json.Marshal(cfg.Settings()))(t)
	if !bytes.Contains(shown, []byte(`"(hidden)"`)) || bytes.Contains(shown, []byte("first")) {
		t.Errorf("the settings are %s, want no secret", shown)
	}
}

func TestEditsAtOnceAllCount(t *testing.T) {
	file := written(t, "rollout: {model: new}\n")
	var edits sync.WaitGroup
	for i := range 3 {
		edits.Go(func() {
			_, err := EditRollout(file, func(r *Rollout) { r.Robots = append(r.Robots, fmt.Sprint(i)) })
			rttest.Want(t, err, nil, "an edit")
		})
	}
	edits.Wait()
	rttest.Want(t, len(rttest.Must(Load(file))(t).Rollout.Robots), 3, "robots")
}

// EditRollout treats a pipe without a writer as an empty file.
func TestEditOfAPipe(t *testing.T) {
	file := t.TempDir() + "/pipe"
	rttest.Do(t, syscall.Mkfifo(file, 0o600))
	rttest.FailsAs(t, rttest.Err(EditRollout(file, nil)), ErrInvalid)
}
