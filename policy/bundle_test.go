package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const (
	demoDir  = "../testdata/demo/bundle"
	stillDir = "../testdata/demo/still"
)

// copyBundle copies a bundle into a folder of the test, edits its bundle.json as decoded JSON, and
// returns the folder.
func copyBundle(t *testing.T, from string, edit func(manifest map[string]any)) string {
	t.Helper()
	dir := t.TempDir()
	rttest.Do(t, os.CopyFS(dir, os.DirFS(from)))
	if edit != nil {
		editManifest(dir, edit)
	}
	return dir
}

func editManifest(dir string, edit func(manifest map[string]any)) {
	path := filepath.Join(dir, manifestName)
	var manifest map[string]any
	rttest.PanicOn(json.Unmarshal(rttest.OrPanic(os.ReadFile(path)), &manifest))
	edit(manifest)
	rttest.PanicOn(os.WriteFile(path, rttest.OrPanic(json.Marshal(manifest)), 0o644))
}

// The demo's policies carry the mark simulation_only. A bundle without the mark may move any arm.
func TestBundlesForSimulation(t *testing.T) {
	for _, dir := range []string{demoDir, stillDir, "../testdata/demo/plain"} {
		if b, err := LoadBundle(dir); err != nil || !b.SimulationOnly {
			t.Errorf("%s: %v, want simulation_only", dir, err)
		}
	}
	for value, want := range map[any]bool{nil: false, false: false, true: true} {
		dir := copyBundle(t, demoDir, func(m map[string]any) {
			if m["simulation_only"] = value; value == nil {
				delete(m, "simulation_only")
			}
		})
		rttest.Want(t, rttest.Must(LoadBundle(dir))(t).SimulationOnly, want, "simulation_only %v", value)
	}
	rttest.Fails(t, rttest.Err(LoadBundle(copyBundle(t, demoDir, func(m map[string]any) {
		m["simulation_only"] = "yes"
	}))))
}

// bundle.json may name every unit that the descriptions of this project's robots use.
func TestEveryRobotsUnitsAreKnown(t *testing.T) {
	for _, name := range robot.Names() {
		for _, unit := range rttest.Must(robot.ByName(name))(t).Units() {
			if !slices.Contains(knownUnits, unit) {
				t.Errorf("%s has the unit %s, want one of %q", name, unit, knownUnits)
			}
		}
	}
}

// replaceFile overwrites a file of a bundle and puts its new digest into bundle.json.
func replaceFile(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	rttest.WriteFile(t, dir, name, content)
	editManifest(dir, func(manifest map[string]any) {
		sum := sha256.Sum256(content)
		manifest["files"].(map[string]any)[name] = hex.EncodeToString(sum[:])
	})
}

func TestLoadBundleReadsTheDemo(t *testing.T) {
	b := rttest.Must(LoadBundle(demoDir))(t)
	if b.FPS != 60 || b.ChunkSize != 50 || b.ActionDim != 6 || b.RTCMaxDelay != 20 || b.PrefixEnd != 24 {
		t.Errorf("fps %v, chunk_size %d, action_dim %d, rtc_max_delay %d, prefix_end %d, want 60, 50, 6, 20, 24",
			b.FPS, b.ChunkSize, b.ActionDim, b.RTCMaxDelay, b.PrefixEnd)
	}
	if want := (Camera{Name: "top", H: 120, W: 160}); len(b.Cameras) != 1 || b.Cameras[0] != want {
		t.Errorf("cameras %v, want [%v]", b.Cameras, want)
	}
	if !b.Guided() || !b.Trained() {
		t.Errorf("guided %v, trained %v, want both", b.Guided(), b.Trained())
	}
	rttest.Want(t, len(b.golden), 4, "number of golden sets")
}

// digestRecipe is the command in docs/server.md.
const digestRecipe = `jq -r '"bundle.json", (.files | keys[])' bundle.json | grep -vx report.json | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum`

