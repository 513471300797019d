package dataset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

func TestRepositoryNames(t *testing.T) {
	for name, ok := range map[string]bool{"ada/pick-cubes": true, "a/b.c_d": true, "": false, "ada": false,
		"ada/": false,
		"/x":   false, "a/b/c": false, "a/../b": false, "a b/c": false, "-r/x": false} {
		if err := CheckRepo(name); (err == nil) != ok {
			t.Errorf("%q: %v, want accepted %v", name, err, ok)
		}
	}
}

// Without huggingface_hub, or without an interpreter, the error has the commands for a shell.
func TestPushWithoutThePackage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's")
	bare := rttest.WriteFile(t, t.TempDir(), "python", "#!/bin/sh\nexec python3 -I -S \"$@\"\n")
	for _, python := range []string{bare, filepath.Join(t.TempDir(), "none")} {
		_, err := Push(t.Context(), python, dir, "ada/x")
		if !errors.Is(err, errNoHub) || !rttest.Says(err, `it'\''s' . --repo-type dataset`,
			"the same export with --append", "{ hf repos tag delete ada/x v3.0 --yes --repo-type dataset; "+
				"hf repos tag create ada/x v3.0 --repo-type dataset; }") ||
			rttest.Says(err, "is not there") != (python != bare) {
			t.Errorf("%s: %v, want the commands", python, err)
		}
	}
}

// If the interpreter fails or prints no address, Push returns an error with the commands.
func TestPushByASilentProgram(t *testing.T) {
	for script, want := range map[string]string{"exit 3": "exit status 3", "exit 0": "printed no address",
		"echo Traceback >&2; echo it broke >&2; exit 1": "ada/x: it broke;"} {
		python := rttest.WriteFile(t, t.TempDir(), "python", "#!/bin/sh\n"+script+"\n")
		_, err := Push(t.Context(), python, t.TempDir(), "ada/x")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "hf upload ada/x") {
			t.Errorf("%s: %v, want %q and the commands", script, err, want)
		}
	}
}

// An interrupted push ends, even if a process that the interpreter has started does not.
func TestPushThatIsInterrupted(t *testing.T) {
	python := rttest.WriteFile(t, t.TempDir(), "python", "#!/bin/sh\nsleep 20 & echo $! > $0.pid\nwait\n")
	ctx, cancel := context.WithCancel(t.Context())
	pushed := make(chan error)
	go func() { pushed <- rttest.Err(Push(ctx, python, t.TempDir(), "ada/x")) }()
	kill := started(t, python)
	cancel()
	rttest.FailsAs(t, <-pushed, context.Canceled)
	kill()
}

// started waits for the process whose number a script has written. The function kill ends the process, which must still
// run.
func started(t *testing.T, script string) (kill func()) {
	var pid int
	rttest.Eventually(t, "the process", func() bool {
		text, _ := os.ReadFile(script + ".pid")
		_, err := fmt.Sscan(string(text), &pid)
		return err == nil
	})
	return func() { rttest.Do(t, unix.Kill(pid, unix.SIGKILL)) }
}

// A push is complete when the interpreter ends well, even if a process that it has started keeps the output open.
func TestPushBesideAProcessThatStays(t *testing.T) {
	python := rttest.WriteFile(t, t.TempDir(), "python",
		"#!/bin/sh\nsleep 20 & echo $! > $0.pid\necho https://hub/ada/x\n")
	url, err := Push(t.Context(), python, t.TempDir(), "ada/x")
	if err != nil || url != "https://hub/ada/x" {
		t.Errorf("%q, %v; want the address", url, err)
	}
	started(t, python)()
}

// A repository without a README.md gets a card with LeRobot's fields; an existing README.md stays. Without the card
// nothing is pushed.
func TestPushWritesACard(t *testing.T) {
	dir := t.TempDir()
	rttest.Do(t, os.WriteFile(filepath.Join(dir, "huggingface_hub.py"), []byte(`
import os
class HfApi:
    def create_repo(self, repo, **_): return "https://hub/" + repo
    def upload_folder(self, repo_id, **_): open(os.path.join(os.path.dirname(__file__), "files"), "w").write(repo_id)
    def file_exists(self, repo, name, **_): return repo == "ada/written" and name == "README.md"
    def upload_file(self, path_or_fileobj, path_in_repo, repo_id, **_):
        if repo_id == "ada/cut": raise OSError("the line is cut")
        open(os.path.join(os.path.dirname(__file__), "card"), "wb").write(path_or_fileobj)
    def delete_tag(self, *_, **__): pass
    def create_tag(self, *_, **__): pass
`), 0o600))
	rttest.WriteFile(t, dir, infoPath, `{"robot_type": "größer"}`)
	t.Setenv("PYTHONPATH", dir)
	rttest.Must(Push(t.Context(), "python3", dir, "ada/written"))(t)
	if _, err := os.Stat(filepath.Join(dir, "card")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a README.md of the repository was overwritten: %v", err)
	}
	rttest.Must(Push(t.Context(), "python3", dir, "ada/new"))(t)
	card := rttest.ReadFile(t, filepath.Join(dir, "card"))
	if !strings.HasPrefix(card, "---\ntask_categories:\n- robotics\ntags:\n- LeRobot\nconfigs:\n"+
		"- config_name: default\n  data_files: data/*/*.parquet\n---\n") {
		t.Errorf("the card has no head of LeRobot's fields:\n%s", card)
	}
	rttest.Contains(t, card, "?path=ada/new)", `{"robot_type": "größer"}`)
	rttest.Fails(t, rttest.Err(Push(t.Context(), "python3", dir, "ada/cut")), "the line is cut")
	holds(t, filepath.Join(dir, "files"), "ada/new")
}

