package servo

import (
	"errors"
	"fmt"
	"time"

	"edgert/servo/packet"
	"edgert/servo/robot"
	"edgert/servo/table"
)

// refusal is what a Dynamixel answers instead of doing what it was asked.
type refusal struct {
	protocol table.Protocol
	code     byte
}

func (r refusal) Error() string {
	if r.protocol == table.Dynamixel2 {
		texts := [...]string{"", "it failed", "unknown instruction", "wrong CRC", "value out of the register's range",
			"too few bytes", "value beyond a limit register", "no access: the register is read only, or torque is on, or the bus watchdog has fired"}
		if code := int(r.code &^ 0x80); code < len(texts) {
			return "refused: " + texts[code]
		}
		return fmt.Sprintf("refused: code %d", r.code&^0x80)
	}
	text := ""
	for bit, what := range map[byte]string{1 << 1: "beyond the angle limits", 1 << 3: "value out of range", 1 << 4: "wrong checksum", 1 << 6: "unknown instruction"} {
		if r.code&bit != 0 {
			text += ": " + what
		}
	}
	return "refused" + text
}

func (r refusal) garbled() bool {
	if r.protocol == table.Dynamixel2 {
		return r.code&^0x80 == 3
	}
	return r.code&(1<<4) != 0
}

// Ping asks one servo whether it is there and returns its fault bits.
func (b *Bus) Ping(id ID) (Fault, error) {
	b.tx = b.format.Append(b.tx[:0], id, packet.Ping)
	b.waitFirstQuiet()
	_, fault, err := b.transact(id, b.tx, b.pingParams())
	if err != nil {
		return 0, fmt.Errorf("ping id %d: %w", id, err)
	}
	return fault, nil
}

// PingModel is the model number in a Dynamixel's answer to a ping, which it gives at each status
// return level; 0: it gave none, or the protocol has none there.
func (b *Bus) PingModel(id ID) int {
	if b.protocol != table.Dynamixel2 {
		return 0
	}
	b.tx = b.format.Append(b.tx[:0], id, packet.Ping)
	b.waitFirstQuiet()
	data, _, err := b.transact(id, b.tx, b.pingParams())
	if err != nil {
		return 0
	}
	return int(data[0]) | int(data[1])<<8
}

// pings reports whether a motor of this model answers a ping, as far as the answer says.
func (b *Bus) pings(m robot.Motor) bool {
	if b.protocol == table.Dynamixel2 {
		return b.PingModel(m.ID) == m.Model.Number
	}
	_, err := b.Ping(m.ID)
	return err == nil
}

func (b *Bus) pingParams() int {
	if b.protocol == table.Dynamixel2 {
		return 3 // model and firmware
	}
	return 0
}

// ReadRegister returns the value of one register and the servo's fault bits.
func (b *Bus) ReadRegister(id ID, r table.Row) (int, Fault, error) {
	b.tx = b.format.AppendRead(b.tx[:0], id, r.Addr, r.Size)
	data, fault, err := b.request(id, r.Size)
	if err != nil {
		return 0, 0, fmt.Errorf("read %s of id %d: %w", r.Register, id, err)
	}
	return r.Decode(data), fault, nil
}

// WriteRegister sets one register and waits for the acknowledgement, repeating the write
// until it comes. It refuses the broadcast id: one such frame would give every servo the
// same id.
func (b *Bus) WriteRegister(id ID, r table.Row, value int) (Fault, error) {
	if err := r.Check(value); err != nil {
		return 0, fmt.Errorf("servo: %w", err)
	}
	if id == Broadcast {
		return 0, fmt.Errorf("servo: write %s by broadcast: nobody acknowledges that; use a sync write", r.Register)
	}
	b.data = r.Append(b.data[:0], value)
	b.tx = b.format.AppendWrite(b.tx[:0], id, r.Addr, b.data)
	_, fault, err := b.request(id, 0)
	if err != nil {
		return 0, fmt.Errorf("write %s of id %d: %w", r.Register, id, err)
	}
	return fault, nil
}

// instruct sends an instruction without parameters, once; most may not be repeated.
func (b *Bus) instruct(id ID, inst packet.Instruction) error {
	b.tx = b.format.Append(b.tx[:0], id, inst)
	b.waitFirstQuiet()
	if _, _, err := b.transactOnce(id, b.tx, 0); err != nil {
		return fmt.Errorf("instruction %02X to id %d: %w", byte(inst), id, err)
	}
	return nil
}

// syncWrite sets one register of all ids at once; none answers.
//
//rt:noalloc
func (b *Bus) syncWrite(r table.Row, ids []ID, values []int) error {
	b.appendSyncWrite(r, ids, values)
	if !b.send(b.tx) {
		return ErrPortLost
	}
	// The servos hear nothing else while the frame is on the line.
	b.sleepUntil(b.clock.Now().Add(b.wireTime(len(b.tx), 0, 0) + replyGap))
	return nil
}

//rt:noalloc
func (b *Bus) appendSyncWrite(r table.Row, ids []ID, values []int) {
	b.data = b.data[:0]
	for i := range ids {
		b.data = r.Append(b.data, values[i])
	}
	b.tx = b.format.AppendSyncWrite(b.tx[:0], r.Addr, r.Size, ids, b.data)
}

