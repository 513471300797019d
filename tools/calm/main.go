// Calm waits until the host of this virtual machine leaves its processors alone, so that the next
// measurement is about the program and not about its neighbours. It always succeeds: after the
// limit, the caller tries its luck.
package main

import (
	"flag"
	"fmt"
	"time"

	"edgert/tools/proc"
)

func main() {
	limit := flag.Duration("limit", time.Minute, "longest wait")
	flag.Parse()
	began := time.Now()
	switch calm := proc.Calm(*limit); {
	case !calm:
		fmt.Printf("the host still takes this machine's processors after %v\n", *limit)
	case time.Since(began) > *limit/4:
		fmt.Printf("waited %v for the host\n", time.Since(began).Round(time.Second))
	}
}
