package edge

import "github.com/edge-rt/edge-rt/edge/follow"

// mode determines the source of the arm's motion. The tick changes it by the table modes.
// The first four modes are the phases of a take-over. autonomous, paused and correcting have the
// names of phases of LeRobot's DAgger strategy; in aligning, a part of LeRobot's PAUSED, the leader
// is brought to the follower.
type mode uint8

const (
	autonomous mode = iota // the policy drives
	paused                 // the arm holds
	aligning               // the arm holds while the leader moves to the follower's pose
	correcting             // a person drives, with the leader
	resting                // the arm rests between two episodes
	ending                 // an arm under torque parks, as --on-exit selects
	numModes
)

var modeNames = [numModes]string{"autonomous", "paused", "aligning", "correcting", "resting", "ending"}

func (m mode) String() string { return modeNames[m] }

// request is the strongest request of a tick: a constant takes precedence over the constants above
// it in the list.
type request uint8

const (
	goOn   request = iota // no other request
	breaks                // the break between two episodes
	align                 // a person takes over, and the leader must come to the follower first
	lead                  // a person takes over, and the leader is limp at its place
	giveUp                // the leader cannot come to the follower
	stop                  // an operator pauses the run, or a motor has restarted
	end                   // the run ends as requested, or has given up
	numRequests
)

// effect is a set of effects of a transition.
type effect uint8

const (
	takeOver effect = 1 << iota // the take-over is counted, and the leader gets an order
	restart                     // actions that were planned or requested before the transition do not run
	slowly                      // the arm starts slowly
	consent                     // motors that have restarted may be armed
	latch                       // the pause lasts until an operator resumes the run
)

const (
	begins = takeOver | restart | slowly
	gives  = restart | slowly
)

// transition is the next mode, with the effects of the change.
type transition struct {
	to mode
	do effect
}

var modes = [numModes][numRequests]transition{
	autonomous: {
		goOn:   {autonomous, 0},
		breaks: {resting, 0},
		align:  {aligning, begins},
		lead:   {correcting, begins},
		giveUp: {autonomous, 0},
		stop:   {paused, 0},
		end:    {ending, 0},
	},
	paused: {
		goOn:   {autonomous, consent},
		breaks: {resting, consent},
		align:  {aligning, consent | begins},
		lead:   {correcting, consent | begins},
		giveUp: {paused, 0},
		stop:   {paused, 0},
		end:    {ending, 0},
	},
	aligning: {
		goOn:   {autonomous, 0},
		breaks: {resting, 0},
		align:  {aligning, 0},
		lead:   {correcting, slowly},
		giveUp: {paused, latch},
		stop:   {paused, 0},
		end:    {ending, 0},
	},
	correcting: {
		goOn:   {autonomous, gives},
		breaks: {resting, gives},
		align:  {correcting, 0},
		lead:   {correcting, 0},
		giveUp: {correcting, 0},
		stop:   {paused, gives},
		end:    {ending, gives},
	},
	resting: {
		goOn:   {autonomous, 0},
		breaks: {resting, 0},
		align:  {aligning, begins},
		lead:   {correcting, begins},
		giveUp: {resting, 0},
		stop:   {paused, 0},
		end:    {ending, 0},
	},
	ending: {
		goOn:   {ending, 0},
		breaks: {ending, 0},
		align:  {ending, 0},
		lead:   {ending, 0},
		giveUp: {ending, 0},
		stop:   {ending, 0},
		end:    {ending, 0},
	},
}

// source is the only source of goals in a tick.
type source uint8

const (
	nothing source = iota // no goal is sent: motors under torque hold
	arming                // goal := present, torque on
	policy
	person // the person at the leader
	home   // the pose of the first arming, between two episodes of --strategy episodic; then the arm holds
	park   // the pose of the first arming, then torque off
)

// sources has the source of goals for each mode and phase of the arm. The arming begins only in two
// modes: in autonomous at a merged chunk, and in correcting at a pose of the leader. The other
// modes cancel an arming as long as no joint has torque.
var sources = [numModes][follow.Done + 1]source{
	autonomous: {follow.Arming: arming, follow.Armed: policy},
	paused:     {follow.Arming: arming},
	aligning:   {follow.Arming: arming},
	correcting: {follow.Arming: arming, follow.Armed: person},
	resting:    {follow.Arming: arming, follow.Armed: home},
	ending:     {follow.Parking: park},
}

// drives returns the source that drives an armed arm.
//
//rt:noalloc
func (m mode) drives() source { return sources[m][follow.Armed] }
