// Command house measures the source tree as a newcomer meets it: its size in tokens of Go's own scanner, on which line
// breaks have no effect, the lengths of its functions, its widest lines and assignments, its exported names and the
// sleeps in its tests. Beside each row are the figures of well-known projects and of this one at 6f2a5d5, counted the
// same way.
//
//	go run ./tools/house             # the whole tree
//	go run ./tools/house -packages   # tokens by package
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/edge-rt/edge-rt/tools/house/count"
)

const screen = 70 // lines of a function

func main() {
	root := flag.String("root", ".", "folder of the tree")
	packages := flag.Bool("packages", false, "print the tokens of each package")
	flag.Parse()
	all, err := count.Packages(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if *packages {
		printPackages(all)
		return
	}
	printTree(all)
}

// others are the figures of other projects and of this project at an earlier commit, in the order of
// printTree's columns.
var others = [][]string{
	{"wireguard-go f333402", "77", "13,792", "", "", "10/50", "4.5 %", "0.7 %", "rare", "35", "14"},
	{"bbolt 4e65d8f", "75", "11,500", "", "", "8/37", "1.5 %", "0.7 %", "15", "33", "11"},
	{"mediamtx 3e09466", "319", "47,098", "", "", "11/54", "6.6 %", "0.1 %", "rare", "19", "66"},
	{"here at 6f2a5d5", "606", "99,977", "676,171", "706,060", "9/26", "0", "2.1 %", "247", "28", "53"},
}

func printTree(all map[string]*count.Figures) {
	c := count.Sum(all)
	over := 0
	for _, n := range c.Functions {
		if n > screen {
			over++
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "tree\tfiles\tlines\ttokens\tin tests\tfunctions p50/p90\tover 70 lines\tlines over 120\t"+
		"assignments of 3\texported/1,000 lines\tsleeps in tests\t")
	for _, row := range others {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	half, most := c.Functions[len(c.Functions)/2], c.Functions[len(c.Functions)*9/10]
	fmt.Fprintf(w, "here\t%d\t%d\t%d\t%d\t%d/%d\t%d\t%.1f %%\t%d\t%d\t%d\t\n", c.Files, c.Lines, c.Tokens, c.TestTokens,
		half, most, over, 100*float64(c.Long)/float64(c.CodeLines), c.Assignments, 1000*c.Exported/c.Lines, c.Sleeps)
}

func printPackages(all map[string]*count.Figures) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "package\ttokens\tin tests\t")
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(w, "%s\t%d\t%d\t\n", dir, all[dir].Tokens, all[dir].TestTokens)
	}
	total := count.Sum(all)
	fmt.Fprintf(w, "all\t%d\t%d\t\n", total.Tokens, total.TestTokens)
}
