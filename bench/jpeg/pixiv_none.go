//go:build !pixiv

package jpeg

// withPixiv adds nothing: only a build with the tag has go-libjpeg (go run -tags pixiv ./cmd/bench jpeg).
func withPixiv([]subject, Config, inputs) {}
