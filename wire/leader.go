package wire

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
)

// Limits and sizes of a leader's messages.
const (
	MaxLeaderJoints = 32 // bits of LeaderPose.Held

	leaderVersion  = 1
	leaderPoseSize = 68 // bytes before the joints
	leaderUseSize  = 52
)

// LeaderQoS is the QoS of LeaderPose and LeaderUse, of which only the newest matters.
var LeaderQoS = QoS{Priority: InteractiveHigh, Express: true}

// LeaderKey returns the prefix of the keys of the leader with this name, a slug.
func LeaderKey(name string) string { return "@edge-rt/leader/" + name }

// LeaderPoseKey is the key of a leader's poses.
func LeaderPoseKey(name string) string { return LeaderKey(name) + "/pose" }

// LeaderUseKey is the key on which a robot informs a leader that it uses that leader; "*" as the robot matches all
// robots.
func LeaderUseKey(name, robot string) string { return LeaderKey(name) + "/use/" + robot }

// LeaderAliveKey is the key of the token of a leader's process; "*" as the instance matches all processes.
func LeaderAliveKey(name, instance string) string { return LeaderKey(name) + "/alive/" + instance }

// Echo returns the newest stamp of a process to this process, which computes the round trip from the stamp and HeldUS.
// The message with the Echo was sent after the stamp, so it is no older than the stamp.
type Echo struct {
	Instance uint64 // Instance of the process that sent the stamp; 0: no stamp yet
	Stamp    uint64 // opaque
	HeldUS   uint32 // us from the stamp's arrival to this message
}

// LeaderPose is the newest pose of a leader arm on another machine.
type LeaderPose struct {
	Answers  bool   // whether the arm answers; if not, the pose is old
	Stiff    bool   // the torque of the leader arm may be on
	Instance uint64 // random for each process, not 0
	Seq      uint64 // grows with each message
	Joints   uint64 // LeaderJoints of the leader arm
	Stamp    uint64 // opaque to the robot
	AgeUS    uint32 // us since the pose was measured
	Held     uint32 // bit set of the joints that do not lead
	Echo     Echo   // echo of the stamp of the robot that uses the leader
	Place    []float32
}

// LeaderUse informs a leader that a robot uses it.
type LeaderUse struct {
	Drives   bool   // the robot follows now
	Instance uint64 // random for each process, not 0
	Seq      uint64 // grows with each message
	Stamp    uint64 // opaque to the leader
	Echo     Echo   // echo of the leader's stamp
}

// LeaderJoints returns a hash of the names and units of an arm's joints, in their order. An arm cannot lead an arm with
// another hash.
func LeaderJoints(names, units []string) uint64 {
	h := fnv.New64a()
	for i := range names {
		fmt.Fprintf(h, "%s\x00%s\x00", names[i], units[i])
	}
	return h.Sum64()
}

// AppendLeaderPose appends a pose of at most MaxLeaderJoints.
//
//rt:noalloc
func AppendLeaderPose(dst []byte, p *LeaderPose) []byte {
	dst = append(dst, 'L', 'P', 'O', 'S', leaderVersion, flags(p.Answers, p.Stiff), byte(len(p.Place)), 0)
	dst = binary.LittleEndian.AppendUint64(dst, p.Instance)
	dst = binary.LittleEndian.AppendUint64(dst, p.Seq)
	dst = binary.LittleEndian.AppendUint64(dst, p.Joints)
	dst = binary.LittleEndian.AppendUint64(dst, p.Stamp)
	dst = binary.LittleEndian.AppendUint32(dst, p.AgeUS)
	dst = binary.LittleEndian.AppendUint32(dst, p.Held)
	dst = appendEcho(dst, &p.Echo)
	for _, v := range p.Place {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

// ParseLeaderPose reads a pose into *p, and reuses the memory of p.Place. It returns ErrMalformed for bytes that are
// not a pose.
//
//rt:noalloc
func ParseLeaderPose(p *LeaderPose, src []byte) error {
	n := len(src) - leaderPoseSize
	if n < 4 || n%4 != 0 || n/4 > MaxLeaderJoints || string(src[:4]) != "LPOS" || src[4] != leaderVersion ||
		src[5] > 3 || int(src[6]) != n/4 || src[7] != 0 {
		return ErrMalformed
	}
	p.Answers, p.Stiff = src[5]&1 != 0, src[5]&2 != 0
	p.Instance = binary.LittleEndian.Uint64(src[8:])
	p.Seq = binary.LittleEndian.Uint64(src[16:])
	p.Joints = binary.LittleEndian.Uint64(src[24:])
	p.Stamp = binary.LittleEndian.Uint64(src[32:])
	p.AgeUS = binary.LittleEndian.Uint32(src[40:])
	p.Held = binary.LittleEndian.Uint32(src[44:])
	parseEcho(&p.Echo, src[48:])
	p.Place = p.Place[:0]
	for at := leaderPoseSize; at < len(src); at += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(src[at:]))
		if v != v || v > math.MaxFloat32 || v < -math.MaxFloat32 {
			return ErrMalformed
		}
		p.Place = append(p.Place, v)
	}
	if p.Instance == 0 || p.Held>>(n/4) != 0 {
		return ErrMalformed
	}
	return nil
}

// AppendLeaderUse appends u.
//
//rt:noalloc
func AppendLeaderUse(dst []byte, u *LeaderUse) []byte {
	dst = append(dst, 'L', 'U', 'S', 'E', leaderVersion, flags(u.Drives, false), 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, u.Instance)
	dst = binary.LittleEndian.AppendUint64(dst, u.Seq)
	dst = binary.LittleEndian.AppendUint64(dst, u.Stamp)
	return appendEcho(dst, &u.Echo)
}

// ParseLeaderUse reads a message into *u. It refuses other bytes with ErrMalformed.
//
//rt:noalloc
func ParseLeaderUse(u *LeaderUse, src []byte) error {
	if len(src) != leaderUseSize || string(src[:4]) != "LUSE" || src[4] != leaderVersion || src[5] > 1 ||
		src[6] != 0 || src[7] != 0 {
		return ErrMalformed
	}
	u.Drives = src[5] != 0
	u.Instance = binary.LittleEndian.Uint64(src[8:])
	u.Seq = binary.LittleEndian.Uint64(src[16:])
	u.Stamp = binary.LittleEndian.Uint64(src[24:])
	parseEcho(&u.Echo, src[32:])
	if u.Instance == 0 {
		return ErrMalformed
	}
	return nil
}

//rt:noalloc
func flags(first, second bool) (b byte) {
	if first {
		b |= 1
	}
	if second {
		b |= 2
	}
	return b
}

//rt:noalloc
func appendEcho(dst []byte, e *Echo) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, e.Instance)
	dst = binary.LittleEndian.AppendUint64(dst, e.Stamp)
	return binary.LittleEndian.AppendUint32(dst, e.HeldUS)
}

//rt:noalloc
func parseEcho(e *Echo, src []byte) {
	e.Instance = binary.LittleEndian.Uint64(src)
	e.Stamp = binary.LittleEndian.Uint64(src[8:])
	e.HeldUS = binary.LittleEndian.Uint32(src[16:])
}
