//go:build !linux

package jpeg

import "errors"

func raisePriority() (undo func(), err error) {
	return func() {}, errors.New("no real-time priority here")
}
