package userfile

import (
	"strconv"
	"strings"
)

// units maps the unit names to their values in bytes.
var units = map[string]float64{
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
}

// ParseSize reads a size such as 512MiB and returns it in bytes. names are the permitted units. The
// number may have any form that strconv accepts; ok is false for any other text.
func ParseSize(text string, names ...string) (bytes float64, ok bool) {
	for _, name := range names {
		if number, found := strings.CutSuffix(text, name); found {
			n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			return n * units[name], err == nil
		}
	}
	return 0, false
}
