package main

import (
	"os"

	"edgert/internal/terminal"
)

// listen has key called with the keys of the terminal, where there is one and they are
// wanted, and says which there are.
func listen(screen *terminal.Terminal, says string, wanted bool, key func(string)) *terminal.Keys {
	if !wanted {
		return nil
	}
	keys, err := terminal.ReadKeys(os.Stdin, []string{"/proc/self/exe", keepTerminalName}, key)
	switch {
	case err != nil:
		warnOn(screen)(err.Error())
	case keys != nil:
		warnOn(screen)(says)
	}
	return keys
}

const keepTerminalName = "keep-terminal"

// keepTerminalCmd is the process that restores the terminal of one that was killed.
type keepTerminalCmd struct{}

func (keepTerminalCmd) Run() error { return terminal.KeepTerminal(os.Stdin) }
