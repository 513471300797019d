// Package why names the causes of the faults of a run: from its record alone, and also from the
// server's audit file if there is one (docs/lab/why.md).
//
//	why.go      lists the causes with their sentences, which docs/lab/why.md explains
//	log.go      extracts from a record's messages the data that a cause may need: a Log
//	explain.go  derives Findings from a Log: stutters, holds, overruns, jumps, warnings, the exit
//	stutter.go  tests the causes of a stutter in one order; further causes that fit are mentioned
//	session.go  the end of a session, and the fate of the request whose answer was missing
//	slow.go     policies that take longer than their chunks last, or than a limit of the run
//	audit.go    reads the server's lines about this robot's requests
//	latency.go  measures the stages from a picture to the motors
//	report.go   finds files and times of day, and prints the findings
//
// The way from a Log to its Findings is a pure function.
package why

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Kind classifies a fault by its effect.
type Kind string

// The kinds.
const (
	Stutter Kind = "stutter" // ticks on which an action was due and no action was left
	Stale   Kind = "stale"   // ticks on which an action was due and all actions were too old
	Hold    Kind = "hold"    // the arm, or a joint, kept its position
	Overrun Kind = "overrun" // ticks that took too long, or did not run
	Jump    Kind = "jump"    // an action far from the previous one
	Warning Kind = "warning" // a fault without an effect on the arm so far
	Exit    Kind = "exit"    // an end that no operator requested
)

// kinds lists all kinds.
var kinds = []Kind{Stutter, Stale, Hold, Overrun, Jump, Warning, Exit}

// Cause is the cause of a fault. Scripts rely on the words.
type Cause string

// The causes. Variable causes describes each in a sentence.
const (
	LinkLost       Cause = "link-lost"
	LinkSilent     Cause = "link-silent"
	ServerGone     Cause = "server-gone"
	ServerDraining Cause = "server-draining"
	ServerFull     Cause = "server-full"
	ServerRefuses  Cause = "server-refuses"
	ModelChange    Cause = "model-change"
	ServerFailed   Cause = "server-failed"
	ServerQueue    Cause = "server-queue"
	ServerSlow     Cause = "server-slow"
	SlowPolicy     Cause = "slow-policy"
	SessionClosed  Cause = "session-closed"
	SameID         Cause = "same-id"
	Lost           Cause = "lost"
	LostThere      Cause = "observation-lost"
	LostBack       Cause = "answer-lost"
	Superseded     Cause = "superseded"
	NetworkSlow    Cause = "network-slow"
	BadChunk       Cause = "bad-chunk"
	StrangeAnswers Cause = "strange-answers"

	SenderSlow   Cause = "sender-slow"
	NotSent      Cause = "not-sent"
	Schedule     Cause = "schedule"
	ActionTooOld Cause = "action-too-old"
	NoPicture    Cause = "no-picture"
	CameraSilent Cause = "camera-silent"
	CameraSpoilt Cause = "camera-spoilt"
	NewEpisode   Cause = "new-episode"
	Between      Cause = "between-episodes"
	Paused       Cause = "paused"
	HandOver     Cause = "hand-over"
	LeaderSilent Cause = "leader-silent"
	LeaderJoint  Cause = "leader-joint"

	MotorSilent   Cause = "motor-silent"
	BusSilent     Cause = "bus-silent"
	Unplugged     Cause = "arm-unplugged"
	Restarted     Cause = "motor-restarted"
	HeatOrSupply  Cause = "heat-or-supply"
	Supply        Cause = "supply"
	HeldJoints    Cause = "held-joints"
	Overload      Cause = "overload"
	Stalled       Cause = "stalled"
	Encoder       Cause = "encoder"
	PositionJump  Cause = "position-jump"
	FirstRun      Cause = "first-run"
	Limp          Cause = "limp"
	OutsideRange  Cause = "outside-range"
	RepliesLost   Cause = "replies-lost"
	RepliesSpoilt Cause = "replies-spoilt"

	Suspended   Cause = "suspended"
	HostSteal   Cause = "host-steal"
	MachineBusy Cause = "machine-busy"
	TickSlow    Cause = "tick-slow"
	BusSlow     Cause = "bus-slow"
	TickHung    Cause = "tick-hung"

	Unconditioned Cause = "unconditioned"
	LateMerge     Cause = "late-merge"
	PolicyJump    Cause = "policy-jump"

	Killed    Cause = "killed"
	Failure   Cause = "failure"
	BadConfig Cause = "config"
	RealTime  Cause = "real-time-refused"
	Unknown   Cause = "unknown"
)

