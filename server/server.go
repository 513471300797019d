// Package server serves one exported policy to many robots.
package server
