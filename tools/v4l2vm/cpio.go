package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path"
)

// initramfs is an archive in the kernel's newc form, written without root or cpio.
//
// Source: Documentation/driver-api/early-userspace/buffer-format.rst.
type initramfs struct {
	archive bytes.Buffer
	ino     int
	dirs    map[string]bool
}

// The kinds of files, with their permissions.
const (
	kindDir     = 0o40755
	kindFile    = 0o100755
	kindConsole = 0o20600
)

func newInitramfs() *initramfs {
	a := &initramfs{dirs: map[string]bool{".": true, "/": true}}
	a.dir("dev")
	a.put("dev/console", kindConsole, 5, 1, nil)
	return a
}

func (a *initramfs) add(name string, content []byte) {
	a.dir(path.Dir(name))
	a.put(name, kindFile, 0, 0, content)
}

func (a *initramfs) addFile(name, from string) error {
	b, err := os.ReadFile(from)
	a.add(name, b)
	return err
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
	fmt.Fprintf(&a.archive, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name)+1, 0, name)
	a.pad()
	a.archive.Write(content)
	a.pad()
}

// pad fills up to four bytes.
func (a *initramfs) pad() { a.archive.Write(make([]byte, -a.archive.Len()&3)) }

func (a *initramfs) write(name string) error {
	a.put("TRAILER!!!", 0, 0, 0, nil)
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err == nil {
		_, err = a.archive.WriteTo(z)
		err = errors.Join(err, z.Close())
	}
	return errors.Join(err, f.Close())
}
