package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// export is the command that makes a bundle.
const export = "edgert-export CHECKPOINT BUNDLE --dataset-info meta/info.json"

// mistaken recognises paths that users often give in place of a bundle. It returns the part of an error that describes
// such a path and names the right one. For any other path it returns "".
func mistaken(dir string) string {
	has := func(names ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{dir}, names...)...))
		return err == nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(dir, "$"):
		return ": the variable in it is not set for this program"
	case errors.Is(err, fs.ErrNotExist):
		return ": there is no such folder"
	case err == nil && !info.IsDir():
		return fmt.Sprintf(": it is a file, want the bundle's folder, such as %s", filepath.Dir(dir))
	case has("bundle", manifestName):
		return fmt.Sprintf(": want %s", filepath.Join(dir, "bundle"))
	case has("config.json"):
		return fmt.Sprintf(": it is a checkpoint (it has config.json), of which %s makes a bundle", export)
	case has("checkpoints"), has("pretrained_model", "config.json"):
		return fmt.Sprintf(": it is a training's folder; %s makes a bundle of its checkpoints/last/pretrained_model",
			export)
	case has("meta", "info.json"):
		return fmt.Sprintf(": it is a data set; %s makes a bundle of a policy that was trained on it", export)
	case has("snapshots"):
		return fmt.Sprintf(": it is a folder of the hub's cache; want the bundle's own folder below %s",
			filepath.Join(dir, "snapshots"))
	}
	return ""
}
