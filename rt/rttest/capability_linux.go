package rttest

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Without takes a capability, such as unix.CAP_CHOWN, from the rest of a test. Only root has capabilities.
func Without(t *testing.T, capability int) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	runtime.LockOSThread() // the thread ends with the test
	own := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var rights [2]unix.CapUserData
	Do(t, unix.Capget(&own, &rights[0]))
	rights[0].Effective &^= 1 << capability
	Do(t, unix.Capset(&own, &rights[0]))
}
