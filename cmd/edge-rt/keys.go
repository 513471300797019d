package main

import (
	"os"

	"github.com/edge-rt/edge-rt/internal/terminal"
)

// listen calls the function key with each key that a person presses at the terminal, and prints the text help, the list
// of keys, if it is not empty. It returns nil if wanted is false or standard input is not a terminal.
func listen(screen *terminal.Terminal, help string, wanted bool, key func(string)) *terminal.Keys {
	if !wanted {
		return nil
	}
	keys, err := terminal.ReadKeys(os.Stdin, key)
	switch {
	case err != nil:
		warnOn(screen)(err.Error())
	case keys != nil && help != "":
		warnOn(screen)(help)
	}
	return keys
}
