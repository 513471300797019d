package policy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of ONNX's messages, in addition to those in probe_test.go.
const (
	graphTensor    = 5
	tensorRaw      = 9
	tensorExternal = 13
	tensorLocation = 14
	entryKey       = 1
	entryValue     = 2
	external       = 1
)

// weightsAt makes the graph read its largest weights from the file at location, with the given length in bytes (0: the
// true length). It returns the changed graph and these weights.
func weightsAt(t *testing.T, graph []byte, location string, length int) (changed, weights []byte) {
	t.Helper()
	var tensor []byte // the largest tensor
	fields(t, graph, func(number protowire.Number, _, graph []byte) {
		if number != modelGraph {
			return
		}
		fields(t, graph, func(number protowire.Number, _, one []byte) {
			if number != graphTensor {
				return
			}
			fields(t, one, func(number protowire.Number, _, raw []byte) {
				if number == tensorRaw && len(raw) > len(weights) {
					tensor, weights = one, raw
				}
			})
		})
	})
	if len(weights) < 1024 {
		t.Fatalf("the largest weights of the graph have %d bytes", len(weights))
	}
	if length == 0 {
		length = len(weights)
	}
	var beside []byte
	fields(t, tensor, func(number protowire.Number, raw, _ []byte) {
		if number != tensorRaw {
			beside = append(beside, raw...)
		}
	})
	for _, entry := range [][2]string{{"location", location}, {"length", fmt.Sprint(length)}} {
		beside = field(beside, tensorExternal, field(field(nil, entryKey, []byte(entry[0])), entryValue,
			[]byte(entry[1])))
	}
	beside = protowire.AppendVarint(protowire.AppendTag(beside, tensorLocation, protowire.VarintType), external)
	fields(t, graph, func(number protowire.Number, raw, graph []byte) {
		if number != modelGraph {
			changed = append(changed, raw...)
			return
		}
		var parts []byte
		fields(t, graph, func(number protowire.Number, raw, one []byte) {
			if number == graphTensor && bytes.Equal(one, tensor) {
				raw = field(nil, graphTensor, beside)
			}
			parts = append(parts, raw...)
		})
		changed = field(changed, modelGraph, parts)
	})
	return changed, weights
}

// ONNX Runtime reads weights beside the graph only from files of the bundle, which its digest covers. A hostile graph
// must not make the server read other files of its machine, and two policies must not have the same digest.
func TestWeightsBesideTheGraphAreTheBundles(t *testing.T) {
	needRuntime(t)
	graph := rttest.Must(os.ReadFile(filepath.Join(demoDir, graphName)))(t)
	parent := t.TempDir()
	outside := filepath.Join(parent, "outside.data")
	for _, tt := range []struct {
		name, location string
		length         int
		want           string // a part of the error's text; empty: the bundle opens
	}{
		{"beside the graph", graphName + weightsExt, 0, ""},
		{"above the bundle", "../outside.data", 0, "outside.data"},
		{"by a path from the root", outside, 0, "Absolute paths not allowed"},
		{"by a folder and back", "golden/../../outside.data", 0, "outside.data"},
		{"a file of the system", "/etc/passwd", 0, "Absolute paths not allowed"},
		{"a file that is not there", "nothing.data", 0, "nothing.data"},
		{"a file that is not listed", "unlisted.data", 0,
			`it keeps weights in "unlisted.data", which files in bundle.json does not list`},
		{"more than the file has", graphName + weightsExt, 1 << 40, graphName},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(parent, strings.ReplaceAll(tt.name, " ", "-"))
			rttest.Do(t, os.Rename(copyBundle(t, demoDir, nil), dir))
			changed, weights := weightsAt(t, graph, tt.location, tt.length)
			rttest.Do(t, errors.Join(os.WriteFile(outside, weights, 0o600),
				os.WriteFile(filepath.Join(dir, "unlisted.data"), weights, 0o600)))
			replaceFile(t, dir, graphName, changed)
			replaceFile(t, dir, graphName+weightsExt, weights)
			b, err := LoadBundle(dir)
			if err == nil {
				var m *Model
				if m, err = b.Open(Options{}); err == nil {
					m.Close()
				}
			}
			if tt.want == "" && err != nil || tt.want != "" &&
				(!errors.Is(err, ErrBundle) || !rttest.Says(err, tt.want)) {
				t.Errorf("Open = %v, want %q", err, tt.want)
			}
		})
	}
}

