package main

import "testing"

// Goal: a run that records fails for each forbidden effect of recording, and for no other reason.
func TestWrong(t *testing.T) {
	good := func() *slice {
		s := &slice{mode: "all"}
		s.Seconds = 60
		s.Record.Files = 1
		s.Record.Bytes = 100 << 20
		s.Record.Messages = 4000
		s.Record.Pictures = 3600
		s.Mallocs = 2 * (60 + 200)
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
		"allocations":      func(s *slice) { s.Mallocs = 8*(60+266) + 1500 + 1 },
	} {
		s := good()
		spoil(s)
		if s.wrong() == nil {
			t.Errorf("%s: passes", name)
		}
	}
}
