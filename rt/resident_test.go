package rt

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestResidentSize(t *testing.T) {
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	if raced {
		t.Skip("the race detector's own memory comes and goes")
	}
	before := ResidentSize()
	// fresh memory that was never touched
	block, err := unix.Mmap(-1, 0, 32<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(block)
	for i := 0; i < len(block); i += os.Getpagesize() {
		block[i] = 1
	}
	if grown := ResidentSize() - before; before < 1<<20 || grown < 8<<20 {
		t.Errorf("ResidentSize = %d and %d more after touching %d bytes", before, grown, len(block))
	}
}
