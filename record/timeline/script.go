package timeline

import (
	_ "embed"

	"github.com/edge-rt/edge-rt/internal/webpage"
)

var (
	//go:embed draw.js
	drawJS []byte
	//go:embed timeline.css
	drawCSS []byte
)

// Compose inserts the timeline's script and styles into a page, in place of the comments draw.js and timeline.css. It
// also inserts the parts that all pages share.
func Compose(page []byte) []byte {
	page = webpage.Insert(page, "/* timeline.css */", drawCSS)
	return webpage.Compose(webpage.Insert(page, "/* draw.js */", drawJS))
}
