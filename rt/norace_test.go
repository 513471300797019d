//go:build !race

package rt

const raced = false // built without the race detector
