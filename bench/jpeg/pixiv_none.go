//go:build !pixiv

package jpeg

// withPixiv adds nothing: github.com/pixiv/go-libjpeg is measured where it is built
// in, go run -tags pixiv ./cmd/bench jpeg.
func withPixiv([]subject, Config, inputs) {}