// The command digestRecipe defines the digest, so that any user can compute it. Bundle.SHA256 must be the same digest.
func TestBundleDigestIsThatOfSha256sum(t *testing.T) {
	rttest.Contains(t, rttest.ReadFile(t, "../docs/server.md"), "\n    "+digestRecipe+"\n")
	// The first bundle has a report.json, which the digest omits.
	for _, from := range []string{"../testdata/pi05", demoDir} {
		dir := copyBundle(t, from, nil)
		litter(t, dir)
		b := rttest.Must(LoadBundle(dir))(t)
		cmd := exec.Command("sh", "-c", digestRecipe+" | cut -c1-64")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("no sha256sum or jq here: %v", err)
		}
		rttest.Want(t, b.SHA256, strings.TrimSpace(string(out)), "%s: SHA256", from)
	}
}

// litter adds to a bundle's folder the files that downloads, file managers and file systems leave there.
func litter(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{
		".cache/huggingface/download/policy.onnx.metadata", ".cache/huggingface/.gitignore", ".git/HEAD", ".DS_Store",
		"README.md", "notes",
		"golden/._b1.safetensors", "golden/b0_copy.safetensors", "golden/.DS_Store", "tokenizer/tokenizer.json.bak",
		"policy.onnx.1",
	} {
		rttest.WriteFile(t, dir, name, dir)
	}
	lost := filepath.Join(dir, "lost+found")
	rttest.Do(t, errors.Join(os.Mkdir(lost, 0),
		syscall.Mkfifo(filepath.Join(dir, goldenDir, "pipe.safetensors"), 0o600)))
	t.Cleanup(func() { os.Chmod(lost, 0o755) })
}

// A bundle keeps its digest after a download, a visit by a file manager or a copy to another disk. Otherwise a robot
// that accepts only the policy with a certain digest would refuse it.
func TestUnlistedFilesAreNotTheBundles(t *testing.T) {
	clean := rttest.Must(LoadBundle(copyBundle(t, demoDir, nil)))(t)
	if names, found := clean.Unlisted(); found != 0 {
		t.Errorf("Unlisted of a clean bundle = %q (%d), want none", names, found)
	}
	dir := copyBundle(t, demoDir, nil)
	litter(t, dir)
	b := rttest.Must(LoadBundle(dir))(t)
	if b.SHA256 != clean.SHA256 || !slices.Equal(b.golden, clean.golden) {
		t.Errorf("digest %.12s and golden sets %q, want %.12s and %q", b.SHA256, b.golden, clean.SHA256, clean.golden)
	}
	names, found := b.Unlisted()
	want := []string{
		".DS_Store", ".cache/", ".git/", "README.md", "golden/.DS_Store", "golden/._b1.safetensors",
		"golden/b0_copy.safetensors",
		"golden/pipe.safetensors", "lost+found/", "notes",
	}
	if !slices.Equal(names, want) || found != 12 {
		t.Errorf("Unlisted = %q (%d), want %q and 12", names, found, want)
	}
}

// Goal: LoadBundle refuses a bundle.json that does not list the golden sets or the tokenizer, because the digest
// covers only listed files.
func TestUnlistedFilesAreNotRead(t *testing.T) {
	unlist := func(m map[string]any, has func(name string) bool) {
		for name := range m["files"].(map[string]any) {
			if has(name) {
				delete(m["files"].(map[string]any), name)
			}
		}
	}
	golden := func(name string) bool { return strings.HasPrefix(name, "golden/") }
	words := func(name string) bool { return strings.HasPrefix(name, "tokenizer/") }
	for _, tt := range []struct {
		name, from string
		has        func(name string) bool
		want       string
	}{
		{"golden sets", demoDir, golden, "no golden set, want at least one golden/*.safetensors listed"},
		{"the tokenizer", "../testdata/pi05", words, "bundle.json lists no tokenizer/tokenizer.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := LoadBundle(copyBundle(t, tt.from, func(m map[string]any) { unlist(m, tt.has) }))
			rttest.FailsAs(t, err, ErrBundle, tt.want)
		})
	}
}

