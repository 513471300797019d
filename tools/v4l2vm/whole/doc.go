// Package whole holds one test: the whole edge on the kernel's test cameras, in
// the machine of `make test-v4l2-edge`. Arm, tick, two cameras, encoder and
// transport are real, and so is the server that decodes the pictures, for a policy
// that keeps the arm where it is.
package whole
