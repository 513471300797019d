package policy

import "errors"

// Errors of this package. The functions wrap them with the found value, the expected value and the cure.
var (
	// ErrNoRuntime: no usable ONNX Runtime library was found.
	ErrNoRuntime = errors.New("policy: no ONNX Runtime")

	// ErrBundle: the directory is not a bundle that this program can serve.
	ErrBundle = errors.New("policy: bad bundle")

	// ErrGolden: the graph does not reproduce its recorded outputs on this
	// machine, so it must not move a robot.
	ErrGolden = errors.New("policy: golden self-test failed")

	// ErrNoProvider: a part that the device needs is not installed.
	ErrNoProvider = errors.New("policy: no GPU provider")

	// ErrNoDevice: the device is absent or does not answer.
	ErrNoDevice = errors.New("policy: no such device")

	// ErrMemory: the device, or the host, has too little memory for an inference.
	ErrMemory = errors.New("policy: out of memory")

	// ErrAway: the program that computes the policy does not answer now. The present requests fail. The server starts
	// or calls the program again, so later requests may succeed.
	ErrAway = errors.New("policy: not there")

	// ErrRun: ONNX Runtime refused or aborted an inference.
	ErrRun = errors.New("policy: inference failed")
)
