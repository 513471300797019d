package policy

import (
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// pi05Dir is a Pi0.5 of toy size (tools/export/tests/toy.py), which reads its task and its state as
// text.
const pi05Dir = "../testdata/pi05"

// A policy with a prompt reproduces LeRobot's golden sets. Its chunks depend on the task and on the state.
func TestPolicyThatReads(t *testing.T) {
	m := openModel(t, pi05Dir, Options{MaxBatch: 4})
	b := m.Bundle()
	chunk := func(task string, state ...float32) []float32 {
		t.Helper()
		prompt := rttest.Must(b.Text.Prompt(task))(t)
		clear(m.Image(0, 0))
		clear(m.Noise(0))
		copy(m.State(0), state)
		rttest.Do(t, prompt.Fill(m.Tokens(0), m.TokenMask(0), state))
		m.SetControls(0, b.Condition(&Conditioning{}, 0, 0, 0))
		rttest.Do(t, m.Run(1))
		return slices.Clone(m.ChunkModel(0))
	}
	pick := chunk("pick", 0, 0, 0, 0, 0, 0)
	if slices.Equal(pick, chunk("fold the towel", 0, 0, 0, 0, 0, 0)) {
		t.Error("two tasks give the same chunk")
	}
	if slices.Equal(pick, chunk("pick", 20, 0, 30, 0, 0, 0)) {
		t.Error("two states give the same chunk: they are not in the prompt")
	}
	if !slices.Equal(pick, chunk(" pick\n", 0, 0, 0, 0, 0, 0)) {
		t.Error("spaces around the task change the chunk")
	}
	rttest.NoAllocs(t, "a run allocates %v times, want 0", 20, func() {
		rttest.Do(t, m.Run(4))
	})
}
