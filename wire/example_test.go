package wire_test

import (
	"fmt"

	"github.com/edge-rt/edge-rt/wire"
)

// A robot sends an observation on its key, the header as attachment and the body as payload. The server parses both.
// The pictures of the parsed observation share the payload's memory.
func ExampleParseObservation() {
	key, err := wire.ObsKey("@lerobot/demo/main/default", "arm one")
	if err != nil {
		fmt.Println(err)
		return
	}
	attachment := wire.AppendHeader(nil, wire.Header{SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgObservation,
		SeqID: 7})
	payload := wire.AppendObservation(nil, &wire.Observation{
		State: []float32{10, -20}, Task: "pick up the cube",
		InferenceDelaySteps: 1,
		PrefixRobot:         wire.Matrix{Rows: 2, Cols: 2, Data: []float32{11, -20, 12, -20}},
	})

	header, err := wire.ParseHeader(attachment)
	if err != nil {
		fmt.Println(err)
		return
	}
	var o wire.Observation
	if err := wire.ParseObservation(&o, payload); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(key)
	fmt.Printf("%v %d: state %v, task %q\n", header.MsgType, header.SeqID, o.State, o.Task)
	fmt.Printf("%d of the next %d actions will have run: %v\n", o.InferenceDelaySteps, o.PrefixRobot.Rows,
		o.PrefixRobot.Data)
	// Output:
	// @lerobot/demo/main/default/arm-one/obs
	// OBS 7: state [10 -20], task "pick up the cube"
	// 1 of the next 2 actions will have run: [11 -20 12 -20]
}
