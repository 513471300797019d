package timeline

import (
	_ "embed"

	"edgert/internal/webpage"
)

var (
	//go:embed draw.js
	drawJS []byte
	//go:embed timeline.css
	drawCSS []byte
)

// Compose puts what draws a time line where a page says timeline.css and draw.js in
// comments, and what all pages share.
func Compose(page []byte) []byte {
	page = webpage.Insert(page, "/* timeline.css */", drawCSS)
	return webpage.Compose(webpage.Insert(page, "/* draw.js */", drawJS))
}
