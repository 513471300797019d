package policy

import "errors"

// Errors of this package. Each is wrapped with what was found, what was wanted
// and what to do about it.
var (
	// ErrNoRuntime: no usable ONNX Runtime library was found.
	ErrNoRuntime = errors.New("policy: no ONNX Runtime")

	// ErrBundle: the directory is not a bundle that this program can serve.
	ErrBundle = errors.New("policy: bad bundle")

	// ErrGolden: the graph does not reproduce its recorded outputs on this
	// machine, so it must not move a robot.
	ErrGolden = errors.New("policy: golden self-test failed")

	// ErrRun: ONNX Runtime refused or aborted an inference.
	ErrRun = errors.New("policy: inference failed")
)