// An unlisted tokenizer.json is not read, even beside the listed tokenizer.model.
func TestTheListedTokenizerIsRead(t *testing.T) {
	dir := copyBundle(t, "../testdata/pi05", nil)
	want := rttest.Must(LoadBundle(dir))(t)
	path := filepath.Join(dir, manifestName)
	raw := rttest.Must(os.ReadFile(path))(t)
	if !bytes.Contains(raw, []byte("tokenizer/tokenizer.json")) {
		t.Skip("the bundle has another tokenizer now")
	}
	raw = bytes.Replace(raw, []byte("tokenizer/tokenizer.json"), []byte("tokenizer/tokenizer.model"), 1)
	folder := filepath.Join(dir, tokenizerDir)
	rttest.Do(t, errors.Join(os.WriteFile(path, raw, 0o644),
		os.Rename(filepath.Join(folder, "tokenizer.json"), filepath.Join(folder, "tokenizer.model")),
		os.WriteFile(filepath.Join(folder, "tokenizer.json"), []byte("{}"), 0o644)))
	b := &Bundle{Dir: dir, Meta: want.Meta}
	b.Files = map[string]string{"tokenizer/tokenizer.model": strings.Repeat("0", 64)}
	if _, err := b.loadTokenizer(); err == nil || rttest.Says(err, "lists no") {
		t.Errorf("loadTokenizer = %v, want that JSON is no SentencePiece model", err)
	}
}

// Goal: LoadBundle reads a bundle through a link to its folder, because users often install a new policy by such a
// link.
func TestLoadBundleThroughALink(t *testing.T) {
	there := rttest.Must(LoadBundle(demoDir))(t)
	target := rttest.Must(filepath.Abs(demoDir))(t)
	link := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	rttest.Want(t, rttest.Must(LoadBundle(link))(t).SHA256, there.SHA256, "LoadBundle of a link")
}

