//go:build !pixiv

package jpeg

// withPixiv adds nothing without the tag: go run -tags pixiv ./cmd/bench jpeg.
func withPixiv([]subject, Config, inputs) {}
