package bench

import (
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// Other is a program that a measurement runs beside ours.
type Other struct{ Name, Command string }

// ParseBeside reads the values of --beside, NAME=COMMAND.
func ParseBeside(flags []string) (list []Other, err error) {
	for _, text := range flags {
		name, command, ok := strings.Cut(text, "=")
		if !ok || name == "" || command == "" {
			return nil, exit.Errorf(exit.Usage, "--beside is %q, want NAME=COMMAND", text)
		}
		list = append(list, Other{name, command})
	}
	return list, nil
}
