//go:build race

package rt

const raced = true // built with the race detector
