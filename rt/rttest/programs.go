package rttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programsEnv is the environment variable that names a folder of programs built from the present sources. make test
// sets it, so that the tests of a dozen packages do not link the same programs.
const programsEnv = "EDGERT_BIN"

// Programs returns a folder with the named programs of cmd/, so that tests run them as a user does.
// It builds them into dir, unless $EDGERT_BIN has them.
func Programs(dir string, names ...string) (string, error) {
	if built := os.Getenv(programsEnv); built != "" {
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(built, name)); err != nil {
				return "", fmt.Errorf("$%s: %w: run make build, or unset it", programsEnv, err)
			}
		}
		return built, nil
	}
	args := []string{"build", "-o", dir + string(os.PathSeparator)}
	for _, name := range names {
		args = append(args, "github.com/edge-rt/edge-rt/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return dir, nil
}
