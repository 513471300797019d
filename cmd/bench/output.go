package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"edgert/internal/exit"
	"edgert/internal/program"
)

// output is what a flag asks for: a rendering of the report in the file name, -
// for standard output, "" for nothing.
type output struct {
	flag, name string
	render     func(io.Writer) error
}

// ready refuses outputs that could not be delivered, before the measurement: two
// at one place, and a file that cannot be opened.
func ready(outputs ...output) error {
	taken := map[string]string{}
	for _, o := range outputs {
		if o.name == "" {
			continue
		}
		if other, twice := taken[o.name]; twice {
			place := o.name
			if place == "-" {
				place = "standard output"
			}
			return exit.Errorf(exit.Usage, "%s %s and %s %s: only one of them can go to %s", other, o.name, o.flag, o.name, place)
		}
		taken[o.name] = o.flag
		if o.name == "-" {
			continue
		}
		if err := program.Writable(o.flag, o.name); err != nil {
			return err
		}
	}
	return nil
}

// deliver shows the table, on standard error where an output takes standard
// output, and writes the outputs.
func deliver(stdout, stderr io.Writer, table func(io.Writer) error, outputs ...output) error {
	to := stdout
	for _, o := range outputs {
		if o.name == "-" {
			to = stderr
		}
	}
	if err := table(to); err != nil {
		return err
	}
	var failed []error // one that cannot be written does not cost the others
	for _, o := range outputs {
		failed = append(failed, o.write(stdout))
	}
	return errors.Join(failed...)
}

func (o output) write(stdout io.Writer) error {
	switch o.name {
	case "":
		return nil
	case "-":
		return o.render(stdout)
	}
	f, err := os.Create(o.name)
	if err != nil {
		return fmt.Errorf("%s: %w", o.flag, err)
	}
	if err := errors.Join(o.render(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", o.flag, err)
	}
	return nil
}

// progress is where a measurement says how far it is.
func progress(quiet bool, stderr io.Writer) io.Writer {
	if quiet {
		return io.Discard
	}
	return stderr
}

// ownPath is this program's file: it runs its parts, and its folder is where the
// other programs are looked for.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("bench does not find its own program: %w", err)
	}
	return self, nil
}

// folder returns where edge-rt and lean-server are: the folder that --bin names,
// absolute, since a bare "edge-rt" would be looked up in $PATH, or, for "", that
// of this program.
func folder(bin string) (string, error) {
	if bin != "" {
		return filepath.Abs(bin)
	}
	self, err := ownPath()
	return filepath.Dir(self), err
}
