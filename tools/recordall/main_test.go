package main

import (
	"testing"

	"github.com/edge-rt/edge-rt/record"
)

// Goal: a run that records fails for each forbidden effect of recording, and for no other reason.
func TestWrong(t *testing.T) {
	good := func() *slice {
		s := &slice{mode: "all"}
		s.Seconds, s.PathMallocs = 60, 2*(60+200)
		s.Record = &record.Stats{Files: 1, Bytes: 100 << 20, Messages: 4000, Pictures: 3600}
		return s
	}
	if err := good().wrong(); err != nil {
		t.Errorf("a good run: %v", err)
	}
	off := good()
	off.mode, off.OverrunsOwn = "off", 1
	if err := off.wrong(); err != nil {
		t.Errorf("a run without a record: %v", err)
	}
	for name, spoil := range map[string]func(*slice){
		"nothing recorded": func(s *slice) { s.Record.Pictures = 0 },
		"own overruns":     func(s *slice) { s.OverrunsOwn = 1 },
		"lost messages":    func(s *slice) { s.Record.Lost = 1 },
		"lost pictures":    func(s *slice) { s.Record.LostPictures = 1 },
		"allocations":      func(s *slice) { s.PathMallocs = 8*(60+266) + 1500 + 1 },
	} {
		s := good()
		spoil(s)
		if s.wrong() == nil {
			t.Errorf("%s: passes", name)
		}
	}
}
