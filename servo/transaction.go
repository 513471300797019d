package servo

import (
	"errors"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/servo/packet"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// refusal is the error code in the answer of a Dynamixel that refuses an instruction.
type refusal struct {
	protocol table.Protocol
	code     byte
}

func (r refusal) Error() string {
	if r.protocol == table.Dynamixel2 {
		texts := [...]string{"", "it failed", "unknown instruction", "wrong CRC", "value out of the register's range",
			"too few bytes", "value beyond a limit register",
			"no access: the register is read only, or torque is on, or the bus watchdog has fired"}
		if code := int(r.code &^ 0x80); code < len(texts) {
			return "refused: " + texts[code]
		}
		return fmt.Sprintf("refused: code %d", r.code&^0x80)
	}
	text := ""
	for bit, what := range [...]string{1: "beyond the angle limits", 3: "value out of range", 4: "wrong checksum",
		6: "unknown instruction"} {
		if r.code>>bit&1 != 0 && what != "" {
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

// Ping sends a ping to one servo. Its error is nil if the servo answers, whatever faults it reports.
func (b *Bus) Ping(id ID) error {
	if _, err := b.ping(id); err != nil {
		return fmt.Errorf("ping id %d: %w", id, err)
	}
	return nil
}

func (b *Bus) ping(id ID) (data []byte, err error) {
	b.tx = b.format.Append(b.tx[:0], id, packet.Ping)
	b.waitFirstQuiet()
	data, _, err = b.transact(id, b.tx, b.pingParams())
	return data, err
}

// PingModel sends a ping and returns the model number in the answer, which a Dynamixel sends at each status
// return level. It returns 0 when no answer comes, or when the protocol's answer has no model number.
func (b *Bus) PingModel(id ID) int {
	data, err := b.ping(id)
	if err != nil || len(data) < 2 {
		return 0
	}
	return int(data[0]) | int(data[1])<<8
}

// pings reports whether a motor with m's id and model answers a ping. In protocols whose answer has
// no model number the model is not compared.
func (b *Bus) pings(m robot.Motor) bool {
	if b.protocol == table.Dynamixel2 {
		return b.PingModel(m.ID) == m.Model.Number
	}
	return b.Ping(m.ID) == nil
}

func (b *Bus) pingParams() int {
	if b.protocol == table.Dynamixel2 {
		return 3 // model number and firmware version
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

// WriteRegister sets one register and waits for the acknowledgement; without one it repeats the
// write. It refuses the broadcast id, because one broadcast write can give every servo the same id.
func (b *Bus) WriteRegister(id ID, r table.Row, value int) error {
	if err := r.Check(value); err != nil {
		return fmt.Errorf("servo: %w", err)
	}
	if id == Broadcast {
		return fmt.Errorf("servo: write %s by broadcast: no servo acknowledges it; use a sync write", r.Register)
	}
	b.data = r.Append(b.data[:0], value)
	b.tx = b.format.AppendWrite(b.tx[:0], id, r.Addr, b.data)
	if _, _, err := b.request(id, 0); err != nil {
		return fmt.Errorf("write %s of id %d: %w", r.Register, id, err)
	}
	return nil
}

// instruct sends an instruction without parameters. It never repeats the instruction, because most
// instructions must be carried out only once.
func (b *Bus) instruct(id ID, inst packet.Instruction) error {
	b.tx = b.format.Append(b.tx[:0], id, inst)
	b.waitFirstQuiet()
	if err := b.transactOnce(id, b.tx, 0); err != nil {
		return fmt.Errorf("instruction %02X to id %d: %w", byte(inst), id, err)
	}
	return nil
}

// syncWrite sets one register of all ids at once. No servo acknowledges it.
//
//rt:noalloc
func (b *Bus) syncWrite(r table.Row, ids []ID, values []int) error {
	b.appendSyncWrite(r, ids, values)
	if !b.send(b.tx) {
		return ErrPortLost
	}
	// The servos cannot receive another frame while this one is on the line.
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

// request sends b.tx to one servo, after a fence if params > 0. It returns the reply's data, params bytes that are
// valid until the next transaction, and the servo's fault bits.
func (b *Bus) request(id ID, params int) ([]byte, Fault, error) {
	b.waitFirstQuiet()
	if params > 0 {
		if err := b.sendFence(id); err != nil {
			return nil, 0, err
		}
	}
	return b.transact(id, b.tx, params)
}

// waitFirstQuiet waits until the line is silent, only in its first call for a bus: replies to the
// requests of a killed program, for example, may still come.
func (b *Bus) waitFirstQuiet() {
	if b.wasQuiet {
		return
	}
	b.wasQuiet = true
	b.waitQuiet()
}

// fence keeps late replies to earlier requests from being taken for the next reading. A reply does
// not name its register, but bytes do not overtake each other: after a reply whose length
// identifies its request, no older reply can come. A register value is therefore accepted only when
// such a request was answered since the last unclean exchange, or since another program had the
// port.
//
// A fence is a read of fenceMin to fenceMax bytes of the EEPROM, lengths that no other request has. Each fence takes
// the next length. Each program begins with an arbitrary length, usually another one than the program before it.
//
// Two cases cannot be recognized in any protocol: a complete frame inside the data of a reply
// whose beginning is lost, and the reply to a killed program's fence of the same length.
type fence struct {
	done    bool      // no older reply can come after the last reply
	count   uint      // fences sent; begins at an arbitrary number
	refused [256]bool // by id: the servo has refused a fence's read, so its fence is a ping
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
	// A servo that does not answer a fence's read, for example a clone, gets a ping instead. Its
	// answer keeps out all replies that are longer than the answer to a ping.
	err := b.transactOnce(id, b.format.Append(nil, id, packet.Ping), b.pingParams())
	f.done = err == nil
	return err
}

// transact does the same as request, but without a fence and without waiting for a silent line, so it may return a late
// reply to an earlier request.
func (b *Bus) transact(id ID, request []byte, params int) ([]byte, Fault, error) {
	g := b.single
	g.expect(id)
	g.request, g.params = request, params
	g.wire = b.wireTime(len(request), 1, params)
	b.drainNext = max(b.drainNext, 1) // without a drain, a duplicate of the last reply could answer this request
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

func (b *Bus) transactOnce(id ID, request []byte, params int) error {
	defer func(attempts int) { b.attempts = attempts }(b.attempts)
	b.attempts = 1
	_, _, err := b.transact(id, request, params)
	return err
}

// waitQuiet waits until the line has been silent for b.quietTime, but at most five times
// b.quietTime and at most quietMax. A cancellation ends the wait.
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

// AnyReply sends a ping to all servos and reports whether any byte comes in the given time.
func (b *Bus) AnyReply(wait time.Duration) bool {
	b.wasQuiet = true
	b.waitQuiet()
	b.tx = b.format.Append(b.tx[:0], Broadcast, packet.Ping)
	if !b.send(b.tx) {
		return false
	}
	received := 0
	end := b.clock.Now().Add(b.wireTime(len(b.tx), 1, 0) + wait)
	for received == 0 && b.clock.Now() < end {
		b.wait(end)
		n, err := b.read(b.rx[:])
		if err != nil {
			b.lost = true
			return false
		}
		received += n
	}
	b.waitQuiet()
	b.uncleanExchange()
	return received > 0
}