// A bundle's files must be regular files: a pipe that waits for a writer, or an endless device,
// must not block a server's start.
func TestLoadBundleRefusesWhatIsNoFile(t *testing.T) {
	const golden = "golden/b1_mode0.safetensors"
	instead := func(name string, put func(path string) error) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			return errors.Join(os.RemoveAll(path), put(path))
		}
	}
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	link := func(to string) func(path string) error {
		return func(path string) error { return os.Symlink(to, path) }
	}
	for _, tt := range []struct {
		name, want string
		put        func(dir string) error
	}{
		{"a pipe", golden, instead(golden, pipe)},
		{"a pipe for a manifest", manifestName, instead(manifestName, pipe)},
		{"a device without an end", golden, instead(golden, link("/dev/zero"))},
		{"a link to a folder", graphName, instead(graphName, link(os.TempDir()))},
		{"a link to nothing", golden + " is listed in bundle.json but absent", instead(golden, link("/nowhere"))},
		{"a linked folder", "golden of the listed " + golden + " is no folder", func(dir string) error {
			outside := t.TempDir()
			return errors.Join(os.Rename(filepath.Join(dir, goldenDir), filepath.Join(outside, goldenDir)),
				os.Symlink(filepath.Join(outside, goldenDir), filepath.Join(dir, goldenDir)))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyBundle(t, stillDir, nil)
			if err := tt.put(dir); err != nil {
				t.Skip(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := LoadBundle(dir)
				done <- err
			}()
			select {
			case err := <-done:
				rttest.FailsAs(t, err, ErrBundle, tt.want)
			case <-time.After(20 * time.Second):
				t.Fatal("LoadBundle waits")
			}
		})
	}
}

// Links to regular files, as the hub's cache keeps them, are accepted.
func TestLoadBundleReadsLinkedFiles(t *testing.T) {
	dir, store := copyBundle(t, stillDir, nil), t.TempDir()
	for _, name := range []string{manifestName, graphName} {
		blob := filepath.Join(store, name)
		if err := errors.Join(os.Rename(filepath.Join(dir, name), blob),
			os.Symlink(blob, filepath.Join(dir, name))); err != nil {
			t.Skip(err)
		}
	}
	there := rttest.Must(LoadBundle(copyBundle(t, stillDir, nil)))(t)
	rttest.Want(t, rttest.Must(LoadBundle(dir))(t).SHA256, there.SHA256, "LoadBundle of linked files")
}

// A policy is refused when the sizes in bundle.json are too large together, even if each size is within its bounds.
func TestOpenRefusesMoreMemoryThanAnyPolicyTakes(t *testing.T) {
	m := &Model{bundle: &Bundle{Meta: Meta{
		ChunkSize: 50, ActionDim: 6, StateNames: []string{"a"}, RTC: "none", ObservationSteps: MaxObserved,
		Cameras: []Camera{{Name: "top", H: 4096, W: 4096}, {Name: "low", H: 4096, W: 4096}},
	}}, opt: Options{MaxBatch: 16, Buffers: 2}}
	rttest.FailsAs(t, m.allocate(), ErrBundle, "48.0 GiB", "max_batch")
	if m.host != nil {
		t.Errorf("%d tensors were made", len(m.host))
	}
}

// A safetensors header that declares more bytes than the file has is refused without allocating
// them.
func TestGoldenSetOfHugeSizes(t *testing.T) {
	header := rttest.Must(json.Marshal(map[string]any{"in/state": map[string]any{"dtype": "F32",
		"shape": []int64{1 << 31, 1 << 30}, "data_offsets": []int64{0, 1 << 62}}}))(t)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	dir := copyBundle(t, stillDir, nil)
	replaceFile(t, dir, filepath.Join(goldenDir, "b9_huge.safetensors"), file)
	b := rttest.Must(LoadBundle(dir))(t)
	rttest.Fails(t, rttest.Err(b.loadGolden(goldenDir+"/b9_huge.safetensors")), "in/state") // a tensor of 2^61 values
}
