package stage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/edge-rt/edge-rt/servo/robot"
)

// SimArm returns edge-rt's flags for a simulated arm with a camera and for the server at the endpoint, followed by the
// flags in more.
func SimArm(endpoint string, more ...string) []string {
	return append([]string{"--bus", "sim", "--camera", "top=sim", "--connect", endpoint}, more...)
}

// SimRobot returns edge-rt's flags for a simulated robot, with a bus and a camera from above for each arm, and for the
// server at the endpoint, followed by the flags in more.
func SimRobot(r robot.Robot, endpoint string, more ...string) []string {
	args := []string{"--robot", r.Flag(), "--bus", "sim", "--connect", endpoint}
	for _, p := range r.Parts() {
		args = append(args, "--camera", p.Prefix()+"top=sim")
	}
	return append(args, more...)
}

// DemoManifest returns the path of the manifest that serves the demo's policy for a robot. folder has the
// demo's bundles.
func DemoManifest(folder, robotName string) string {
	if robotName == "so101" {
		robotName = "server"
	}
	return filepath.Join(folder, robotName+".yaml")
}

// Ctl sends a command to the edge-rt that runs with this id and state folder dir, and reads the answer into v.
func Ctl(bin, dir, id, command string, v any) error {
	out, err := Edge(bin, dir, "ctl", command, "--id", id).Output()
	if err != nil {
		return fmt.Errorf("ctl %s of %s: %w", command, id, err)
	}
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("ctl %s of %s: %w", command, id, err)
	}
	return nil
}

// ReadAudit reads the lines of a server's audit. If the server was killed, ReadAudit leaves out a
// line that the server did not finish.
func ReadAudit[Line any](file string, killed bool) (all []Line, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var l Line
		if err := json.Unmarshal(lines.Bytes(), &l); err == nil {
			all = append(all, l)
		} else if !killed {
			return nil, fmt.Errorf("%s, line %d: %w", file, len(all)+1, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s, after %d lines: %w", file, len(all), err)
	}
	return all, nil
}
