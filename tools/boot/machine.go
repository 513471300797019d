package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// machine is a system in QEMU, with a kernel of its own. Its arm is at an FTDI adapter, which udev and
// the rules of the package name. A shell on a virtual console runs the commands as root.
type machine struct {
	root, dir   string // folder of the files of the machine's disk, and folder of this run
	arch, accel string
	arm         *stage.Arm
	child       *stage.Child // nil while the machine is off

	shell   net.Conn
	answers *bufio.Reader // answers of the shell
	monitor net.Conn      // QEMU's monitor
}

// emulators are QEMU's programs with the machines and the processors that they emulate. A Raspberry
// Pi 5 has the Cortex-A76.
var emulators = map[string][]string{
	"amd64": {"qemu-system-x86_64", "-M", "q35", "-cpu", "max,la57=off"},
	"arm64": {"qemu-system-aarch64", "-M", "virt,gic-version=3", "-cpu", "cortex-a76"},
}

// consoles are the first serial ports.
var consoles = map[string]string{"amd64": "ttyS0", "arm64": "ttyAMA0"}

// shellUnit is the service of the shell that runs command lines. The shell makes its console pass bytes unchanged and
// then prints "ready". Before that the console may drop input.
const shellUnit = `[Unit]
DefaultDependencies=no
[Service]
ExecStart=/bin/sh -c 'stty raw -echo; echo ready; while read -r line; do \
	sh -c "$$line" >/run/out 2>&1 </dev/null; s=$$?; cat /run/out; echo "end of command $$s"; done'
StandardInput=tty
StandardOutput=tty
TTYPath=/dev/hvc0
Environment=DEBIAN_FRONTEND=noninteractive
`

// slowManager makes systemd wait longer for its own services and devices, which are slow on an emulated processor.
const slowManager = `[Manager]
DefaultTimeoutStartSec=15min
DefaultDeviceTimeoutSec=15min
`

// slowEdge gives edge-rt's services six times the limits in their unit.
const slowEdge = `[Service]
WatchdogSec=12
TimeoutStopSec=90
`

// shellLimit is the longest time until the shell is ready, or until a command ends.
const shellLimit = 15 * time.Minute

// make makes a disk with the files of the root, and a disk of 64 MB for the state of the arm's service.
func (m *machine) make(ctx context.Context) error {
	etc := filepath.Join(m.root, "etc")
	wants := filepath.Join(etc, "systemd/system/dev-hvc0.device.wants")
	edge := slowEdge
	if m.accel == "kvm" {
		edge = ""
	}
	return errors.Join(
		os.WriteFile(filepath.Join(etc, "fstab"), []byte("LABEL=state /var/lib/edge-rt ext4 nofail 0 2\n"), 0o644),
		os.WriteFile(filepath.Join(etc, "systemd/system.conf"), []byte(slowManager), 0o644),
		os.WriteFile(filepath.Join(etc, "systemd/system/shell.service"), []byte(shellUnit), 0o644),
		os.Mkdir(filepath.Join(etc, "systemd/system/edge-rt@.service.d"), 0o755),
		os.WriteFile(filepath.Join(etc, "systemd/system/edge-rt@.service.d/slow.conf"), []byte(edge), 0o644),
		os.Mkdir(wants, 0o755),
		os.Symlink("../shell.service", filepath.Join(wants, "shell.service")),
		command(ctx, "mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", m.root, filepath.Join(m.dir, "root.img"), "4G"),
		command(ctx, "mke2fs", "-q", "-t", "ext4", "-L", "state", filepath.Join(m.dir, "state.img"), "64M"),
	)
}

func (m *machine) remove() { m.off() }

func (m *machine) start(ctx context.Context) error {
	shell, monitor := filepath.Join(m.dir, "shell"), filepath.Join(m.dir, "monitor")
	args := append(emulators[m.arch][1:len(emulators[m.arch]):len(emulators[m.arch])],
		"-accel", m.accel, "-smp", "2", "-m", "2048", "-display", "none", "-nodefaults", "-no-reboot",
		"-kernel", filepath.Join(m.root, "vmlinuz"), "-initrd", filepath.Join(m.root, "initrd.img"),
		"-append", "root=LABEL=root rw panic=-1 quiet mitigations=off tsc=reliable systemd.getty_auto=no console="+
			consoles[m.arch], "-serial", "stdio",
		"-drive", "if=virtio,format=raw,file="+filepath.Join(m.dir, "root.img"),
		"-drive", "if=virtio,format=raw,file="+filepath.Join(m.dir, "state.img"),
		"-chardev", "socket,id=shell,server=on,wait=off,path="+shell,
		"-device", "virtio-serial", "-device", "virtconsole,chardev=shell",
		"-monitor", "unix:"+monitor+",server=on,wait=off",
		"-chardev", "pipe,id=arm,path="+m.arm.Path(), "-device", "qemu-xhci", "-device", adapter)
	var err error
	if m.child, err = stage.Start(exec.Command(emulators[m.arch][0], args...)); err != nil {
		return err
	}
	stage.Until(bootLimit, func() bool {
		if m.monitor, err = net.Dial("unix", monitor); err == nil {
			m.shell, err = net.Dial("unix", shell)
		}
		return err == nil || !m.child.Running()
	})
	if err != nil {
		m.child.Kill()
		err = fmt.Errorf("%w: %s", err, m.child.Log.Tail(5))
		m.child = nil
		return err
	}
	m.answers = bufio.NewReader(m.shell)
	defer m.within(ctx)()
	for text := ""; err == nil && strings.TrimSpace(text) != "ready"; {
		text, err = m.answers.ReadString('\n')
	}
	if err != nil {
		return fmt.Errorf("no shell: %w: %s%s", err, m.child.Stdout(), m.child.Log.Tail(5))
	}
	return nil
}

func (m *machine) process() *stage.Child { return m.child }

// adapter is QEMU's FTDI adapter of the arm, whose serial number is in the name of the arm's port.
const adapter = "usb-serial,id=adapter,chardev=arm,serial=EDGERT1"

func (m *machine) plug(context.Context) error {
	_, err := fmt.Fprintln(m.monitor, "device_add", adapter)
	return err
}

func (m *machine) unplug(context.Context) error {
	_, err := fmt.Fprintln(m.monitor, "device_del adapter")
	return err
}

func (m *machine) off() {
	if m.child == nil {
		return
	}
	m.child.Kill()
	m.child = nil
	m.shell.Close()
	m.monitor.Close()
}

// within bounds the time of the following exchange with the shell. The caller calls done after the exchange.
func (m *machine) within(ctx context.Context) (done func() bool) {
	m.shell.SetDeadline(time.Now().Add(shellLimit))
	return context.AfterFunc(ctx, func() { m.shell.SetDeadline(time.Now()) })
}

func (m *machine) run(ctx context.Context, line string) (string, error) {
	defer m.within(ctx)()
	fmt.Fprintln(m.shell, line)
	var out strings.Builder
	for {
		text, err := m.answers.ReadString('\n')
		if err != nil {
			return out.String(), fmt.Errorf("%s: %w: %s", line, err, m.child.Stdout())
		}
		before, status, ended := strings.Cut(text, "end of command ")
		out.WriteString(before)
		if status = strings.TrimSpace(status); ended && status != "0" {
			return out.String(), fmt.Errorf("%s: status %s: %s", line, status, out.String())
		} else if ended {
			return out.String(), nil
		}
	}
}