func TestLoadBundleNamesWhatIsWrong(t *testing.T) {
	set := func(key string, value any) func(map[string]any) {
		return func(m map[string]any) { m[key] = value }
	}
	remove := func(key string) func(map[string]any) {
		return func(m map[string]any) { delete(m, key) }
	}
	scaled := func(w, h, scale int) func(map[string]any) {
		return set("cameras", []Camera{{Name: "top", H: h, W: w, DecodeScale: scale}})
	}
	listed := func(name string) func(map[string]any) {
		return func(m map[string]any) { m["files"].(map[string]any)[name] = strings.Repeat("0", 64) }
	}
	for _, tt := range []struct {
		name string
		edit func(map[string]any)
		want string
	}{
		{"unknown key", set("chunksize", 50), `"chunksize"; if a newer edgert-export`},
		{"another version", set("bundle_version", 2), "bundle_version is 2"},
		{"type missing", remove("policy_type"), "policy_type is missing"},
		{"rate missing", remove("fps"), "fps is 0"},
		{"rate negative", set("fps", -30), "fps is -30"},
		{"rows missing", remove("chunk_size"), "chunk_size is 0"},
		{"rows beyond the bound", set("chunk_size", 1_000_000), "chunk_size is 1000000"},
		{"more executed rows than rows", set("n_action_steps", 51), "n_action_steps is 51"},
		{"names and joints differ in number", set("action_dim", 7), "action_dim is 7 with 6 action_names"},
		{"joint named twice", set("state_names", []string{"a", "a"}), `state_names[1] is "a"`},
		{"joint without a name", set("state_names", []string{""}), `state_names[0] is ""`},
		{"units missing for some", set("action_units", []string{"degrees"}), "action_units has 1 units"},
		{"a unit that no arm has", set("action_units", slices.Repeat([]string{"deg"}, 6)),
			`action_units[0] is "deg", want one of degrees, range_0_100`},
		{"limits upside down", set("state_limits", [][2]float64{{0, 1}, {0, 1}, {5, 4}, {0, 1}, {0, 1}, {0, 1}}),
			"state_limits[2] is [5 4]"},
		{"no state", set("state_names", []string{}), "state_names has 0 names"},
		{"limits missing for some", set("state_limits", [][2]float64{{0, 1}}), "state_limits has 1 pairs"},
		{"mask of another length", set("relative_mask", []bool{true}), "relative_mask has 1 values"},
		{"negative steps", set("num_steps", -1), "num_steps is -1, want 0"},
		{"noise beyond the bound", set("noise_dim", 1_000_000), "noise_dim is 1000000"},
		{"schedule that no graph has", set("schedule", "cosine"), `schedule is "cosine"`},
		{"schedule without conditioning", func(m map[string]any) {
			m["rtc"], m["schedule"] = "none", "linear,zeros,ones,exp"
		}, "with rtc none"},
		{"batches out of order", set("batch_buckets", []int{4, 1}), "batch_buckets is [4 1]"},
		{"picture without size", set("cameras", []Camera{{Name: "top"}}), "cameras[0] is 0x0"},
		{"two cameras of a name", set("cameras", []Camera{{Name: "top", H: 4, W: 4}, {Name: "top", H: 4, W: 4}}),
			`cameras[1].name is "top"`},
		{"scale by three", scaled(160, 120, 3), "cameras[0].decode_scale is 3, want 1, 2, 4 or 8"},
		{"scale by sixteen", scaled(160, 120, 16), "cameras[0].decode_scale is 16"},
		{"scale below zero", scaled(160, 120, -2), "cameras[0].decode_scale is -2"},
		{"scaled pictures beyond the decoder", scaled(1024, 1024, 8), "JPEG of 8192x8192"},
		{"scale that is no number", set("cameras", []map[string]any{{"name": "top", "height": 4, "width": 4,
			"decode_scale": "half"}}), "decode_scale"},
		{"unknown conditioning", set("rtc", "vjp"), `rtc is "vjp"`},
		{"guidance without steps", remove("num_steps"), "num_steps is 0 with rtc"},
		{"trained prefix without a delay", remove("rtc_max_delay"), "rtc_max_delay is 0"},
		{"delay as long as the chunk", set("rtc_max_delay", 50), "rtc_max_delay is 50"},
		{"guidance beyond the chunk", set("prefix_end", 51), "prefix_end is 51"},
		{"prefix in model space", set("prefix_space", "model"), `prefix_space is "model"`},
		{"weights in a type of no weights", set("weights", "int8"), `weights is "int8", want float16 or bfloat16`},
		{"two graphs", set("form", "split"), "files does not list step.onnx"},
		{"unknown form", set("form", "loop"), `form is "loop"`},
		{"more observations than a robot keeps", set("observation_steps", 17), "observation_steps is 17, want 0 to 16"},
		{"noise of no width", func(m map[string]any) {
			m["noise_rows"] = 8
			delete(m, "noise_dim")
		}, "noise_rows is 8 with noise_dim 0"},
		{"tolerance missing", remove("golden_tolerance"), "golden_tolerance.chunk_model is 0"},
		{"graph not listed", func(m map[string]any) {
			delete(m["files"].(map[string]any), graphName)
		}, "files does not list policy.onnx"},
		{"digest malformed", func(m map[string]any) {
			m["files"].(map[string]any)[graphName] = "00"
		}, `files["policy.onnx"] is "00"`},
		{"file above the bundle", listed("../outside"), `files["../outside"] is no path within the bundle`},
		{"file by a folder and back", listed("golden/../../outside"), "is no path within the bundle"},
		{"file by a path from the root", listed("/etc/passwd"), `files["/etc/passwd"] is no path within the bundle`},
		{"file by a path that is not plain", listed("golden//b1.safetensors"), "is no path within the bundle"},
		{"the folder itself", listed("."), "is no path within the bundle"},
		{"file of no name", listed(""), "is no path within the bundle"},
		{"file whose name a terminal obeys", listed("a\x1b[2Jb"), "is no path within the bundle"},
		{"file by Windows' path", listed(`golden\b1.safetensors`), "is no path within the bundle"},
		{"the manifest itself", listed(manifestName), "files lists bundle.json itself"},
		{"folder as a file", listed("golden"), "golden is no ordinary file"},
		{"more files than a bundle has", func(m map[string]any) {
			for i := range maxBundleFiles {
				listed(fmt.Sprint(i))(m)
			}
		}, "files lists 1006 files, want at most 1000"},
		{"listed file absent", func(m map[string]any) {
			m["files"].(map[string]any)["policy.onnx.data"] = strings.Repeat("0", 64)
		}, "policy.onnx.data is listed"},
		{"graph is another file", func(m map[string]any) {
			m["files"].(map[string]any)[graphName] = strings.Repeat("0", 64)
		}, ": copy the whole bundle again (in a clone by git: git lfs pull)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := LoadBundle(copyBundle(t, stillDir, tt.edit))
			rttest.FailsAs(t, err, ErrBundle, tt.want)
		})
	}
}

func TestLoadBundleNamesAllWrongValuesAtOnce(t *testing.T) {
	_, err := LoadBundle(copyBundle(t, stillDir, func(m map[string]any) { m["fps"], m["rtc"] = 0, "x" }))
	rttest.Fails(t, err, "fps is 0", `rtc is "x"`)
}

