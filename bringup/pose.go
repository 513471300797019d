package bringup

import (
	"strings"

	"github.com/edge-rt/edge-rt/servo/robot"
)

// armPose is the middle pose of an arm with the joints of an SO-100 or a Koch.
const armPose = `The middle pose, seen from the side:

     elbow_flex
         O==========O====-<    gripper half open
        //      wrist_flex     (wrist_roll: the jaws as they are for grasping from above)
       //
      O  shoulder_lift
      |
   ===O===  shoulder_pan: straight ahead
`

// middlePose returns a drawing of the middle pose, or a description for an arm of another kind.
func middlePose(r robot.Robot) string {
	const joints = "shoulder_pan shoulder_lift elbow_flex wrist_flex wrist_roll gripper"
	var names []string
	for j, m := range r.Motors {
		if !r.Wheels().Has(j) {
			names = append(names, strings.TrimPrefix(m.Name, "arm_"))
		}
	}
	if strings.Join(names, " ") == joints {
		return armPose
	}
	return "The middle pose: every joint half way between its two ends."
}
