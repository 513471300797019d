package lerobot

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/remote"
)

// Each part of a row begins at a multiple of rowAlign bytes, and each row at a multiple of strideAlign bytes.
const (
	rowAlign    = 64
	strideAlign = 4096
	// maxShared bounds the memory of all rows.
	maxShared = 16 << 30
)

// shared is the memory of all rows, which this process and the worker share.
type shared struct {
	memory []byte
	rows   []*remote.Row
	// chunks are the outputs in the shared memory. The worker writes them, and take copies them
	// after each run.
	chunks [][2][]float32
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }

// newFile returns an empty file in memory.
func newFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("lean-server-rows", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: shared memory: %w", policy.ErrMemory, err)
	}
	return os.NewFile(uintptr(fd), "rows"), nil
}

// newShared makes file large enough for the given number of rows and maps it.
func newShared(file *os.File, m *policy.Meta, rows int) (*shared, error) {
	sizes := make([]int, 0, len(m.Cameras)+4)
	for _, c := range m.Cameras {
		sizes = append(sizes, m.Steps()*c.Bytes())
	}
	chunk := 4 * m.ChunkSize * m.ActionDim
	sizes = append(sizes, 4*m.Steps()*len(m.StateNames), chunk, chunk, chunk)
	stride := 0
	for _, n := range sizes {
		stride += alignUp(n, rowAlign)
	}
	stride = alignUp(stride, strideAlign)
	if int64(stride)*int64(rows) > maxShared {
		return nil, fmt.Errorf("%w: %d rows of %d bytes, want at most %d in all", policy.ErrMemory, rows, stride,
			maxShared)
	}
	if err := file.Truncate(int64(stride * rows)); err != nil {
		return nil, fmt.Errorf("%w: %d bytes of shared memory: %w", policy.ErrMemory, stride*rows, err)
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, stride*rows, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("%w: %d bytes of shared memory: %w", policy.ErrMemory, stride*rows, err)
	}
	s := &shared{memory: memory}
	for i := range rows {
		s.add(m, s.memory[i*stride:][:stride], sizes)
	}
	return s, nil
}

// add adds a row that lies in memory. sizes holds the bytes of the row's parts.
func (s *shared) add(m *policy.Meta, memory []byte, sizes []int) {
	parts := make([][]byte, 0, len(sizes))
	for at := 0; len(parts) < len(sizes); {
		n := sizes[len(parts)]
		parts = append(parts, memory[at:at+n])
		at += alignUp(n, rowAlign)
	}
	cameras := len(m.Cameras)
	r := &remote.Row{
		Images:     parts[:cameras],
		State:      floats(parts[cameras]),
		Prefix:     floats(parts[cameras+1]),
		ChunkModel: make([]float32, m.ChunkSize*m.ActionDim),
		ChunkRobot: make([]float32, m.ChunkSize*m.ActionDim),
	}
	s.rows = append(s.rows, r)
	s.chunks = append(s.chunks, [2][]float32{floats(parts[cameras+2]), floats(parts[cameras+3])})
}

// take copies the chunk of row i out of the shared memory, so that no process of the policy can change it afterwards.
func (s *shared) take(i int) {
	copy(s.rows[i].ChunkModel, s.chunks[i][0])
	copy(s.rows[i].ChunkRobot, s.chunks[i][1])
}

// close unmaps the shared memory. No row may be used afterwards.
func (s *shared) close() error {
	if s == nil {
		return nil
	}
	return unix.Munmap(s.memory)
}

// floats returns memory as a slice of float32. memory must begin at a multiple of 64 bytes.
func floats(memory []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/4)
}
