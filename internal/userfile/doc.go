// Package userfile reads files that people write or name. It reads a file of any kind up to a limit,
// also a device or a file that grows (read.go). It reads YAML, in which unknown keys are errors and
// no text can end the program (yaml.go). It expands a tilde or variables in paths where no shell
// does (path.go), and reads sizes such as 512MiB or 2GB (size.go). It finds the demo's files that
// were installed with the program (shipped.go).
package userfile
