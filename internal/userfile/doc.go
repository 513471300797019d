// Package userfile reads files that people write or name: of any kind, a device or a growing file
// included, up to a limit (read.go); as YAML in which unknown keys are errors and no text can end
// the program (yaml.go); at paths with a tilde or variables that no shell has expanded (path.go);
// with sizes such as 512MiB or 2GB (size.go). It finds the demo's files that were installed with the
// program (shipped.go).
package userfile
