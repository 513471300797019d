package bench

import (
	"math/rand/v2"

	"github.com/edge-rt/edge-rt/policy"
)

// FillRows fills the first n rows of a model with random pictures and noise, and with a request that
// has these controls.
func FillRows(m *policy.Model, n int, controls policy.Controls) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		for cam := range m.Bundle().Cameras {
			picture := m.Image(i, cam)
			for k := range picture {
				picture[k] = byte(random.Uint32())
			}
		}
		for k := range m.Tokens(i) {
			m.Tokens(i)[k], m.TokenMask(i)[k] = 1, true
		}
		policy.FillNoise(m.Noise(i), 0, uint64(i))
		m.SetControls(i, controls)
	}
}
