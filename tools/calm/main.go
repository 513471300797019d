// Calm waits until the host of this virtual machine leaves its processors alone, so that the next
// measurement shows the program and not the host's other machines. Calm always succeeds: after the
// time limit the caller may measure, too.
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

func main() {
	limit := flag.Duration("limit", time.Minute, "longest wait")
	flag.Parse()
	began := time.Now()
	switch calm := stage.Calm(*limit); {
	case !calm:
		fmt.Printf("the host still takes this machine's processors after %v\n", *limit)
	case time.Since(began) > *limit/4:
		fmt.Printf("waited %v for the host\n", time.Since(began).Round(time.Second))
	}
}
