package stage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Show makes a command write to the outputs of this program, unless the command has outputs already.
func Show(cmd *exec.Cmd) *exec.Cmd {
	cmd.Stdout = cmp.Or[io.Writer](cmd.Stdout, os.Stdout)
	cmd.Stderr = cmp.Or[io.Writer](cmd.Stderr, os.Stderr)
	return cmd
}

// Folder creates the folder keep. If keep is empty, it creates a temporary folder, which done removes.
func Folder(keep string) (dir string, done func(), err error) {
	if keep != "" {
		return keep, func() {}, os.MkdirAll(keep, 0o755)
	}
	dir, err = os.MkdirTemp("", "edgert-")
	return dir, func() { os.RemoveAll(dir) }, err
}

// ReadJSON reads a file, such as a program's summary, into v.
func ReadJSON(file string, v any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// Checks prints each check and counts the failures. Its zero value is empty.
type Checks struct{ failed int }

// That prints one check with its figures.
func (c *Checks) That(ok bool, format string, args ...any) {
	mark := "ok  "
	if !ok {
		mark = "FAIL"
		c.failed++
	}
	fmt.Printf("%s  %s\n", mark, fmt.Sprintf(format, args...))
}

// Err returns an error when a check has failed.
func (c *Checks) Err() error {
	if c.failed == 0 {
		return nil
	}
	return fmt.Errorf("%d checks failed", c.failed)
}
