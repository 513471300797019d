//go:build !linux

package dataset

import "errors"

func lock(string) (unlock func(), err error) { return func() {}, nil }

func exchange(string, string) error { return errors.ErrUnsupported }

func renameNew(from, to string) error { return renameChecked(from, to) }
