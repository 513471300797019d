package servosim

import "edgert/rt"

// write stores data from addr on and lets it take effect. Read-only bytes are
// passed over without a complaint, as the servo does. Below eepromEnd a write
// survives a power cycle only if the lock was open.
//
//rt:noalloc
func (s *servo) write(addr uint8, data []byte, now rt.Instant) {
	torque, id, baud := s.mem[regTorque], s.mem[regID], s.mem[regBaud]
	open := s.mem[regLock] == 0
	from, to := int(addr), min(int(addr)+len(data), memSize)
	for a := from; a < to; a++ {
		if writable[a] {
			s.mem[a] = data[a-from]
		}
	}
	covers := func(reg, size int) bool { return from < reg+size && to > reg }
	if s.mem[regID] > idMax {
		s.mem[regID] = id
	}
	if int(s.mem[regBaud]) >= len(bauds) {
		s.mem[regBaud] = baud
	}
	if covers(regTorque, 1) {
		s.torque(torque, now)
	}
	if covers(regGoal, 2) {
		s.follow(now)
	}
	if open {
		s.save(from, to)
	}
}

// save carries a range of memory over to flash.
//
//rt:noalloc
func (s *servo) save(from, to int) {
	for a := from; a < min(to, eepromEnd); a++ {
		s.flash[a] = s.mem[a]
	}
}

// torque lets a value written to the torque register take effect.
//
//rt:noalloc
func (s *servo) torque(before uint8, now rt.Instant) {
	switch s.mem[regTorque] {
	case torqueOn:
		if before != torqueOn {
			_, raw := s.goal()
			s.cfg.Plant.Goal(now, s.joint, raw) // a stale goal register makes the arm jump
			s.cfg.Plant.Torque(now, s.joint, true)
		}
	case torqueCentre:
		s.mem[regTorque] = before
		s.centre(now)
	default: // free or damped
		s.cfg.Plant.Torque(now, s.joint, false)
	}
}

// centre sets the offset so that the shaft's place reads 2048.
//
//rt:noalloc
func (s *servo) centre(now rt.Instant) {
	off := s.cfg.Plant.Present(now, s.joint) - centre
	off = min(max(off, -(signOffset-1)), signOffset-1)
	s.setWord(regOffset, signed(off, signOffset))
	if s.mem[regLock] == 0 {
		s.save(regOffset, regOffset+2)
	}
}

// follow hands the goal register to the plant.
//
//rt:noalloc
func (s *servo) follow(now rt.Instant) {
	_, raw := s.goal()
	s.cfg.Plant.Goal(now, s.joint, raw)
	if s.cfg.GoalTakesTorque && s.mem[regTorque] != torqueOn {
		s.mem[regTorque] = torqueOn
		s.cfg.Plant.Torque(now, s.joint, true)
	}
}
