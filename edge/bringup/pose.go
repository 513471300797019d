package bringup

import (
	"strings"

	"edgert/servo/robot"
)

// armPose is the middle pose of an arm whose joints are an SO-100's or a Koch's.
const armPose = `The middle pose, seen from the side:

     elbow_flex
         O==========O====-<    gripper half open
        //      wrist_flex     (wrist_roll: the jaws as they are for grasping from above)
       //
      O  shoulder_lift
      |
   ===O===  shoulder_pan: straight ahead
`

// middlePose draws where every joint shall be, or says so for an arm of another kind.
func middlePose(r robot.Robot) string {
	const joints = "shoulder_pan shoulder_lift elbow_flex wrist_flex wrist_roll gripper"
	var names []string
	for _, m := range r.Motors {
		names = append(names, m.Name)
	}
	if strings.Join(names, " ") == joints {
		return armPose
	}
	return "The middle pose: every joint half way between its two ends."
}