// causes lists all causes with their descriptions, in the order of docs/lab/why.md.
var causes = []struct {
	Cause
	Description string
}{
	{LinkLost, "the connection to the server or router broke, and the same server was reachable afterwards"},
	{LinkSilent,
		"no answer came back any more: the line is cut, or the server hangs; from the robot both look the same"},
	{ServerGone, "the server's process ended"},
	{ServerDraining, "the server was going away and sent its robots elsewhere"},
	{ServerFull, "the server had no room for this robot"},
	{ServerRefuses, "the server refuses the contract: another model, or other joints, cameras or rates"},
	{ModelChange, "the run took another model of its service (--model-change episode)"},
	{ServerFailed, "the server received the observation and could not compute a chunk from it"},
	{ServerQueue, "the observation waited in the server's queue, for other robots' observations or for an earlier " +
		"one of this robot"},
	{ServerSlow, "the policy took long"},
	{SlowPolicy, "the policy always takes longer for a chunk than its actions last, or than a limit of the run " +
		"allows: the arm moves in steps, or not at all"},
	{SessionClosed, "the server ended the session, or no longer had it"},
	{SameID, "another robot runs under this name"},
	{Lost, "a message got lost: this request was never answered, while others were"},
	{LostThere, "the same, and the audit has no line of the request: it never reached the server"},
	{LostBack, "the same, and the audit has the answer: it got lost on the way back"},
	{Superseded, "the server passed the observation over for a newer one, which was answered too late"},
	{NetworkSlow, "the round trip through the network took long"},
	{BadChunk, "the answers held values that are not numbers, or did not have the agreed shape"},
	{StrangeAnswers, "answers came that belong to no request of this robot, or that could not be read"},
	{SenderSlow, "the observation left late: pictures, encoding or the threads beside the tick took long"},
	{NotSent, "the observation did not leave"},
	{Schedule, "the schedule requests a chunk when no action is left, and waits for the answer"},
	{ActionTooOld, "the actions left were older than --max-action-age"},
	{NoPicture, "a camera had not delivered its first picture, or no picture since the machine woke"},
	{CameraSilent, "a camera delivered no usable pictures"},
	{CameraSpoilt, "a camera's pictures have stray bytes or parts missing; they were used, or the ones before them"},
	{NewEpisode, "a new episode, or another task, began: the actions left were dropped"},
	{Between, "between two episodes of a data set the arm holds still"},
	{Paused, "an operator paused the run"},
	{HandOver, "the arm was handed over between policy and leader, or neither of them had it"},
	{LeaderSilent, "the leader arm did not answer while it led"},
	{LeaderJoint, "a joint of the leader did not lead, since its reading was outside its range, or jumped farther " +
		"than a hand can move: the follower's joint kept its goal"},
	{MotorSilent, "one motor did not answer: it is not driven, and no new chunk is requested"},
	{BusSilent, "several motors, or all, did not answer: no motor is driven"},
	{Unplugged, "the arm's adapter was away"},
	{Restarted, "a motor restarted, as after a loss of supply: an operator has to resume"},
	{HeatOrSupply, "a motor is too hot, or its supply too low or too high"},
	{Supply, "a motor's supply is out of its range: its joint keeps its goal"},
	{HeldJoints, "every joint kept its goal because the motors complained: nothing moved"},
	{Overload, "a motor is overloaded: its joint follows only goals that reduce the load"},
	{Stalled, "a joint works hard and does not move"},
	{Encoder, "a motor's encoder complains: its joint is not driven"},
	{PositionJump, "a joint's position jumped farther than the joint can move, and stayed: it passed the end of its " +
		"encoder's turn, or its encoder slipped; calibrate it again"},
	{FirstRun, "a bundle ran on this arm for the first time, and drove it slowly at first"},
	{Limp, "a joint had no torque for the rest of the run"},
	{OutsideRange, "the arm could not be armed, for example because a joint is outside its range"},
	{RepliesLost, "replies of motors get lost: cables, plugs, supply"},
	{RepliesSpoilt, "bytes on the bus are spoilt: cables, another sender, another speed"},
	{Suspended, "the machine was suspended"},
	{HostSteal, "the host of this virtual machine took its CPUs"},
	{MachineBusy, "the machine did not let the tick run: other programs, power saving, a process that was stopped"},
	{TickSlow, "the tick itself computed too long"},
	{BusSlow, "the tick waited too long for the bus"},
	{TickHung, "the tick hung"},
	{Unconditioned, "a chunk took over that was not conditioned on the actions before it: the schedule or the policy " +
		"does not condition chunks"},
	{LateMerge, "a chunk came later than announced, so that more actions ran than it was conditioned on"},
	{PolicyJump, "the policy itself jumped: its chunk was conditioned and in time"},
	{Killed, "the record breaks off: the process was killed, the power failed, or the disk accepted no more data"},
	{Failure, "the program broke"},
	{BadConfig, "something in the set-up is wrong, and another start without a change cannot help: the text names it"},
	{RealTime, "the kernel refused real time"},
	{Unknown, "the record does not hold the time before"},
}

// Evidence is one link in the chain of evidence.
type Evidence struct {
	At   rt.Instant
	Text string
}

// Finding is one fault.
type Finding struct {
	Kind     Kind
	Cause    Cause
	From, To rt.Instant
	Ticks    int        // affected ticks; 0: not counted in ticks
	What     string     // details in a few words, such as the joint's name
	Evidence []Evidence // in order of time
	Also     []Cause    // causes that also explain a part of the finding, or were present as well
}

func found(kind Kind, cause Cause, from, to rt.Instant, evidence ...Evidence) Finding {
	return Finding{
		Kind:     kind,
		Cause:    cause,
		From:     from,
		To:       to,
		Evidence: evidence,
	}
}

// Description returns the description of a cause; empty for an unknown cause.
func (c Cause) Description() string {
	for _, e := range causes {
		if e.Cause == c {
			return e.Description
		}
	}
	return ""
}

const (
	second      = rt.Instant(time.Second)
	millisecond = rt.Instant(time.Millisecond)
)
