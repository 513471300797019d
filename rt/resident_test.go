package rt

import (
	"os"
	"testing"
)

func TestResidentSize(t *testing.T) {
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	if raced {
		t.Skip("the race detector's own memory comes and goes")
	}
	before := ResidentSize()
	block := make([]byte, 32<<20)
	for i := 0; i < len(block); i += os.Getpagesize() {
		block[i] = 1
	}
	if grown := ResidentSize() - before; before < 1<<20 || grown < 8<<20 {
		t.Errorf("ResidentSize = %d and %d more after touching %d bytes", before, grown, len(block))
	}
	if block[0] != 1 {
		t.Error("unreachable: keeps the block alive")
	}
}
