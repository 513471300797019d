package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// errNoHub means that the Python interpreter has no huggingface_hub. The text of the error has the
// commands that push the dataset by hand.
var errNoHub = errors.New("huggingface_hub is not installed")

// repoName is the form of a repository's name on the Hub, USER/NAME.
var repoName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$`)

// CheckRepo refuses a text that is not the name of a repository.
func CheckRepo(repo string) error {
	if !repoName.MatchString(repo) {
		return fmt.Errorf("got %q, want USER/NAME, such as ada/pick-cubes", repo)
	}
	return nil
}

// pushProgram makes the repository, the files, and the tag by which LeRobot's loader finds the layout,
// as LeRobotDataset.push_to_hub does, and prints the address. It deletes the files of episodes that only an earlier
// push had, because the loader reads every file in data/ and meta/episodes/. A repository without a README.md first
// gets a card like LeRobot's, by which the Hub finds and shows the dataset; it names no licence, which is the user's
// choice.
const pushProgram = `
import pathlib, sys
try:
    from huggingface_hub import HfApi
except ImportError:
    sys.exit(9)
repo, folder, version = sys.argv[1:]
api = HfApi()
url = api.create_repo(repo, repo_type="dataset", exist_ok=True)
if not api.file_exists(repo, "README.md", repo_type="dataset"):
    info = pathlib.Path(folder, "meta", "info.json").read_text(encoding="utf-8")
    card = """---
task_categories:
- robotics
tags:
- LeRobot
configs:
- config_name: default
  data_files: data/*/*.parquet
---

This dataset was created using [edge-rt](https://github.com/edge-rt/edge-rt), for [LeRobot](https://github.com/huggingface/lerobot).

[Visualize this dataset](https://huggingface.co/spaces/lerobot/visualize_dataset?path=""" + repo + """)

## Dataset Structure

[meta/info.json](meta/info.json):
~~~json
""" + info.strip() + """
~~~
"""
    api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repo, repo_type="dataset",
                    commit_message="Dataset card of edge-rt")
api.upload_folder(repo_id=repo, folder_path=folder, repo_type="dataset", commit_message="edge-rt dataset export",
                  delete_patterns=["data/*", "videos/*", "meta/episodes/*"])
try:
    api.delete_tag(repo, tag=version, repo_type="dataset")
except Exception:
    pass
api.create_tag(repo, tag=version, repo_type="dataset")
print(url)
`

// noHub is the exit code of pushProgram if huggingface_hub is not installed.
const noHub = 9

// Push uploads a dataset to a repository of the Hub with the user's own huggingface_hub and login, and returns the
// address of the repository. python is the Python interpreter.
func Push(ctx context.Context, python, folder, repo string) (url string, err error) {
	full, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, python, "-c", pushProgram, repo, full, Version)
	cmd.WaitDelay = time.Second // a process that the interpreter has started may keep the output open
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrWaitDelay) { // the interpreter has ended with code 0
		err = nil
	}
	var ended *exec.ExitError
	switch url = lastLine(out); {
	case err == nil && strings.HasPrefix(url, "http"):
		return url, nil
	case err == nil:
		err = fmt.Errorf("%s printed no address of the repository", python)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		python += ", which is not there"
		fallthrough
	case errors.As(err, &ended) && ended.ExitCode() == noHub:
		return "", fmt.Errorf("%w for %s; the dataset is complete; %s", errNoHub, python, later(full, repo))
	}
	if ended != nil {
		if exception := lastLine(ended.Stderr); exception != "" {
			err = errors.New(exception)
		}
	}
	return "", fmt.Errorf("the dataset is complete, and was not pushed to %s: %w; %s", repo, err, later(full, repo))
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// later returns two ways to push the dataset later. The second way is a line of commands for a shell. They move the tag
// of an earlier push, because LeRobot's loader would otherwise still load the files of that push.
func later(folder, repo string) string {
	return fmt.Sprintf("the same export with --append pushes it, and these commands do so without a card: python3 -m "+
		"pip install huggingface_hub && hf auth login && hf upload %[1]s '%[2]s' . --repo-type dataset --delete "+
		"'data/*' --delete 'videos/*' --delete 'meta/episodes/*' && { hf repos tag delete %[1]s %[3]s --yes "+
		"--repo-type dataset; hf repos tag create %[1]s %[3]s --repo-type dataset; }", repo,
		strings.ReplaceAll(folder, "'", `'\''`), Version)
}
