//go:build !linux

package recipe

func threadID() int { return 0 }
