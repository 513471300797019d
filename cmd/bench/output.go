package main

import (
	"fmt"
	"io"
	"os"

	"edgert/internal/exit"
)

// output is what a flag asks for: a rendering of the report in the file name, -
// for standard output, "" for nothing.
type output struct {
	flag, name string
	render     func(io.Writer) error
}

// oneToStdout refuses two outputs that both ask for standard output; it is asked
// before the measurement.
func oneToStdout(json, html string) error {
	if json == "-" && html == "-" {
		return exit.Errorf(exit.Usage, "--json - and --html -: only one of them goes to standard output")
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
	for _, o := range outputs {
		if err := o.write(stdout); err != nil {
			return err
		}
	}
	return nil
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
		return exit.Errorf(exit.Usage, "%s: %w", o.flag, err)
	}
	if err := o.render(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", o.flag, err)
	}
	return f.Close()
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
