// Package policy runs exported policies. tools/export makes the bundles; each policy family has a
// file in tools/export/edgert_export/families.
//
// A bundle is a directory with a graph (policy.onnx, or prefix.onnx and step.onnx), its description
// (bundle.json) and recorded input-output pairs (golden/). The graph returns the next H actions, which depend only on
// its inputs: pictures, joint state, noise, the actions already committed (the prefix) and the Real-Time Chunking
// controls. It keeps no state between inferences, so one graph serves any number of robots, alone or in one batch, and
// a repeated request gives the same chunk.
//
// LoadBundle reads and checks the description. OpenRuntime finds ONNX Runtime, once per process.
// Bundle.Open builds the session with preallocated tensors outside the Go heap and replays the
// golden sets, which the graph must reproduce. After that, one locked thread fills rows with requests, calls Model.Run
// and reads the chunks, without allocating.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/policy/tokenizer"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/trained"
)

// Bounds for reading a bundle directory.
const (
	maxManifestBytes = 1 << 20
	maxBundleFiles   = 1000
	maxUnlisted      = 10

	manifestName = "bundle.json"
	graphName    = "policy.onnx"
	prefixName   = "prefix.onnx"
	stepName     = "step.onnx"
	reportName   = "report.json"
	goldenDir    = "golden"
	tokenizerDir = "tokenizer"
	goldenExt    = ".safetensors"
	statsName    = "statistics.json"
	weightsExt   = ".data" // suffix of the file with the weights of a large graph
)

// Bundle is a checked description of an exported policy on disk.
//
// Constant after LoadBundle.
type Bundle struct {
	Meta

	// Dir is the bundle's folder.
	Dir string

	// SHA256 identifies the bundle. It is the digest, in hex, of the lines that `sha256sum` prints for bundle.json and
	// the files that bundle.json lists, sorted by path. The digest omits report.json, which contains the times of the
	// export. Other files are not part of the bundle, because downloads, file managers and file systems leave different
	// files of their own on each machine.
	SHA256 string

	// Text turns tasks into tokens. It is nil for a policy that does not read its task.
	Text *tokenizer.Tokenizer

	// Statistics is the text of statistics.json, which describes the observations of the training. It is empty when the
	// bundle has no such file.
	Statistics string

	golden []string // paths of the golden sets, sorted
}

// LoadBundle reads bundle.json, in which unknown keys are errors, and checks the digest of every file that it lists.
// Every error wraps ErrBundle and names the faulty file and key.
func LoadBundle(dir string) (*Bundle, error) {
	if err := ordinary(filepath.Join(dir, manifestName)); err != nil {
		return nil, fmt.Errorf("%w: %s is not a bundle directory: %w%s", ErrBundle, dir, err, mistaken(dir))
	}
	raw, err := userfile.Read(filepath.Join(dir, manifestName), maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not a bundle directory: %w", ErrBundle, dir, err)
	}
	b := &Bundle{Dir: dir}
	if err := b.Meta.parse(raw); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, filepath.Join(dir, manifestName), err)
	}
	if b.SHA256, err = b.digest(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, dir, err)
	}
	if len(b.golden) == 0 {
		return nil, fmt.Errorf("%w: %s: no golden set, want at least one %s/*%s listed with its sha256 under files "+
			"in %s",
			ErrBundle, dir, goldenDir, goldenExt, manifestName)
	}
	if _, listed := b.Files[statsName]; listed {
		if err := b.loadStatistics(); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrBundle, filepath.Join(dir, statsName), err)
		}
	}
	if b.Tokenizer != nil {
		if b.Text, err = b.loadTokenizer(); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrBundle, filepath.Join(dir, tokenizerDir), err)
		}
	}
	return b, nil
}

// loadStatistics reads statistics.json, which must describe this policy's joints and cameras.
func (b *Bundle) loadStatistics() error {
	text, err := userfile.Read(filepath.Join(b.Dir, statsName), wire.MaxStatisticsBytes)
	if err != nil {
		return err
	}
	s, err := trained.Parse(text)
	if err != nil {
		return err
	}
	if n := len(s.State.Min); n != 0 && n != len(b.StateNames) {
		return fmt.Errorf("state has %d joints, want the %d of state_names", n, len(b.StateNames))
	}
	for _, c := range s.Cameras {
		if !slices.ContainsFunc(b.Cameras, func(own Camera) bool { return own.Name == c.Name }) {
			return fmt.Errorf("camera %q is not in %s", c.Name, manifestName)
		}
	}
	b.Statistics = string(text)
	return nil
}

