package peers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/wire"
)

const prefix = "@lerobot/m/main/s"

// fleet is a set of servers that have seen each other's tokens.
type fleet map[string]*Others

func newFleet(ids ...string) fleet {
	f := fleet{}
	for _, id := range ids {
		f[id] = New(prefix, id, memory.New(1<<30))
	}
	for _, id := range ids {
		f.show(wire.ReplicaRoomKey(prefix, id), true)
		f.show(wire.ReplicaAliveKey(prefix, id), true)
	}
	return f
}

func (f fleet) show(key string, alive bool) {
	for _, o := range f {
		o.OnToken(key, alive)
	}
}

func (f fleet) answering(uuid string) (ids []string) {
	for id, o := range f {
		if o.Answers(uuid) {
			ids = append(ids, id)
		}
	}
	return ids
}

// For every state of three servers, a robot that names no server gets exactly one answer, from a
// server that is alive. The answering server has room if any server has, and holds the robot if any
// server does.
func TestExactlyOneAnswers(t *testing.T) {
	held := wire.Held{UUID: "arm-7", Server: "b", Mark: "0"}
	heldKey := rttest.Must(wire.HeldKey(prefix, held.UUID, held.Server, held.Mark, held.Epoch))(t)
	type token struct {
		key   string
		alive bool
	}
	for _, tt := range []struct {
		name   string
		tokens []token
		may    string // servers that may answer
		holder string // server that holds arm-7; empty: no server, so weights decide
	}{
		{"all are there", nil, "abc", ""},
		{"one is full", []token{{wire.ReplicaRoomKey(prefix, "a"), false}}, "bc", ""},
		{"all are full", []token{{wire.ReplicaRoomKey(prefix, "a"), false}, {wire.ReplicaRoomKey(prefix, "b"), false},
			{wire.ReplicaRoomKey(prefix, "c"), false}}, "abc", ""},
		{"one is dead", []token{{wire.ReplicaAliveKey(prefix, "c"), false}, {wire.ReplicaRoomKey(prefix, "c"), false}},
			"ab", ""},
		{"one holds the robot", []token{{heldKey, true}}, "abc", "b"},
		{"one holds the robot and is full", []token{{heldKey, true}, {wire.ReplicaRoomKey(prefix, "b"), false}},
			"ac", "b"},
		{"the holder is gone", []token{{heldKey, true}, {wire.ReplicaAliveKey(prefix, "b"), false}}, "ac", ""},
		{"the holder has let go", []token{{heldKey, true}, {heldKey, false}}, "abc", ""},
	} {
		f := newFleet("a", "b", "c")
		for _, token := range tt.tokens {
			f.show(token.key, token.alive)
		}
		by := map[string]int{}
		for i := range 300 {
			uuid := fmt.Sprint("arm-", i)
			ids := f.answering(uuid)
			if uuid == held.UUID && tt.holder != "" {
				ids = append(ids, tt.holder) // the server that holds the session is the only one that may answer
			}
			alive := ids[:0]
			for _, id := range ids {
				if own := f[id].servers[id]; own != nil && own.alive { // otherwise this server has ended
					alive = append(alive, id)
				}
			}
			if len(alive) != 1 {
				t.Errorf("%s: %s is answered by %v, want by one", tt.name, uuid, alive)
				continue
			}
			by[alive[0]]++
			if uuid == held.UUID && tt.holder != "" && alive[0] != tt.holder {
				t.Errorf("%s: the robot of %s is answered by %s", tt.name, tt.holder, alive[0])
			}
		}
		for _, id := range []string{"a", "b", "c"} {
			may := 0
			for _, c := range tt.may {
				if string(c) == id {
					may = 300 / len(tt.may)
				}
			}
			if n := by[id]; may == 0 && n > 1 || may > 0 && n < may/2 {
				t.Errorf("%s: %s answers %d of 300, want about %d", tt.name, id, n, may)
			}
		}
	}
}