// hub is a server with the part of the Hugging Face Hub that a push of small files needs.
type hub struct {
	*httptest.Server
	asked   []string
	files   []string
	deleted []string
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.asked = append(h.asked, r.Method+" "+r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/tree/main") { // an earlier push had an episode and a table more
		fmt.Fprintf(w, `[{"type": "file", "path": %q, "size": 1, "oid": "1"}, {"type": "file", "path": %q, "size": 1, `+
			`"oid": "2"}]`, pathOf("", 1), fill(episodePath, "", 0, 1))
		return
	}
	answer := map[string]any{"url": h.URL + "/datasets/ada/x", "name": "x"}
	switch {
	case strings.HasSuffix(r.URL.Path, "/preupload/main"):
		var in struct{ Files []struct{ Path string } }
		_ = json.Unmarshal(body, &in)
		var out []map[string]any
		for _, f := range in.Files {
			out = append(out, map[string]any{"path": f.Path, "uploadMode": "regular", "shouldIgnore": false})
		}
		answer = map[string]any{"files": out}
	case strings.HasSuffix(r.URL.Path, "/commit/main"):
		for line := range strings.SplitSeq(string(body), "\n") {
			var op struct {
				Key   string
				Value struct{ Path string }
			}
			switch _ = json.Unmarshal([]byte(line), &op); op.Key {
			case "file":
				h.files = append(h.files, op.Value.Path)
			case "deletedFile":
				h.deleted = append(h.deleted, op.Value.Path)
			}
		}
		answer = map[string]any{"commitUrl": h.URL + "/datasets/ada/x/commit/1", "commitOid": strings.Repeat("1", 40),
			"hookOutput": ""}
	case r.Method == http.MethodHead: // there is no README.md yet
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNotFound)
	case strings.Contains(r.URL.Path, "/refuse"), strings.Contains(string(body), "refuse"):
		w.WriteHeader(http.StatusForbidden)
		answer = map[string]any{"error": "You are not allowed here"}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// Goal: the real huggingface_hub pushes every file and the tag, and deletes the file of an episode that is gone. If the
// Hub refuses the push, the error has the reason and the commands.
func TestPushThatLeRobotTakesIt(t *testing.T) {
	python := os.Getenv("DATASET_JUDGE")
	if python == "" {
		t.Skip("make dataset-test runs it")
	}
	h := new(hub)
	h.Server = httptest.NewServer(h)
	defer h.Close()
	for name, value := range map[string]string{"HF_ENDPOINT": h.URL, "HF_TOKEN": "hf_test", "HF_HOME": t.TempDir(),
		"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"} {
		t.Setenv(name, value)
	}
	s := &scene{first: 3, task: "pick"}
	cfg := s.config(t)
	exporting(t, cfg)
	url, err := Push(t.Context(), python, cfg.Out, "ada/x")
	if err != nil || !strings.HasSuffix(url, "/datasets/ada/x") {
		t.Fatalf("%q, %v; asked %q", url, err, h.asked)
	}
	for _, file := range []string{infoPath, statsPath, tasksPath, pathOf("", 0), "README.md"} {
		if !slices.Contains(h.files, file) {
			t.Errorf("pushed %q, want %s too", h.files, file)
		}
	}
	rttest.Equal(t, h.deleted, []string{pathOf("", 1), fill(episodePath, "", 0, 1)}, "deleted")
	if !slices.Contains(h.asked, "POST /api/datasets/ada/x/tag/main") {
		t.Errorf("asked %q, want the tag too", h.asked)
	}
	if _, err = Push(t.Context(), python, cfg.Out, "ada/refuse"); errors.Is(err, errNoHub) ||
		!rttest.Says(err, "hf upload ada/refuse") {
		t.Errorf("a refused push: %v", err)
	}
	t.Log(err)
}
