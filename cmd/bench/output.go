package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/userfile"
)

// streams are the two outputs of bench, and its command line.
type streams struct {
	out, err io.Writer
	args     []string
}

// output is the output of one flag: the report R in some form, written to the file name. The name - means standard
// output, and "" no output.
type output[R any] struct {
	flag, name string
	render     func(R, io.Writer) error
}

// measure checks that every output can be written and then runs a measurement. It prints the report's table, on
// standard error if an output goes to standard output. It also writes the outputs, one of which is JSON. env points to
// the Env in cfg.
func measure[C any, R interface {
	WriteTable(io.Writer) error
}](ctx context.Context, s *streams, flags common, env *bench.Env, cfg *C,
	run func(context.Context, C) (R, error), outputs ...output[R]) error {
	outputs = append(outputs, output[R]{"--json", flags.JSON, func(r R, w io.Writer) error {
		return report.WriteJSON(w, r)
	}})
	if err := ready(outputs...); err != nil {
		return err
	}
	env.Version = version
	env.Command = commandLine(s.args)
	if !flags.Quiet {
		env.Log = s.err
	}
	report, err := run(ctx, *cfg)
	if err != nil {
		return err
	}
	to := s.out
	for _, o := range outputs {
		if o.name == "-" {
			to = s.err
		}
	}
	if err := report.WriteTable(to); err != nil {
		return err
	}
	var failed []error // a failed output does not prevent the others
	for _, o := range outputs {
		failed = append(failed, o.write(report, s.out))
	}
	return errors.Join(failed...)
}

// commandLine returns the command line, quoted for a shell.
func commandLine(args []string) string {
	words := []string{"bench"}
	for _, arg := range args {
		words = append(words, device.Quote(arg))
	}
	return strings.Join(words, " ")
}

// ready refuses outputs that cannot be written, before the measurement begins: two outputs to the same place, and a
// file that cannot be opened.
func ready[R any](outputs ...output[R]) error {
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
			return exit.Errorf(exit.Usage, "%s %s and %s %s: only one of them can go to %s", other, o.name, o.flag,
				o.name, place)
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

func (o output[R]) write(report R, stdout io.Writer) error {
	switch o.name {
	case "":
		return nil
	case "-":
		return o.render(report, stdout)
	}
	var text bytes.Buffer
	err := o.render(report, &text)
	if err == nil {
		err = userfile.Write(o.name, text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.flag, err)
	}
	return nil
}
