//go:build !linux

package safety

import "errors"

var errNotHere = errors.New("not on this machine")

func stepClock(*run) error { return errNotHere }
func hangTick(*run) error  { return errNotHere }
func smallDisk(*run) error { return errNotHere }
