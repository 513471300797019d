// Package strictyaml reads YAML that people write: unknown keys are refused, and
// no text can end the program.
package strictyaml

import (
	"fmt"

	"github.com/goccy/go-yaml"
)

// Decode reads data into dst, a pointer. The module panics on some tags, such as
// a sequence's on what is none; that is an error like any other.
func Decode(data []byte, dst any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("no YAML: %v", p)
		}
	}()
	return yaml.UnmarshalWithOptions(data, dst, yaml.Strict())
}
