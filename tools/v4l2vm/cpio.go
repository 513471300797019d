package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
)

// initramfs writes an archive in the kernel's newc form, so that neither root nor
// cpio is needed.
//
// Source: Documentation/driver-api/early-userspace/buffer-format.rst.
type initramfs struct {
	file *os.File
	out  *gzip.Writer
	ino  int
	size int
	dirs map[string]bool
	err  error
}

// The kinds of files, with their permissions.
const (
	kindDir     = 0o40755
	kindFile    = 0o100755
	kindLink    = 0o120777
	kindConsole = 0o20600
)

func newInitramfs(name string) (*initramfs, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	a := &initramfs{file: f, out: z, dirs: map[string]bool{".": true, "/": true}, err: err}
	a.dir("dev")
	a.put("dev/console", kindConsole, 5, 1, nil)
	return a, nil
}

// add puts a file of the host, or text of ours, under a name.
func (a *initramfs) add(name string, content []byte) {
	a.dir(path.Dir(name))
	a.put(name, kindFile, 0, 0, content)
}

func (a *initramfs) addFile(name, from string) {
	b, err := os.ReadFile(from)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.add(name, b)
}

func (a *initramfs) dir(name string) {
	if a.dirs[name] {
		return
	}
	a.dirs[name] = true
	a.dir(path.Dir(name))
	a.put(name, kindDir, 0, 0, nil)
}

func (a *initramfs) put(name string, mode, major, minor int, content []byte) {
	a.ino++
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.ino, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name)+1, 0)
	a.write([]byte(header + name + "\x00"))
	a.write(content)
}

// write appends b and pads to four bytes.
func (a *initramfs) write(b []byte) {
	n, err := a.out.Write(b)
	a.size += n
	if err == nil && a.size%4 != 0 {
		n, err = io.WriteString(a.out, "\x00\x00\x00"[:4-a.size%4])
		a.size += n
	}
	if err != nil && a.err == nil {
		a.err = err
	}
}

func (a *initramfs) close() error {
	a.put("TRAILER!!!", 0, 0, 0, nil)
	for _, err := range []error{a.out.Close(), a.file.Close()} {
		if err != nil && a.err == nil {
			a.err = err
		}
	}
	return a.err
}
