//go:build !linux

package stage

func waitDeath(_ int, waited <-chan struct{}) { <-waited }
