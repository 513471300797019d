"""Trains LeRobot's ACT on recorded demonstrations, on the CPU: python fit.py DATA OUT

ImageNet's weights are not used (nothing is fetched): the backbone is trained first, with trainable batch norms, and then
frozen. Two stages:

    backbone     pictures to the places of target and post, by a linear layer that is discarded
    transformer  LeRobot's ACTPolicy on features that the frozen backbone computed once; OUT/checkpoint is a LeRobot
                 checkpoint

Both are saved every three minutes; an interrupted run resumes from the last save, and a finished stage is skipped.

Each process computes its share of every batch with one thread, and all processes add up their gradients: on a shared
machine threads wait for each other a hundred times a step, processes once.
"""

import argparse
import copy
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchvision.models import resnet18
from torchvision.models._utils import IntermediateLayerGetter

PICTURE, STATE, ACTION = "observation.images.top", "observation.state", "action"
HELD_OUT = 2_000
SAVE_EVERY = 180.0  # seconds
PEAK_RATE = 1e-3
SCENE_UNIT = 0.1  # metres, of target and post


class Data:
    """The recorded arrays; the last HELD_OUT demonstrations are for evaluation."""

    def __init__(self, folder: Path):
        self.picture, self.state, self.action, self.scene = (
            np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("picture", "state", "action", "scene")
        )
        self.train = len(self.state) - HELD_OUT
        stats = json.loads((folder / "meta" / "stats.json").read_text())
        self.stats = {key: {k: torch.tensor(v, dtype=torch.float32) for k, v in s.items()} for key, s in stats.items()}

    def normal(self, key: str, x: Tensor) -> Tensor:
        return (x - self.stats[key]["mean"]) / (self.stats[key]["std"] + 1e-8)

    def pictures(self, at: np.ndarray) -> Tensor:
        x = torch.from_numpy(self.picture[at]).permute(0, 3, 1, 2).contiguous().float() / 255
        return self.normal(PICTURE, x)

    def places(self, at: np.ndarray) -> Tensor:
        return torch.from_numpy(self.scene[at]) / SCENE_UNIT

    def chunk(self, at: np.ndarray, shake: float = 0.0) -> dict[str, Tensor]:
        """The inputs of LeRobot's policy beside the pictures."""
        state = self.normal(STATE, torch.from_numpy(self.state[at]))
        action = self.normal(ACTION, torch.from_numpy(self.action[at]))
        return {STATE: state + shake * torch.randn_like(state), ACTION: action, "action_is_pad": torch.zeros(action.shape[:2], dtype=torch.bool)}

    def held_out(self) -> np.ndarray:
        return np.arange(self.train, self.train + HELD_OUT)


class Batches:
    """This process's share of the batches. Each step has its own random seed, so a resumed run draws as an uninterrupted one."""

    def __init__(self, seed: int, batch: int):
        self.seed, self.share = seed, batch // dist.get_world_size()

    def draw(self, step: int, below: int) -> np.ndarray:
        return np.sort(np.random.default_rng([self.seed, dist.get_rank(), step]).integers(0, below, self.share))


class Average:
    """The average of the newest weights, which evaluation and export use."""

    def __init__(self, module: nn.Module, keep: float):
        self.module, self.keep, self.n = copy.deepcopy(module).eval(), keep, 0

    @torch.no_grad()
    def add(self, module: nn.Module) -> None:
        self.n += 1
        keep = min(self.keep, self.n / (self.n + 10))
        for a, b in zip(self.module.state_dict().values(), module.state_dict().values(), strict=True):
            if a.is_floating_point():
                a.lerp_(b, 1 - keep)
            else:
                a.copy_(b)