func TestLoadBundleRefusesWhatIsNoBundle(t *testing.T) {
	withoutGolden := copyBundle(t, stillDir, func(m map[string]any) {
		for name := range m["files"].(map[string]any) {
			if strings.HasPrefix(name, goldenDir) {
				delete(m["files"].(map[string]any), name)
			}
		}
	})
	rttest.Do(t, os.RemoveAll(filepath.Join(withoutGolden, goldenDir)))
	trailing := copyBundle(t, stillDir, nil)
	raw := rttest.Must(os.ReadFile(filepath.Join(trailing, manifestName)))(t)
	rttest.WriteFile(t, trailing, manifestName, append(raw, "{}"...))
	for _, tt := range []struct{ name, dir, want string }{
		{"empty folder", t.TempDir(), "is not a bundle directory"},
		{"no folder", filepath.Join(t.TempDir(), "absent"), "is not a bundle directory"},
		{"no golden set", withoutGolden, "no golden set"},
		{"data behind the manifest", trailing, "data after the closing brace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.FailsAs(t, rttest.Err(LoadBundle(tt.dir)), ErrBundle, tt.want)
		})
	}
}

// A path without bundle.json is often the source of a bundle, such as a checkpoint. The error then names this source.
func TestLoadBundleSaysWhatElseItWasGiven(t *testing.T) {
	made := func(names ...string) string {
		dir := t.TempDir()
		for _, name := range names {
			rttest.WriteFile(t, dir, name, "{}")
		}
		return dir
	}
	outer := made("bundle/bundle.json")
	for _, tt := range []struct{ dir, want string }{
		{made("config.json", "model.safetensors"),
			"it is a checkpoint (it has config.json), of which edgert-export CHECKPOINT BUNDLE"},
		{made("checkpoints/last/pretrained_model/config.json"), "it is a training's folder; edgert-export"},
		{made("pretrained_model/config.json"), "it is a training's folder"},
		{made("meta/info.json"), "it is a data set; edgert-export"},
		{made("snapshots/0f/bundle.json"), "it is a folder of the hub's cache; want the bundle's own folder below "},
		{outer, "want " + filepath.Join(outer, "bundle")},
		{filepath.Join(made("policy.onnx"), "policy.onnx"), "it is a file, want the bundle's folder"},
		{filepath.Join(t.TempDir(), "me", "pick"), "there is no such folder"},
		{filepath.Join(t.TempDir(), "$NO_SUCH", "pick"), "the variable in it is not set"},
	} {
		if _, err := LoadBundle(tt.dir); !errors.Is(err, ErrBundle) || !rttest.Says(err, tt.want) ||
			rttest.Says(err, "\n") {
			t.Errorf("LoadBundle = %v, want ErrBundle, one line and %q", err, tt.want)
		}
	}
}

// Property: no bytes crash the parser of bundle.json, and an accepted description is within the bounds on which later
// arithmetic relies.
func FuzzParseMeta(f *testing.F) {
	for _, dir := range []string{demoDir, stillDir} {
		raw := rttest.Must(os.ReadFile(filepath.Join(dir, manifestName)))(f)
		f.Add(raw)
		f.Add(bytes.Replace(raw, []byte("50"), []byte("-50"), 1))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m Meta
		if m.parse(raw) != nil {
			return
		}
		if m.ChunkSize < 1 || m.ActionDim < 1 || len(m.ActionNames) != m.ActionDim || !(m.FPS > 0) ||
			m.RTCMaxDelay >= m.ChunkSize {
			t.Fatalf("parse accepts %+v", m)
		}
		for _, c := range m.Cameras {
			if k := c.Scale(); k < 1 || k > jpeg.MaxShrink || k > 1 && c.H*k*c.W*k > jpeg.MaxPixels {
				t.Fatalf("parse accepts %+v", c)
			}
		}
		c := m.Condition(&Conditioning{}, m.ChunkSize+1, m.ChunkSize+1, -1)
		if c.PrefixLen != m.ChunkSize || c.Delay > c.PrefixLen {
			t.Fatalf("Condition = %+v with chunk_size %d", c, m.ChunkSize)
		}
	})
}
