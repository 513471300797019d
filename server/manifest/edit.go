package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/internal/userfile"
)

// EditRollout changes the block rollout of a manifest's file and returns the manifest with the new block. The other
// lines stay as they are; comments within the block are lost. A process that reads the file meanwhile gets either the
// old content or the new. Edits of several processes follow each other. A change that makes the manifest invalid is not
// written.
func EditRollout(file string, change func(*Rollout)) (Config, error) {
	locked, err := lock(file)
	if err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	defer child.Unlock(locked)
	data, err := userfile.ReadYAML(file)
	if err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	cfg, err := parse(file, data, nil)
	if err != nil {
		return cfg, err
	}
	wanted := cfg.Rollout
	wanted.Robots, wanted.Keep = slices.Clone(wanted.Robots), slices.Clone(wanted.Keep)
	change(&wanted)
	block := wanted
	if block.Model.RepoOrPath == cfg.Rollout.Model.RepoOrPath {
		block.Model.RepoOrPath = cfg.block
	}
	text := withBlock(string(data), cfg.lines["rollout"], block.text())
	edited, err := parse(file, []byte(text), nil)
	tried := cfg
	tried.Rollout = wanted
	switch {
	case err != nil && tried.Check() != nil:
		return cfg, err
	// such as a block in braces that ends on a later line
	case err != nil, len(cfg.Changed(&edited)) > 0, !reflect.DeepEqual(edited.Rollout.text(), wanted.text()):
		return cfg, cfg.Errorf("rollout", "the block rollout cannot be replaced in a file of this form: write it by "+
			"hand:\n%s", block.text())
	}
	if file, err = filepath.EvalSymlinks(file); err == nil {
		err = userfile.Replace(file, []byte(text))
	}
	if err != nil {
		return cfg, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return edited, nil
}

// lockTries and lockPause bound the wait for the edits of other processes.
const lockTries, lockPause = 500, 10 * time.Millisecond

// lock locks a file until child.Unlock. Because each edit replaces the file, lock checks that the locked file is still
// the present one.
func lock(file string) (*os.File, error) {
	for range lockTries {
		f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for the writer of a pipe
		if err != nil {
			return nil, err
		}
		held := child.Lock(f)
		opened, err1 := f.Stat()
		now, err2 := os.Stat(file)
		if !errors.Is(held, syscall.EWOULDBLOCK) && err1 == nil && err2 == nil && os.SameFile(opened, now) {
			return f, nil // a file system may not support locks
		}
		_ = child.Unlock(f)
		time.Sleep(lockPause)
	}
	return nil, fmt.Errorf("%s: another process has edited it for %v: end that process", file, lockTries*lockPause)
}

// withBlock returns a manifest's text with a new block rollout in place of the present one, which begins at the given
// line. If the line is 0, there is no present one, and the new block is appended.
func withBlock(text string, line int, block string) string {
	lines := strings.SplitAfter(text, "\n")
	if line == 0 {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return text + block
	}
	end := line
	for i := line; i < len(lines); i++ { // the block ends at the last indented line that is not empty
		if strings.TrimLeft(lines[i], " \t") != lines[i] && strings.TrimSpace(lines[i]) != "" {
			end = i + 1
		} else if strings.TrimSpace(lines[i]) != "" {
			break
		}
	}
	return strings.Join(lines[:line-1], "") + block + strings.Join(lines[end:], "")
}

// text returns the block rollout as YAML; "" when no key is set.
func (r *Rollout) text() string {
	var b strings.Builder
	put := func(key string, value any) {
		text, _ := json.Marshal(value) // the JSON of a string, a list of strings or a number is YAML, too
		fmt.Fprintf(&b, "  %s: %s\n", key, text)
	}
	if r.Model.RepoOrPath != "" {
		put("model", struct {
			RepoOrPath string `json:"repo_or_path"`
			SHA256     string `json:"sha256,omitempty"`
		}(r.Model))
		put("share", r.Share)
	}
	for _, list := range []struct {
		key string
		ids []string
	}{{"robots", r.Robots}, {"keep", r.Keep}} {
		if len(list.ids) > 0 {
			put(list.key, list.ids)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "rollout:\n" + b.String()
}
