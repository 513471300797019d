package timeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
)

// viewers are the programs that can open a record. Show uses the first program that is installed.
var viewers = []string{"rerun", "foxglove-studio"}

// ShowConfig configures edge-rt view.
type ShowConfig struct {
	File string
	// file for the page; empty: a viewer opens the record or, if no viewer is installed, the page is written beside the
	// record
	HTML string
	Out  io.Writer // output for people
}

// Show opens a record in an installed viewer, or writes a page that shows it.
func Show(ctx context.Context, cfg ShowConfig) error {
	if strings.HasSuffix(cfg.HTML, record.Extension) {
		return exit.Errorf(exit.Usage, "--html %s would replace a record: name another file, such as run.html",
			cfg.HTML)
	}
	in, err := record.Open(cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exit.Errorf(exit.Usage, "no record %s: edge-rt ctl save writes one of a run, into its --record-dir",
			cfg.File)
	case err != nil:
		return exit.With(exit.Usage, err)
	}
	defer in.Close()
	if cfg.HTML == "" {
		for _, name := range viewers {
			if path, err := exec.LookPath(name); err == nil {
				fmt.Fprintf(cfg.Out, "%s opens %s. --html FILE writes a page instead.\n", name, cfg.File)
				return open(ctx, path, cfg)
			}
		}
		cfg.HTML = strings.TrimSuffix(cfg.File, record.Extension) + ".html"
	}
	seen, err := write(cfg, in)
	if err != nil {
		return err
	}
	if seen.Torn {
		why := "has no end"
		if seen.Damaged {
			why = "is damaged before its end"
		}
		fmt.Fprintf(cfg.Out, "%s %s: the page shows its readable part.\n", cfg.File, why)
	}
	if seen.Unreadable > 0 {
		fmt.Fprintf(cfg.Out, "%d pictures are no JPEG, or too large, and are left out.\n", seen.Unreadable)
	}
	fmt.Fprintf(cfg.Out, "%s shows %d ticks and %d of %d pictures: open it in a browser.\n", cfg.HTML, seen.Ticks,
		seen.Shown, seen.Pictures)
	return nil
}

// open runs a viewer until it ends or ctx is done.
func open(ctx context.Context, path string, cfg ShowConfig) error {
	file, err := filepath.Abs(cfg.File)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, path, file)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// write makes the page under a temporary name in the same folder, so that a failure leaves an
// existing page as it is.
func write(cfg ShowConfig, in *os.File) (seen seen, err error) {
	if info, err := os.Lstat(cfg.HTML); err == nil && !info.Mode().IsRegular() { // the page would replace /dev/null
		return seen, unwritten(cfg.HTML, errors.New("it is a folder, link, pipe or device"))
	}
	out, err := os.CreateTemp(filepath.Dir(cfg.HTML), ".view-*")
	if err != nil {
		return seen, unwritten(cfg.HTML, err)
	}
	defer os.Remove(out.Name())
	var page bytes.Buffer
	if seen, err = writeHTML(&page, in, filepath.Base(cfg.File)); err != nil {
		out.Close()
		return seen, exit.Errorf(exit.Config, "%s: %w", cfg.File, err)
	}
	_, err = page.WriteTo(out)
	if err = errors.Join(err, out.Chmod(pageMode), out.Close()); err == nil {
		err = os.Rename(out.Name(), cfg.HTML)
	}
	if err != nil {
		err = unwritten(cfg.HTML, err)
	}
	return seen, err
}

// unwritten returns the error for a page that could not be written. The error does not contain the page's temporary
// name.
func unwritten(page string, err error) error {
	var cause syscall.Errno
	if errors.As(err, &cause) {
		err = cause
	}
	return exit.Errorf(exit.Usage, "nothing can be written to %s: %w; choose another file with --html", page, err)
}

const pageMode = 0o640 // the record's mode, since the page shows the robot's surroundings, too
