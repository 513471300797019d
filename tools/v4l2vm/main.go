// V4l2vm runs the real capture tests in a small virtual machine, because the kernels of build
// machines have no video: QEMU, Debian's stock kernel, the kernel's own test driver vivid, and
// v4l2loopback for motion JPEG.
//
//	go run ./tools/v4l2vm --arch amd64
//	go run ./tools/v4l2vm --whole
//
// With --whole the machine runs the whole edge on two of vivid's cameras instead. The machine
// contains only our own init, static test binaries and the modules; it boots in seconds. The tool
// lists the tests and fails when one fails.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

type options struct {
	Arch    string        `enum:"amd64,arm64" default:"amd64" help:"architecture of the machine: amd64 or arm64"`
	Cache   string        `default:".cache/v4l2vm" help:"folder for kernels and modules, kept from run to run"`
	Run     string        `help:"only the tests that match, as go test -run"`
	Limit   time.Duration `default:"10m" help:"give up after this long"`
	Whole   bool          `help:"run the whole edge, which needs the host's architecture"`
	Verbose bool          `short:"v" help:"show all that the machine prints"`
}

func main() {
	stage.LongTool(func(ctx context.Context, o options) error {
		ctx, cancel := context.WithTimeout(ctx, o.Limit)
		defer cancel()
		return (&machine{o, filepath.Join(o.Cache, o.Arch)}).boot(ctx)
	})
}

// machine is the machine to boot.
type machine struct {
	options
	dir string // kernel, modules, built files
}

// emulators are QEMU's arguments. The processor is emulated: a build machine seldom has /dev/kvm,
// and tests must not depend on it.
var emulators = map[string][]string{
	"amd64": {"qemu-system-x86_64", "-cpu", "max", "-append",
		"console=ttyS0 quiet panic=-1 rdinit=/init mitigations=off nokaslr tsc=reliable"},
	"arm64": {"qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72", "-append",
		"console=ttyAMA0 quiet panic=-1 rdinit=/init nokaslr"},
}

func (m *machine) boot(ctx context.Context) error {
	emulator := emulators[m.Arch]
	began := time.Now()
	if err := command(ctx, nil, "tools/v4l2vm/kernel.sh", m.Arch, m.dir); err != nil {
		return err
	}
	archive, err := m.pack(ctx)
	if err != nil {
		return err
	}
	version, err := os.ReadFile(filepath.Join(m.dir, "version"))
	if err != nil {
		return err
	}
	fmt.Printf("machine %s, kernel %s: ready after %.0f s\n", m.Arch, strings.TrimSpace(string(version)),
		time.Since(began).Seconds())
	args := append(emulator[1:len(emulator):len(emulator)], "-accel", "tcg,thread=multi", "-m", "512", "-smp", "2",
		"-nographic", "-no-reboot", "-nodefaults",
		"-serial", "stdio", "-kernel", filepath.Join(m.dir, "vmlinuz"), "-initrd", archive)
	cmd := exec.CommandContext(ctx, emulator[0], args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("%s: %w; tools/setup.sh v4l2 installs it", emulator[0], err)
	}
	passed := m.follow(out)
	cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("the machine ran out of time: %w", ctx.Err())
	}
	if !passed {
		return errors.New("the machine's tests failed")
	}
	fmt.Printf("machine %s: all passed after %.0f s\n", m.Arch, time.Since(began).Seconds())
	return nil
}

// pack builds the programs and writes the machine's whole file system.
func (m *machine) pack(ctx context.Context) (string, error) {
	env := []string{"GOOS=linux", "GOARCH=" + m.Arch, "CGO_ENABLED=0"}
	initFile, tests := filepath.Join(m.dir, "init"), filepath.Join(m.dir, "v4l2.test")
	if err := command(ctx, env, "go", "build", "-ldflags=-s -w", "-o", initFile, "./tools/v4l2vm/init"); err != nil {
		return "", err
	}
	build := []string{"test", "-c", "-ldflags=-s -w", "-o", tests, "./camera/v4l2"}
	if m.Whole {
		if m.Arch != runtime.GOARCH {
			return "", fmt.Errorf("--whole with --arch %s: want %s, because libjpeg-turbo is this machine's", m.Arch,
				runtime.GOARCH)
		}
		env = nil // the whole edge needs cgo
		build = []string{"test", "-c", "-tags=netgo,osusergo", "-ldflags=-s -w -linkmode=external -extldflags=-static",
			"-o", tests, "./tools/v4l2vm/whole"}
	}
	if err := command(ctx, env, "go", build...); err != nil {
		return "", err
	}
	a := newInitramfs()
	errs := []error{a.addFile("init", initFile), a.addFile("v4l2.test", tests)}
	order, err := os.ReadFile(filepath.Join(m.dir, "order"))
	if err != nil {
		return "", err
	}
	var lines []string
	for _, name := range append(strings.Fields(string(order)), "v4l2loopback.ko") {
		errs = append(errs, a.addFile("mods/"+name, filepath.Join(m.dir, name)))
		lines = append(lines, strings.TrimSpace(name+" "+parameters[strings.SplitN(name, ".", 2)[0]]))
	}
	a.add("mods/order", []byte(strings.Join(lines, "\n")+"\n"))
	a.add("tests", []byte("/v4l2.test -test.v -test.timeout=5m -test.run="+m.Run+"\n"))
	archive := filepath.Join(m.dir, "initramfs.gz")
	return archive, errors.Join(append(errs, a.write(archive))...)
}

// parameters are the modules' parameters: vivid becomes two webcams, and v4l2loopback becomes video10.
var parameters = map[string]string{
	"vivid":        "n_devs=2 node_types=0x1,0x1 num_inputs=1,1 input_types=0,0 multiplanar=1,1",
	"v4l2loopback": "devices=1 max_buffers=8 video_nr=10 exclusive_caps=1 card_label=LoopCam",
}

// follow prints the results of the tests in the machine, and reports whether all passed.
func (m *machine) follow(out io.Reader) (passed bool) {
	ran := 0
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		word := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(word, "--- PASS"):
			ran++
			fmt.Println("  " + strings.TrimPrefix(line, "--- "))
		case strings.HasPrefix(line, "MACHINE PASS"):
			passed = ran > 0
		case strings.HasPrefix(word, "=== "), word == "", word == "PASS":
			if m.Verbose {
				fmt.Println(line)
			}
		default:
			fmt.Println("  " + line)
		}
	}
	fmt.Printf("machine %s: %d tests passed\n", m.Arch, ran)
	return passed
}

// command runs a program of the host and shows its output only when it fails.
func command(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}
