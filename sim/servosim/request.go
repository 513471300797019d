package servosim

// The codes of the instructions. The first seven are the same in Feetech's and both Dynamixel protocols, except that
// protocol 1.0 has no sync read.
const (
	instPing         = 0x01
	instRead         = 0x02
	instWrite        = 0x03
	instRegWrite     = 0x04
	instAction       = 0x05
	instSyncRead     = 0x82
	instSyncWrite    = 0x83
	instFactoryReset = 0x06 // Dynamixel
	instReboot       = 0x08
	instPlace        = 0x0B // Feetech: sets the offset so that the position reads as the value of the parameter
	instClear        = 0x10 // Dynamixel
	instFastSyncRead = 0x8A // Dynamixel
	instBulkRead     = 0x92 // Dynamixel
	instBulkWrite    = 0x93 // Dynamixel
	instFastBulkRead = 0x9A // Dynamixel
)

// request is the content of a frame. data depends on the instruction: the data of a write; the
// parameters for several servos that next has not removed yet; or all parameters.
type request struct {
	id, inst   uint8
	addr, size int
	data       []byte
}

// parse splits a frame's parameters. fits is false when their number is wrong for the instruction.
//
//rt:noalloc
func parse(f frame, packets bool) (r request, fits bool) {
	p := f.params
	width := 1 // bytes of an address, and of a size
	if packets {
		width = 2
	}
	r = request{id: f.id, inst: f.inst, data: p}
	switch f.inst {
	case instPing, instAction, instReboot:
		return r, len(p) == 0
	case instRead:
		if len(p) != 2*width {
			return r, false
		}
		r.addr = number(p, width)
		r.size = number(p[width:], width)
		r.data = nil
	case instWrite, instRegWrite:
		if len(p) <= width {
			return r, false
		}
		r.addr = number(p, width)
		r.size = len(p) - width
		r.data = p[width:]
	case instSyncRead, instSyncWrite, instFastSyncRead:
		if len(p) <= 2*width {
			return r, false
		}
		r.addr = number(p, width)
		r.size = number(p[width:], width)
		r.data = p[2*width:]
		return r, r.size > 0
	}
	return r, true
}

//rt:noalloc
func number(p []byte, width int) int {
	if width == 1 {
		return int(p[0])
	}
	return int(p[0]) | int(p[1])<<8
}

// part is one servo's part of an instruction to several servos.
type part struct {
	id         uint8
	addr, size int
	data       []byte // data of a write
}

// next removes the next part from r.data. ok is false at the end, or when the remaining data are too short.
//
//rt:noalloc
func (r *request) next() (p part, ok bool) {
	d := r.data
	p = part{addr: r.addr, size: r.size}
	head := 1
	if r.inst == instBulkRead || r.inst == instBulkWrite || r.inst == instFastBulkRead {
		if head = 5; len(d) < head {
			return p, false
		}
		p.addr, p.size = number(d[1:], 2), number(d[3:], 2)
	}
	write := r.inst == instSyncWrite || r.inst == instBulkWrite
	whole := head
	if write {
		whole += p.size
	}
	if len(d) < whole || len(d) == 0 {
		return p, false
	}
	p.id, r.data = d[0], d[whole:]
	if write {
		p.data = d[head:whole]
	}
	return p, true
}

// toMany reports whether the instruction lists the ids of its servos.
//
//rt:noalloc
func toMany(inst uint8) bool {
	switch inst {
	case instSyncRead, instSyncWrite, instFastSyncRead, instBulkRead, instBulkWrite, instFastBulkRead:
		return true
	}
	return false
}

// supports reports whether a servo of the series obeys the instruction.
//
//rt:noalloc
func (s series) supports(inst uint8) bool {
	switch inst {
	case instPing, instRead, instWrite, instRegWrite, instAction, instSyncWrite:
		return true
	case instSyncRead, instReboot:
		return s != seriesAX
	case instFactoryReset:
		return !s.feetech()
	case instPlace:
		return s.feetech()
	case instClear, instFastSyncRead, instBulkRead, instBulkWrite, instFastBulkRead:
		return s == seriesX
	}
	return false
}
