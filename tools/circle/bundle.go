package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/stage"
)

// bundled describes the bundle that lean-server serves.
type bundled struct {
	Worst  float64 `json:"worst"` // deviations between the graph and LeRobot's own code
	Limit  float64 `json:"limit"`
	MS     float64 `json:"ms"`     // ms, the graph's time for one robot, measured by edgert-export
	SHA256 string  `json:"sha256"` // digest in the output of lean-server
}

const bundleLimit = 20 * time.Minute

// makeBundle exports checkpoint n, and checks that lean-server reproduces the golden sets of the
// bundle.
func (r *round) makeBundle(ctx context.Context, n int) error {
	cmd := exec.Command(r.tool("edgert-export"), r.checkpoint(n), r.bundle(n), "--dataset-info",
		r.dataset(n)+"/meta/info.json", "--units", units, "--simulation-only")
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1",
		fmt.Sprintf("OMP_NUM_THREADS=%d", r.threads), "OMP_WAIT_POLICY=PASSIVE")
	if err := logged(ctx, cmd, r.plan.at(fmt.Sprintf("bundle-%d.log", n)), bundleLimit); err != nil {
		return err
	}
	b, err := readBundle(r.bundle(n), r.chunk)
	if err != nil {
		return err
	}
	manifest, err := r.manifest(n)
	if err != nil {
		return err
	}
	said, err := output(ctx, stage.Command(stage.Program(r.given.Bin, "lean-server"), "check", "--manifest", manifest),
		bundleLimit)
	if err != nil {
		return fmt.Errorf("lean-server check: %w", err)
	}
	if b.SHA256, err = servedSHA(string(said)); err != nil {
		return err
	}
	r.Found.Bundled[n] = b
	r.result("worst error %.1e deviations of %.0e allowed, %.1f ms for a chunk, sha256 %.12s, golden sets reproduced",
		b.Worst, b.Limit, b.MS, b.SHA256)
	if n == 2 && b.SHA256 == r.Found.Bundled[1].SHA256 {
		return fmt.Errorf("the second bundle is the first one, sha256 %s", b.SHA256)
	}
	return nil
}

// readBundle compares a bundle with its checkpoint.
func readBundle(dir string, chunk int) (b bundled, err error) {
	var report struct {
		Worst struct {
			Max float64 `json:"max"`
		} `json:"worst"`
		Limit float64 `json:"limit"`
		Times []struct {
			MS float64 `json:"median_ms"`
		} `json:"t_of_b"`
	}
	if err := stage.ReadJSON(dir+"/report.json", &report); err != nil {
		return b, err
	}
	var bundle struct {
		FPS     float64  `json:"fps"`
		Chunk   int      `json:"chunk_size"`
		Actions []string `json:"action_names"`
		Cameras []struct {
			Name          string
			Width, Height int
		} `json:"cameras"`
	}
	if err := stage.ReadJSON(dir+"/bundle.json", &bundle); err != nil {
		return b, err
	}
	arm, err := robot.ByName(robotName)
	if err != nil {
		return b, err
	}
	b = bundled{Worst: report.Worst.Max, Limit: report.Limit}
	if len(report.Times) > 0 {
		b.MS = report.Times[0].MS
	}
	c := bundle.Cameras
	switch {
	case report.Limit <= 0 || report.Limit > worst || b.Worst > report.Limit:
		err = fmt.Errorf("the graph is up to %g deviations from LeRobot's own answer, allowed are %g", b.Worst,
			report.Limit)
	case bundle.FPS != fps || bundle.Chunk != chunk:
		err = fmt.Errorf("the bundle has chunks of %d at %g per second, the training %d at %d", bundle.Chunk,
			bundle.FPS, chunk, fps)
	case !slices.Equal(bundle.Actions, arm.ActionNames()):
		err = fmt.Errorf("the bundle has the joints %v, the robot %v", bundle.Actions, arm.ActionNames())
	case len(c) != 1 || c[0].Name != "top" || fmt.Sprintf(":%dx%d@%d", c[0].Width, c[0].Height, fps) != pictures:
		err = fmt.Errorf("the bundle has the cameras %v, the dataset top%s", c, pictures)
	}
	return b, err
}

// manifest writes a manifest for bundle n.
func (r *round) manifest(n int) (name string, err error) {
	name = r.plan.at(fmt.Sprintf("server-%d.yaml", n))
	text := fmt.Sprintf("model: {repo_or_path: %q, id: circle/act-%d}\nservice: circle\ndefault_task: %s\n",
		r.bundle(n), n, task)
	return name, os.WriteFile(name, []byte(text), 0o644)
}

var shaInCheck = regexp.MustCompile(`(?m)^\s+sha256 ([0-9a-f]{64}), golden sets reproduced$`)

// servedSHA reads the output of lean-server check.
func servedSHA(said string) (string, error) {
	m := shaInCheck.FindStringSubmatch(said)
	if m == nil {
		return "", fmt.Errorf("lean-server check names no sha256 whose golden sets it reproduced: %s", said)
	}
	return m[1], nil
}

// serve starts lean-server with bundle n.
func (r *round) serve(ctx context.Context, n int) (*stage.Server, error) {
	manifest, err := r.manifest(n)
	if err != nil {
		return nil, err
	}
	return stage.Serve(ctx, r.given.Bin, manifest)
}
