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

// ParseSize reads a size such as 512MiB or 1.5 GB and returns it in bytes. The parameter names has the permitted units.
// ok is false for any other text.
func ParseSize(text string, names ...string) (bytes float64, ok bool) {
	for _, name := range names {
		if number, found := strings.CutSuffix(text, name); found {
			number = strings.TrimSpace(number)
			n, err := strconv.ParseFloat(number, 64)
			plain := strings.Trim(number, "-.0123456789") == "" // not 5_12, 0x2p3, 1e3 or inf
			return n * units[name], err == nil && plain
		}
	}
	return 0, false
}
