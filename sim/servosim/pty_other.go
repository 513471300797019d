//go:build !linux

package servosim

import (
	"errors"
	"time"
)

type pty struct{ name string }

func (p *pty) open(baud int) error                        { return errors.New("simulated buses need Linux") }
func (p *pty) close()                                     {}
func (p *pty) plug(baud int) error                        { return nil }
func (p *pty) unplug()                                    {}
func (p *pty) read(dst []byte, timeout time.Duration) int { return -1 }
func (p *pty) write(src []byte) int                       { return 0 }
func (p *pty) baud() int                                  { return 0 }
func (p *pty) wake()                                      {}

func lockName(path string) (release func(), err error) { return func() {}, nil }
