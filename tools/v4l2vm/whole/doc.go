// Package whole contains the test of `make test-v4l2 V4L2=--whole`: the whole edge on the kernel's test
// cameras, with a server that decodes the pictures and keeps the arm in place.
package whole