// loadTokenizer reads the file in the bundle's folder tokenizer/ that bundle.json lists.
func (b *Bundle) loadTokenizer() (*tokenizer.Tokenizer, error) {
	names := tokenizer.FileNames(b.Tokenizer)
	for _, name := range names {
		if _, listed := b.Files[tokenizerDir+"/"+name]; listed {
			return tokenizer.LoadFile(filepath.Join(b.Dir, tokenizerDir, name), b.Tokenizer)
		}
	}
	return nil, fmt.Errorf("%s lists no %s/%s: export the bundle again", manifestName, tokenizerDir,
		strings.Join(names, " and no "+tokenizerDir+"/"))
}

// digest hashes bundle.json and every listed file, compares the listed files with their sums in bundle.json, and
// returns Bundle.SHA256. It also fills b.golden.
func (b *Bundle) digest() (string, error) {
	whole := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		if err := b.contained(name); err != nil {
			return "", err
		}
	}
	for _, name := range b.paths() {
		sum, err := HashFile(filepath.Join(b.Dir, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		if want, listed := b.Files[name]; listed && sum != want {
			return "", fmt.Errorf("%s is not the file that was exported: sha256 %s, want %s: copy the "+
				"whole bundle again (in a clone by git: git lfs pull)", name, sum, want)
		}
		if name == reportName {
			continue
		}
		fmt.Fprintf(whole, "%s  %s\n", sum, name)
		if strings.HasPrefix(name, goldenDir+"/") && strings.HasSuffix(name, goldenExt) {
			b.golden = append(b.golden, name)
		}
	}
	return hex.EncodeToString(whole.Sum(nil)), nil
}

// paths returns the paths of bundle.json and of the files that it lists, with slashes and sorted bytewise.
func (b *Bundle) paths() []string {
	paths := slices.AppendSeq([]string{manifestName}, maps.Keys(b.Files))
	slices.Sort(paths)
	return paths
}

// contained refuses a listed file that is absent, that is not a regular file, or whose folder is a link. The file
// itself may be a link to a regular file, because the hub's cache keeps every file as a link; digest hashes the file to
// which it leads.
func (b *Bundle) contained(name string) error {
	for i := range name {
		if name[i] != '/' {
			continue
		}
		folder := filepath.Join(b.Dir, filepath.FromSlash(name[:i]))
		if info, err := os.Lstat(folder); err == nil && !info.IsDir() {
			return fmt.Errorf("%s of the listed %s is no folder (%s): copy the folder itself to %s",
				name[:i], name, info.Mode().Type(), folder)
		}
	}
	err := ordinary(filepath.Join(b.Dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is listed in %s but absent: copy the whole bundle again", name, manifestName)
	}
	return err
}

// Unlisted names the entries of the bundle's folder that are not part of the bundle, at most maxUnlisted, sorted. A
// folder without files of the bundle is one entry, whose name ends with a slash. The result found also counts the
// entries beyond maxUnlisted. The search ends after maxBundleFiles entries. Unlisted opens no file.
func (b *Bundle) Unlisted() (names []string, found int) {
	read := 0
	fs.WalkDir(os.DirFS(b.Dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if read++; read > maxBundleFiles {
			return fs.SkipAll
		}
		if path == "." || err != nil || b.holds(path, entry.IsDir()) {
			return nil // a folder that cannot be read is skipped
		}
		skip := error(nil)
		if entry.IsDir() {
			path, skip = path+"/", fs.SkipDir
		}
		if found++; found <= maxUnlisted {
			names = append(names, path)
		}
		return skip
	})
	return names, found
}

// holds reports whether a file is part of the bundle, or whether a folder contains a file of the bundle.
func (b *Bundle) holds(path string, folder bool) bool {
	if !folder {
		_, listed := b.Files[path]
		return listed || path == manifestName || path == reportName
	}
	for name := range b.Files {
		if strings.HasPrefix(name, path+"/") {
			return true
		}
	}
	return false
}

// ordinary refuses a path that is neither a regular file nor a link to a regular file. Reading a pipe may block for
// ever, and reading a device may never end.
func ordinary(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no ordinary file (%s): a bundle holds what the export wrote and nothing else", path,
			info.Mode().Type())
	}
	return err
}

// HashFile returns the SHA-256 of a file, in hexadecimal.
func HashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
