// Package policy runs exported policies.
//
// A bundle is a directory with a graph (policy.onnx, or prefix.onnx and step.onnx),
// its description (bundle.json) and recorded input-output pairs (golden/). The graph is a pure function of
// pictures, joint state, noise, the actions already committed (the prefix) and the
// Real-Time Chunking controls; it returns the next H actions. Nothing is remembered
// between inferences, so one graph serves any number of robots, alone or in one
// batch, and a repeated request gives the same chunk.
//
// LoadBundle reads and checks the description. OpenRuntime finds ONNX Runtime, once
// per process. Bundle.Open builds the session with preallocated tensors outside the
// Go heap and replays the golden sets, which the graph must reproduce. From then on
// one locked thread fills rows, calls Model.Run and reads rows, without allocating.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edgert/internal/capped"
	"edgert/policy/tokenizer"
)

// Bounds of what is read from a bundle directory.
const (
	maxManifestBytes = 1 << 20
	maxBundleFiles   = 1000

	manifestName = "bundle.json"
	graphName    = "policy.onnx"
	prefixName   = "prefix.onnx"
	stepName     = "step.onnx"
	reportName   = "report.json"
	goldenDir    = "golden"
	tokenizerDir = "tokenizer"
	goldenExt    = ".safetensors"
	weightsExt   = ".data" // of the file beside a graph that holds its weights where they are many
)

// Bundle is a checked description of an exported policy on disk.
//
// Constant after LoadBundle.
type Bundle struct {
	Meta

	// Dir is where the bundle lies.
	Dir string

	// SHA256 names what is served: the digest, in hex, of the lines that `sha256sum`
	// prints for all files sorted by path, bundle.json included, but for report.json,
	// which tells how the export went and has its times.
	SHA256 string

	// Text turns tasks into tokens; nil for a policy that does not read its task.
	Text *tokenizer.Tokenizer

	golden []string // paths of the golden sets, sorted
}

// LoadBundle reads bundle.json, strictly, and the digest of every file in dir.
// Every failure wraps ErrBundle and names the file and the key that is wrong.
func LoadBundle(dir string) (*Bundle, error) {
	if err := ordinary(filepath.Join(dir, manifestName)); err != nil {
		return nil, fmt.Errorf("%w: %s is not a bundle directory: %w", ErrBundle, dir, err)
	}
	raw, err := capped.ReadFile(filepath.Join(dir, manifestName), maxManifestBytes)
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
		return nil, fmt.Errorf("%w: %s: no golden set, want at least one %s/*%s", ErrBundle, dir, goldenDir, goldenExt)
	}
	if b.Tokenizer != nil {
		if b.Text, err = tokenizer.Load(filepath.Join(dir, tokenizerDir), b.Tokenizer); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrBundle, filepath.Join(dir, tokenizerDir), err)
		}
	}
	return b, nil
}

// digest hashes every file of the bundle, compares the listed ones with
// bundle.json, and returns the digest of the whole.
func (b *Bundle) digest() (string, error) {
	paths, err := listFiles(b.Dir)
	if err != nil {
		return "", err
	}
	for name := range b.Files {
		if !slices.Contains(paths, name) {
			return "", fmt.Errorf("%s is listed in %s but absent", name, manifestName)
		}
	}
	whole := sha256.New()
	for _, name := range paths {
		sum, err := hashFile(filepath.Join(b.Dir, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		if want, listed := b.Files[name]; listed && sum != want {
			return "", fmt.Errorf("%s is not the file that was exported: sha256 %s, want %s", name, sum, want)
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

// listFiles returns the slash paths of all files under dir, sorted bytewise.
func listFiles(dir string) ([]string, error) {
	var paths []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error { // dir itself may be a link
		if err != nil || entry.IsDir() {
			return err
		}
		if len(paths) == maxBundleFiles {
			return fmt.Errorf("more than %d files: this is not a bundle directory", maxBundleFiles)
		}
		paths = append(paths, path)
		return ordinary(filepath.Join(dir, filepath.FromSlash(path)))
	})
	slices.Sort(paths)
	return paths, err
}

// ordinary refuses what is no file, or no link to one: reading a pipe waits, a device
// has no end.
func ordinary(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no ordinary file (%s): a bundle holds what the export wrote and nothing else", path, info.Mode().Type())
	}
	return err
}

func hashFile(path string) (string, error) {
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
