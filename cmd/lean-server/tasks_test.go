package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/policy/safetensors"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire"
)

// instructed is one row of a golden set: a robot's picture and state, its task, and the tokens that
// LeRobot's own processors made of them.
type instructed struct {
	task    string
	picture []byte
	state   []float32
	tokens  []int64
	mask    []bool
}

// readInstructed reads a golden set of a Pi0.5, whose rows alternate between two tasks.
func readInstructed(t *testing.T, bundle *policy.Bundle) (rows []instructed) {
	t.Helper()
	file := rttest.Must(os.ReadFile(filepath.Join(bundle.Dir, "golden", "b4_plain.safetensors")))(t)
	tasks, tensors, err := safetensors.Parse(file)
	rttest.Do(t, err)
	picture, state := tensors["in/image."+bundle.Cameras[0].Name], tensors["in/state"]
	tokens, mask := tensors["in/tokens"], tensors["in/token_mask"]
	for i := range int(state.Shape[0]) {
		rows = append(rows, instructed{
			task:    tasks[fmt.Sprintf("task%d", i)],
			picture: part(picture.Data, picture.Shape, i),
			state:   part(safetensors.Values[float32](state), state.Shape, i),
			tokens:  part(safetensors.Values[int64](tokens), tokens.Shape, i),
			mask:    part(safetensors.Values[bool](mask), mask.Shape, i),
		})
	}
	return rows
}

func part[T any](all []T, shape []int64, i int) []T {
	n := len(all) / int(shape[0])
	return all[i*n : (i+1)*n]
}

// Goal: two robots at one real server have different tasks. Every chunk is the policy's result for the tokens that
// LeRobot makes of the requesting robot's task, even after one robot gets the other's task.
func TestTwoRobotsWithTwoTasks(t *testing.T) {
	stagetest.NeedsRuntime(t)
	dir := rttest.Must(filepath.Abs("../../testdata/pi05"))(t)
	bundle := rttest.Must(policy.LoadBundle(dir))(t)
	rows := readInstructed(t, bundle)
	if len(rows) != 4 || rows[0].task == rows[1].task || rows[0].task != rows[2].task || rows[1].task != rows[3].task ||
		rows[0].task == "" {
		t.Fatalf("the golden set has the tasks of %d rows otherwise than this test", len(rows))
	}
	model := rttest.Must(bundle.Open(policy.Options{MaxBatch: 1, IntraThreads: 1}))(t)
	defer model.Close()
	// want returns the policy's chunk for a robot with the picture and state of seen and the task of told.
	want := func(uuid string, seq uint64, seen, told *instructed) []float32 {
		t.Helper()
		copy(model.Image(0, 0), seen.picture)
		copy(model.State(0), seen.state)
		copy(model.Tokens(0), told.tokens)
		copy(model.TokenMask(0), told.mask)
		policy.FillNoise(model.Noise(0), policy.NewNoiseKey(bundle.SHA256, uuid), seq)
		model.SetControls(0, bundle.Condition(&policy.Conditioning{}, 0, 0, 0))
		rttest.Do(t, model.Run(1))
		return append([]float32(nil), model.ChunkRobot(0)...)
	}
	// The test can only detect a wrong task if the policy's chunks for the two tasks differ.
	if d := furthest(want("arm-0", 1, &rows[0], &rows[0]),
		want("arm-0", 1, &rows[0], &rows[1])); d < 100*bundle.GoldenTol.ChunkRobot {
		t.Fatalf("another task moves the chunk by %g only", d)
	}

	r, network, prefix := serve(t, "--manifest", writeManifest(t,
		fmt.Sprintf("model: {repo_or_path: %q, id: toy/pi05}\n", dir)))
	var arms [2]*arm
	for i := range arms {
		open := stage.OpenOf(&bundle.Meta, fmt.Sprintf("arm-%d", i))
		open.Task = rows[i].task
		arms[i] = joinArm(t, network, open, bundle.ChunkSize)
	}
	const rounds, change = 20, 10
	camera := bundle.Cameras[0]
	for seq := uint64(1); seq <= rounds; seq++ {
		var seen [2]*instructed
		for _, i := range []int{1, 0} {
			a, told := arms[i], i
			if i == 0 && seq >= change {
				if seq == change { // arm-1 waits for its chunk meanwhile
					reset(t, network, prefix, "arm-0", rows[1].task)
					a.Header.EpisodeID++
				}
				told, a.Observation.Task = 1, rows[1].task
			}
			seen[i] = &rows[told+2*int(seq%2)] // one of the two rows with the present task
			a.Observation.State = seen[i].state
			a.Observation.Images = []wire.Image{{
				Name:  "observation.images.top",
				Codec: wire.Raw,
				H:     camera.H,
				W:     camera.W,
				C:     3,
				Data:  seen[i].picture,
			}}
			a.send()
		}
		for i, a := range arms {
			got := a.answer().ChunkRobot.Data
			if d := furthest(got,
				want(fmt.Sprintf("arm-%d", i), seq, seen[i], seen[i])); !(d <= bundle.GoldenTol.ChunkRobot) {
				t.Errorf("round %d: the chunk of arm-%d is %g away from the one of its task %q", seq, i, d,
					seen[i].task)
			}
		}
	}
	if s := r.stop(syscall.SIGTERM); s.Requests != 2*rounds || s.Errors != 0 {
		t.Errorf("%d requests and %d errors, want %d and none", s.Requests, s.Errors, 2*rounds)
	}
}

// reset begins an episode with another task.
func reset(t *testing.T, network wire.Session, prefix, uuid, task string) {
	t.Helper()
	key := rttest.Must(wire.ResetKey(prefix, uuid))(t)
	var ack wire.ResetAck
	replies, err := network.Get(t.Context(), key, wire.Append(nil, &wire.Reset{ClientUUID: uuid, Task: task}), patience)
	if err != nil || len(replies) != 1 || wire.Parse(&ack, replies[0].Payload) != nil || !ack.OK {
		t.Fatalf("reset with another task: %v, %v, %+v", replies, err, ack)
	}
}

// furthest returns the largest difference of two chunks.
func furthest(a, b []float32) (d float64) {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		d = math.Max(d, math.Abs(float64(a[i])-float64(b[i]))) // NaN stays
	}
	return d
}