// request sends b.tx to one servo and returns its params bytes, which are borrowed
// until the next transaction, and its fault bits.
func (b *Bus) request(id ID, params int) ([]byte, Fault, error) {
	b.waitFirstQuiet()
	if params > 0 {
		if err := b.sendFence(id); err != nil {
			return nil, 0, err
		}
	}
	return b.transact(id, b.tx, params)
}

// waitFirstQuiet waits, once for a bus, until the line is silent: another program,
// killed perhaps, may have left requests whose replies are still to come.
func (b *Bus) waitFirstQuiet() {
	if b.wasQuiet {
		return
	}
	b.wasQuiet = true
	b.waitQuiet()
}

// fence keeps late replies of earlier requests from what is read next. A reply does not
// say which register it is about, and bytes do not overtake each other: behind the reply
// to a request that is known by its length nothing older comes. So a register counts only
// when such a request was answered since the last unclean exchange, or since another
// program had the port.
//
// A fence is a read of fenceMin to fenceMax bytes of the EEPROM, a length that nothing
// else has. Each takes the next length, and another program begins with another one.
//
// What no protocol tells apart: a frame that stands whole in the data of a reply whose
// beginning is lost, and the reply to a killed program's fence of the same length.
type fence struct {
	done    bool      // nothing older than the last reply can come
	count   uint      // that were sent; does not begin at 0
	refused [256]bool // by id: it has refused a fence's read, so pings are its fences
}

const (
	fenceFrom = 0 // address
	fenceMin  = 9
	fenceMax  = 14
)

func (b *Bus) sendFence(id ID) error {
	f := &b.fence
	if f.done {
		return nil
	}
	if !f.refused[id] {
		params := fenceMin + int(f.count%(fenceMax-fenceMin+1))
		f.count++
		_, _, err := b.transact(id, b.format.AppendRead(nil, id, fenceFrom, params), params)
		refusal, refused := errors.AsType[refusal](err)
		f.refused[id] = refused && !refusal.garbled()
		if err == nil || errors.Is(err, ErrPortLost) || errors.Is(err, ErrCanceled) {
			f.done = err == nil
			return err
		}
	}
	// A servo that answers no such read, a clone's perhaps, gets a ping: it keeps out
	// what is not as short as its reply.
	_, _, err := b.transactOnce(id, b.format.Append(nil, id, packet.Ping), b.pingParams())
	f.done = err == nil
	return err
}

// transact is request without its precautions; a late reply to an earlier attempt counts.
func (b *Bus) transact(id ID, request []byte, params int) ([]byte, Fault, error) {
	g := b.single
	g.expect(id)
	g.request, g.params = request, params
	g.wire = b.wireTime(len(request), 1, params)
	b.drainNext = max(b.drainNext, 1) // a reply that came twice would answer this too
	before := b.corrupt.Load()
	for attempt := range b.attempts {
		if attempt > 0 {
			b.retries.Add(1)
		}
		deadline := b.clock.Now().Add(g.wire + replyDelayMax + b.timeout)
		if b.gather(g, b.timeout, deadline) == 0 {
			return g.param(0), b.faultOf(g.errs[0]), nil
		}
		if b.lost {
			return nil, 0, ErrPortLost
		}
		if g.refused != 0 {
			return nil, b.faultOf(g.errs[0]), refusal{b.protocol, g.errs[0]}
		}
		b.waitQuiet()
		if b.isCanceled() {
			return nil, 0, ErrCanceled
		}
	}
	if b.corrupt.Load() != before {
		return nil, 0, ErrGarbled
	}
	return nil, 0, ErrNoReply
}

func (b *Bus) transactOnce(id ID, request []byte, params int) ([]byte, Fault, error) {
	defer func(attempts int) { b.attempts = attempts }(b.attempts)
	b.attempts = 1
	return b.transact(id, request, params)
}

// waitQuiet waits until the line has been silent for b.quietTime, or for five times that.
func (b *Bus) waitQuiet() {
	idle := b.clock.Now().Add(b.quietTime)
	for end := b.clock.Now().Add(min(quietMax, 5*b.quietTime)); b.clock.Now() < min(idle, end) && !b.isCanceled(); {
		b.wait(idle)
		n, err := b.port.Read(b.rx[:])
		if err != nil {
			return
		}
		if n > 0 {
			idle = b.clock.Now().Add(b.quietTime)
		}
	}
}

// AnyReply reports whether any servo answers a ping to all within the wait.
func (b *Bus) AnyReply(wait time.Duration) bool {
	b.wasQuiet = true
	b.waitQuiet()
	b.tx = b.format.Append(b.tx[:0], Broadcast, packet.Ping)
	if !b.send(b.tx) {
		return false
	}
	heard := 0
	end := b.clock.Now().Add(b.wireTime(len(b.tx), 1, 0) + wait)
	for heard == 0 && b.clock.Now() < end {
		b.wait(end)
		n, err := b.read(b.rx[:])
		if err != nil {
			b.lost = true
			return false
		}
		heard += n
	}
	b.waitQuiet()
	b.uncleanExchange()
	return heard > 0
}