class Descent:
    """AdamW with a warm-up and a cosine decay, gradients clipped to norm 1; resumes from OUT/NAME.part where it exists."""

    def __init__(self, name: str, module: nn.Module, out: Path, steps: int, keep: float):
        self.name, self.module, self.steps, self.done, self.losses = name, module, steps, 0, []
        self.parameters = list(module.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, betas=(0.9, 0.98), weight_decay=1e-4)
        self.average = Average(module, keep)
        self.part = out / f"{name}.part"
        if self.part.exists():
            saved = torch.load(self.part)
            self.done = self.average.n = saved["done"]
            module.load_state_dict(saved["module"])
            self.average.module.load_state_dict(saved["average"])
            self.optimizer.load_state_dict(saved["optimizer"])
            say(f"{name}: goes on after step {self.done} of {steps}")
        self.began = self.saved = time.monotonic()

    def due(self) -> bool:
        """Whether this process has to evaluate and save now."""
        return dist.get_rank() == 0 and (self.done == self.steps or time.monotonic() - self.saved > SAVE_EVERY)

    def save(self) -> None:
        states = {"module": self.module, "average": self.average.module, "optimizer": self.optimizer}
        new = self.part.with_suffix(".new")
        torch.save({"done": self.done} | {k: v.state_dict() for k, v in states.items()}, new)
        new.replace(self.part)
        self.saved = time.monotonic()

    def rate(self) -> float:
        warm = max(20, self.steps // 20)
        if self.done < warm:
            return (self.done + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (self.done - warm) / (self.steps - warm)))) + 0.002

    def step(self, loss: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = PEAK_RATE * self.rate()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        add_up([p.grad for p in self.parameters])
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.average.add(self.module)
        self.done += 1
        self.losses.append(loss.item())
        if self.done % 50 == 0 or self.done == self.steps:
            say(f"{self.name}: step {self.done} of {self.steps}, loss {np.mean(self.losses):.4f}, {time.monotonic() - self.began:.0f} s")
            self.losses = []


def say(line: str) -> None:
    if dist.get_rank() == 0:
        print(line, flush=True)


def add_up(gradients: list[Tensor]) -> None:
    """The mean of all processes' gradients, in place."""
    flat = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        g.copy_(mean.view_as(g))


def autocast() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


def eyes() -> nn.Module:
    """LeRobot's backbone with trainable batch norms."""
    return IntermediateLayerGetter(resnet18(weights=None), return_layers={"layer4": "feature_map"})


def look(backbone: nn.Module, pictures: Tensor) -> Tensor:
    with autocast():
        return backbone(pictures)["feature_map"].float()


def train_backbone(data: Data, out: Path, batches: Batches, steps: int) -> None:
    both = nn.ModuleList([eyes(), nn.Linear(512, 4)])
    descent = Descent("backbone", both, out, steps, keep=0.99)
    while descent.done < steps:
        at = batches.draw(descent.done, data.train)
        backbone, head = both
        guess = head(look(backbone, data.pictures(at)).mean((2, 3)))
        descent.step(nn.functional.smooth_l1_loss(guess, data.places(at), beta=0.05))
        if descent.due():
            judge_backbone(data, *descent.average.module)
            descent.save()
    if dist.get_rank() == 0:
        torch.save(descent.average.module[0].state_dict(), out / "backbone.new")
        (out / "backbone.new").replace(out / "backbone.pt")
    dist.barrier()


@torch.no_grad()
def judge_backbone(data: Data, backbone: nn.Module, head: nn.Module) -> None:
    at = data.held_out()[:512]
    guess = torch.cat([head(look(backbone, data.pictures(part)).mean((2, 3))) for part in np.array_split(at, 8)])
    error = (guess - data.places(at)).abs().numpy() * SCENE_UNIT * 1000
    say(f"backbone: mean error {error.mean(0).round(2)} mm, p99 {np.quantile(error, 0.99, 0).round(1)} mm")


@torch.no_grad()
def see_all(backbone: nn.Module, data: Data, out: Path, n: int) -> np.ndarray:
    """The frozen backbone's features of the first n pictures and of those held out, f16 [n + HELD_OUT, 512, h, w]."""
    path, part = out / "features.npy", out / "features.part"
    if not path.exists():
        at = np.concatenate([np.arange(n), data.held_out()])
        if dist.get_rank() == 0:
            shape = look(backbone, data.pictures(np.arange(1))).shape[1:]
            np.lib.format.open_memmap(part, "w+", np.float16, (len(at), *shape)).flush()
        dist.barrier()
        features = np.load(part, mmap_mode="r+")
        for i in range(100 * dist.get_rank(), len(at), 100 * dist.get_world_size()):
            features[i : i + 100] = look(backbone, data.pictures(at[i : i + 100])).numpy()
            if i % 10_000 == 0:
                say(f"features: {i} of {len(at)}")
        features.flush()
        dist.barrier()
        if dist.get_rank() == 0:
            part.rename(path)
        dist.barrier()
    return np.load(path, mmap_mode="r")


def new_policy():
    """A small ACT: LeRobot's layers, narrower, without the variational encoder, since each scene has only one answer."""
    from lerobot.configs import FeatureType, PolicyFeature
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    inputs = {PICTURE: PolicyFeature(FeatureType.VISUAL, (3, 60, 80)), STATE: PolicyFeature(FeatureType.STATE, (6,))}
    return ACTPolicy(
        ACTConfig(
            input_features=inputs,
            output_features={ACTION: PolicyFeature(FeatureType.ACTION, (6,))},
            device="cpu",
            pretrained_backbone_weights=None,
            chunk_size=50,
            n_action_steps=50,
            dim_model=128,
            n_heads=4,
            dim_feedforward=1024,
            use_vae=False,
            dropout=0.0,
        )
    )


class Seen(nn.Module):
    """Replaces the backbone when the pictures are features already."""

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        return {"feature_map": features}


def save(policy, data: Data, out: Path) -> None:
    from lerobot.policies.factory import make_pre_post_processors

    policy.save_pretrained(out / "checkpoint")
    for processor in make_pre_post_processors(policy.config, dataset_stats=data.stats):
        processor.save_pretrained(out / "checkpoint")


@torch.no_grad()
def judge_policy(policy, data: Data, shown: Callable[[np.ndarray], Tensor]) -> None:
    """Error of the chunk on the held-out demonstrations."""
    parts = []
    for part in np.array_split(data.held_out()[:1024], 8):
        batch = data.chunk(part) | {PICTURE: shown(part)}
        with autocast():
            chunk = policy.predict_action_chunk(batch).float()
        parts.append((chunk - batch[ACTION]).abs() * data.stats[ACTION]["std"])
    error = torch.cat(parts).numpy()
    say(f"transformer: held out, mean error {error.mean((0, 1)).round(2)} deg, last row {error[:, -1].mean(0).round(2)}")


def train_transformer(data: Data, out: Path, batches: Batches, n: int, steps: int) -> None:
    """LeRobot's own forward pass and loss, on the features of the first n pictures."""
    backbone = eyes().eval()
    backbone.load_state_dict(torch.load(out / "backbone.pt"))
    features = see_all(backbone, data, out, n)
    policy = new_policy()
    policy.model.backbone.load_state_dict({k: v for k, v in backbone.state_dict().items() if not k.endswith("num_batches_tracked")})
    frozen, policy.model.backbone = policy.model.backbone, Seen()

    def shown(at: np.ndarray) -> Tensor:
        return torch.from_numpy(features[np.where(at < n, at, at - data.train + n)]).float()

    def keep(average) -> None:
        judge_policy(average, data, shown)
        whole = copy.deepcopy(average)
        whole.model.backbone = frozen
        save(whole, data, out)

    policy.train()
    descent = Descent("transformer", policy, out, steps, keep=0.995)
    while descent.done < steps:
        at = batches.draw(descent.done, n)
        with autocast():
            loss, _ = policy.forward(data.chunk(at, shake=0.01) | {PICTURE: shown(at)})
        descent.step(loss)
        if descent.due():
            keep(descent.average.module)
            descent.save()
    dist.barrier()


def run(rank: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.processes)
    torch.manual_seed(args.seed)
    data, batches, began = Data(args.data), Batches(args.seed, args.batch), time.monotonic()
    if not (args.out / "backbone.pt").exists():
        train_backbone(data, args.out, batches, args.backbone_steps)
    train_transformer(data, args.out, batches, min(args.features, data.train), args.transformer_steps)
    say(f"all, {time.monotonic() - began:.0f} s")
    dist.destroy_process_group()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split(":")[0])
    p.add_argument("data", type=Path, help="what record.py wrote")
    p.add_argument("out", type=Path, help="folder for the stages and the checkpoint")
    p.add_argument("--seed", type=int, default=0, help="of weights and order (0)")
    p.add_argument("--processes", type=int, default=2, help="of one thread each (2)")
    p.add_argument("--port", type=int, default=29518, help="on which they meet (29518)")
    p.add_argument("--batch", type=int, default=64, help="of all processes together (64)")
    p.add_argument("--backbone-steps", type=int, default=600)
    p.add_argument("--features", type=int, default=30_000, help="pictures for the transformer's stage (30000)")
    p.add_argument("--transformer-steps", type=int, default=4000)
    args = p.parse_args()
    torch.multiprocessing.spawn(run, (args,), args.processes)


if __name__ == "__main__":
    main()
