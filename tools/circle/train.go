package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/stage"
)

// trained describes a checkpoint.
type trained struct {
	Steps      int     `json:"steps"`
	First      float64 `json:"loss_first"`
	Last       float64 `json:"loss_last"`
	SHA256     string  `json:"sha256"`     // digest of the weights
	Checkpoint string  `json:"checkpoint"` // checkpoint with which the training began; "": none
}

const trainLimit = 3 * time.Hour

// train runs LeRobot's own training script on dataset n: from scratch, or from checkpoint 1.
func (r *round) train(ctx context.Context, n int) error {
	t := trained{Steps: r.steps}
	args := append([]string{"--policy.type=act", "--policy.pretrained_backbone_weights=null", "--policy.use_vae=false",
		"--policy.optimizer_lr=1e-4", "--policy.optimizer_lr_backbone=1e-4",
		fmt.Sprintf("--policy.chunk_size=%d", r.chunk), fmt.Sprintf("--policy.n_action_steps=%d", r.chunk)}, r.net...)
	if n == 2 {
		t.Steps, t.Checkpoint = r.more, r.checkpoint(1)
		args = []string{"--policy.path=" + t.Checkpoint}
	}
	every := max(1, t.Steps/10)
	args = append([]string{"-m", "lerobot.scripts.lerobot_train"}, append(args,
		"--dataset.repo_id=circle/"+filepath.Base(r.dataset(n)), "--dataset.root="+r.dataset(n),
		"--dataset.use_imagenet_stats=false",
		"--policy.device=cpu", "--policy.push_to_hub=false", "--wandb.enable=false", "--num_workers=0",
		fmt.Sprintf("--batch_size=%d", batch), fmt.Sprintf("--steps=%d", t.Steps),
		fmt.Sprintf("--save_freq=%d", t.Steps), fmt.Sprintf("--log_freq=%d", every),
		"--output_dir="+r.training(n))...)
	cmd := exec.Command(r.tool("python"), args...)
	home := r.plan.at("huggingface")
	cmd.Env = append(os.Environ(), "HF_HOME="+home, "HF_LEROBOT_HOME="+filepath.Join(home, "lerobot"),
		"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1",
		fmt.Sprintf("OMP_NUM_THREADS=%d", r.threads), "OMP_WAIT_POLICY=PASSIVE")
	// The loader caches a dataset by its path.
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	file := r.plan.at(fmt.Sprintf("training-%d.log", n))
	if err := logged(ctx, cmd, file, trainLimit); err != nil {
		return err
	}
	var err error
	if t.First, t.Last, err = losses(file); err != nil {
		return err
	}
	if t.SHA256, err = policy.HashFile(filepath.Join(r.checkpoint(n), "model.safetensors")); err != nil {
		return fmt.Errorf("the training left no checkpoint of step %d: %w", t.Steps, err)
	}
	r.Found.Trained[n] = t
	if err := checkBegin(r.checkpoint(n), t.Checkpoint); err != nil {
		return err
	}
	r.result("%d steps of %d frames, loss %.3f to %.3f", t.Steps, batch, t.First, t.Last)
	return r.checkTraining(n)
}

// checkTraining refuses weights that the steps cannot have made from the data.
func (r *round) checkTraining(n int) error {
	t := r.Found.Trained[n]
	switch {
	case math.IsNaN(t.Last) || math.IsInf(t.Last, 0):
		return fmt.Errorf("the loss is %v", t.Last)
	case n == 1 && r.whole && t.Last >= t.First:
		return fmt.Errorf("the loss did not fall: %.3f, at last %.3f", t.First, t.Last)
	case n == 2 && r.whole && t.First >= r.Found.Trained[1].First:
		return fmt.Errorf("the second training begins at a loss of %.3f, the first at %.3f: it did not begin with "+
			"the checkpoint", t.First, r.Found.Trained[1].First)
	case n == 2 && t.SHA256 == r.Found.Trained[1].SHA256:
		return fmt.Errorf("the second training left the first one's weights, sha256 %s", t.SHA256)
	}
	return nil
}

// checkBegin returns an error unless a checkpoint's configuration names began as the checkpoint with which its training
// began.
func checkBegin(checkpoint, began string) error {
	var config struct {
		Policy struct {
			Type string `json:"type"`
			Path string `json:"pretrained_path"`
		} `json:"policy"`
	}
	if err := stage.ReadJSON(filepath.Join(checkpoint, "train_config.json"), &config); err != nil {
		return err
	}
	if config.Policy.Type != "act" || config.Policy.Path != began {
		return fmt.Errorf("%s is of an %q that began with %q, want act and %q", checkpoint, config.Policy.Type,
			config.Policy.Path, began)
	}
	return nil
}

// lossInLog matches the mean loss of the last log_freq steps in lerobot_train's log.
var lossInLog = regexp.MustCompile(`\bloss:([0-9.]+|nan|inf)\b`)

// losses returns the first and the last loss in a training's log.
func losses(file string) (first, last float64, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, err
	}
	all := lossInLog.FindAllStringSubmatch(string(text), -1)
	if all == nil {
		return 0, 0, fmt.Errorf("%s has no loss", file)
	}
	if first, err = strconv.ParseFloat(all[0][1], 64); err == nil {
		last, err = strconv.ParseFloat(all[len(all)-1][1], 64)
	}
	return first, last, err
}
