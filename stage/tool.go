package stage

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// Tool is the main function of a tool: it reads the command line into O, a struct with kong's tags, and runs it. An
// error ends the process with its exit code.
func Tool[O any](run func(O) error) {
	var o O
	parser := kong.Must(&o)
	_, err := parser.Parse(os.Args[1:])
	if err = exit.With(exit.Usage, err); err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", parser.Model.Name, err)
		os.Exit(int(exit.Of(err)))
	}
}
