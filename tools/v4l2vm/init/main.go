//go:build linux

// Init is the first process of the machine that tools/v4l2vm boots: it loads the modules in
// /mods/order, runs the lines of /tests one after the other, prints the result, and turns the
// machine off.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	mount()
	ok := modules()
	for range 100 {
		if _, err := os.Stat("/dev/video1"); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	var u unix.Utsname
	unix.Uname(&u)
	fmt.Printf("MACHINE %s %s, up %s s\n", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]),
		uptime())
	f, err := os.Open("/tests")
	ok = ok && err == nil
	for lines := bufio.NewScanner(f); lines.Scan(); {
		ok = test(lines.Text()) && ok
	}
	verdict := "FAIL"
	if ok {
		verdict = "PASS"
	}
	fmt.Printf("MACHINE %s, up %s s\n", verdict, uptime())
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func mount() {
	for _, d := range []string{"/proc", "/sys", "/dev", "/tmp", "/dev/pts", "/run"} {
		os.MkdirAll(d, 0o755)
	}
	unix.Mount("devtmpfs", "/dev", "devtmpfs", 0, "")
	os.MkdirAll("/dev/pts", 0o755)
	unix.Mount("devpts", "/dev/pts", "devpts", 0, "ptmxmode=666")
	unix.Mount("proc", "/proc", "proc", 0, "")
	unix.Mount("sysfs", "/sys", "sysfs", 0, "")
	if fd, err := unix.Open("/dev/console", unix.O_RDWR, 0); err == nil {
		for std := range 3 {
			unix.Dup3(fd, std, 0)
		}
	}
	loopbackUp()
	os.Setenv("PATH", "/")
	os.Setenv("HOME", "/tmp")
	os.Setenv("EDGERT_V4L2_MACHINE", "1")
}

// loopbackUp turns on the network interface over which the programs of this machine communicate.
func loopbackUp() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if r, err := unix.NewIfreq("lo"); err == nil {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	}
}

// modules loads the kernel modules in /mods/order. Each line of this file is a module's file and
// its parameters.
func modules() bool {
	f, err := os.Open("/mods/order")
	if err != nil {
		fmt.Println("MACHINE", err)
		return false
	}
	defer f.Close()
	ok := true
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, params, _ := strings.Cut(lines.Text(), " ")
		m, err := os.Open("/mods/" + name)
		if err == nil {
			flags := 0
			if !strings.HasSuffix(name, ".ko") {
				flags = unix.MODULE_INIT_COMPRESSED_FILE
			}
			err = unix.FinitModule(int(m.Fd()), params, flags)
			m.Close()
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			fmt.Println("MACHINE module", name, err)
			ok = false
		}
	}
	return ok
}

// test runs one line; words with = before the program are environment variables.
func test(line string) bool {
	words := strings.Fields(line)
	var env []string
	for len(words) > 0 && strings.Contains(words[0], "=") {
		env, words = append(env, words[0]), words[1:]
	}
	if len(words) == 0 {
		return true
	}
	fmt.Printf("RUN %s, up %s s\n", line, uptime())
	c := exec.Command(words[0], words[1:]...)
	c.Stdout = os.Stdout
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), env...)
	if err := c.Run(); err != nil {
		fmt.Printf("FAILED %s: %v\n", line, err)
		return false
	}
	return true
}

func uptime() string {
	b, _ := os.ReadFile("/proc/uptime")
	return strings.SplitN(string(b), " ", 2)[0]
}