// When two servers hold the same robot, exactly one gives it up: the one that the robot has left.
func TestOneGivesUp(t *testing.T) {
	a, b := New(prefix, "a", memory.New(1<<30)), New(prefix, "b", memory.New(1<<30))
	for _, tt := range []struct {
		name         string
		at, with     wire.Held
		loses, moved bool
	}{
		{"it moved to b", wire.Held{Mark: "x", Epoch: 4}, wire.Held{Mark: "x", Epoch: 5}, true, true},
		{"it came back from b", wire.Held{Mark: "x", Epoch: 6}, wire.Held{Mark: "x", Epoch: 5}, false, true},
	} {
		tt.at.UUID = "arm"
		tt.at.Server = "a"
		tt.with.UUID = "arm"
		tt.with.Server = "b"
		if loses, moved := a.Loses(tt.at, tt.with); loses != tt.loses || moved != tt.moved {
			t.Errorf("%s: loses %v, moved %v, want %v, %v", tt.name, loses, moved, tt.loses, tt.moved)
		}
	}
	for i := range 100 {
		uuid := fmt.Sprint("arm-", i)
		for _, marks := range [][2]string{{"0", "0"}, {"x", "y"}} {
			at, with := wire.Held{UUID: uuid, Server: "a", Mark: marks[0]}, wire.Held{
				UUID:   uuid,
				Server: "b",
				Mark:   marks[1],
				Epoch:  uint32(len(marks[1]) - 1),
			}
			atLoses, moved := a.Loses(at, with)
			withLoses, _ := b.Loses(with, at)
			if atLoses == withLoses || moved != (marks[0] == marks[1]) {
				t.Errorf("%s of %v: a gives %v, b gives %v, moved %v", uuid, marks, atLoses, withLoses, moved)
			}
		}
	}
}

// Tokens beyond the bounds are dropped and counted. After a token has vanished, it takes no memory.
func TestBounds(t *testing.T) {
	bound := memory.New(1 << 30)
	o := New(prefix, "a", bound)
	for _, alive := range []bool{true, false} {
		for i := range maxServers + 3 {
			o.OnToken(wire.ReplicaAliveKey(prefix, fmt.Sprint("s", i)), alive)
		}
		for i := range maxHeld + 2 {
			o.OnToken(fmt.Sprintf("%s/arm-%d/held/s1/0/0", prefix, i), alive)
		}
	}
	if o.Forgotten.Load() != 5 || len(o.servers) != 0 || len(o.held) != 0 || o.holds != 0 || bound.Used() != 0 ||
		bound.Most() < maxHeld*tokenBytes {
		t.Errorf("forgotten %d, left %d servers and %d robots, memory %v of at most %d bytes; want 5, 0, 0, none of "+
			"%d or more", o.Forgotten.Load(), len(o.servers), len(o.held), bound, bound.Most(), maxHeld*tokenBytes)
	}
	for _, key := range []string{"", prefix, prefix + "/server/alive", prefix + "/server/a/b/alive",
		prefix + "/arm/held/b/0/-1", prefix + "/arm/held/b/0", prefix + "/arm/held//0/1", "x/server/b/alive"} {
		o.OnToken(key, true)
	}
	if len(o.servers) != 0 || len(o.held) != 0 {
		t.Errorf("keys of nobody are known: %v, %v", o.servers, o.held)
	}
}

// The tokens of a node that declares very many get only a part of the memory. Servers whose tokens came before are
// kept, and a token that vanishes makes room for another.
func TestTokensAreCountedAsMemory(t *testing.T) {
	const limit = 4 << 20
	bound := memory.New(limit)
	o := New(prefix, "a", bound)
	key := func(i int) string { return fmt.Sprintf("%s/%s-%d/held/b/0/0", prefix, strings.Repeat("x", 100), i) }
	o.OnToken(wire.ReplicaAliveKey(prefix, "b"), true)
	const robots = 2000
	for i := range robots {
		o.OnToken(key(i), true)
	}
	if used := bound.Of(memory.Replicas); used > limit/memoryFraction || used < limit/memoryFraction-1000 ||
		o.Forgotten.Load() == 0 || o.holds+int(o.Forgotten.Load()) != robots {
		t.Errorf("%v, %d robots known, %d forgotten; want at most %d bytes and none lost", bound, o.holds,
			o.Forgotten.Load(), limit/memoryFraction)
	}
	if _, held := o.Holder(key(0)[len(prefix)+1 : len(key(0))-len("/held/b/0/0")]); !held {
		t.Error("the first robot is not known any more")
	}
	for i := range robots {
		o.OnToken(key(i), false)
	}
	o.OnToken(wire.ReplicaAliveKey(prefix, "b"), false)
	rttest.Want(t, bound.Used(), 0, "bytes in use without a server, of %v", bound)
	full := memory.New(limit)
	full.Take(memory.Sessions, limit)
	o = New(prefix, "a", full)
	if o.OnToken(key(0), true); o.holds != 0 || o.Forgotten.Load() != 1 {
		t.Errorf("%d known although there is no memory", o.holds)
	}
}
