"""Checkpoints with random weights, made offline by LeRobot's own classes."""

from pathlib import Path

import numpy as np
import torch

JOINTS = ["shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos", "wrist_roll.pos", "gripper.pos"]


def stats(cameras: list[str], joints: int = 6, seed: int = 3, still: int | None = None) -> dict[str, dict[str, torch.Tensor]]:
    """Statistics that differ in every joint and channel, so that a swapped or forgotten axis
    changes the results. `still` is a joint that never moved."""
    rng = np.random.default_rng(seed)
    all_stats = {}
    for key in ("observation.state", "action"):
        mean, std = rng.uniform(-40, 60, joints), rng.uniform(2, 30, joints)
        if still is not None:
            std[still] = 0.0
        low, high = mean - 2.1 * std, mean + 1.7 * std
        vectors = {"mean": mean, "std": std, "min": low, "max": high, "q01": mean - 1.9 * std, "q99": mean + 1.6 * std, "q10": mean - 1.1 * std, "q90": mean + 1.2 * std}
        all_stats[key] = {k: torch.tensor(v, dtype=torch.float32) for k, v in vectors.items()}
    for name in cameras:
        mean, std = rng.uniform(0.3, 0.6, (3, 1, 1)), rng.uniform(0.15, 0.3, (3, 1, 1))
        vectors = {"mean": mean, "std": std, "min": 0 * mean, "max": 0 * mean + 1}
        all_stats[f"observation.images.{name}"] = {k: torch.tensor(v, dtype=torch.float32) for k, v in vectors.items()}
    return all_stats


def features(cameras: dict[str, tuple[int, int]], joints: int = 6):
    from lerobot.configs import FeatureType, PolicyFeature

    inputs = {f"observation.images.{n}": PolicyFeature(FeatureType.VISUAL, (3, h, w)) for n, (h, w) in cameras.items()}
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (joints,))
    return inputs, {"action": PolicyFeature(FeatureType.ACTION, (joints,))}


def shake(policy, seed: int = 1) -> None:
    """Sets random values where a fresh network has zeros and ones (biases, norms, buffers of
    frozen batch norms), so that a dropped or misplaced tensor changes the chunk."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, t in policy.state_dict().items():
            if not t.is_floating_point() or t.numel() == 0:
                continue
            if name.endswith("running_var"):
                t.copy_(0.5 + torch.rand(t.shape, generator=g))
            elif t.unique().numel() == 1:
                t.add_(0.2 * torch.randn(t.shape, generator=g))


def save(policy, folder: Path, dataset_stats) -> Path:
    from lerobot.policies.factory import make_pre_post_processors

    policy.save_pretrained(folder)
    pre, post = make_pre_post_processors(policy.config, dataset_stats=dataset_stats)
    pre.save_pretrained(folder)
    post.save_pretrained(folder)
    return folder


def act(folder: Path, cameras: dict[str, tuple[int, int]] | None = None, still: int | None = None, joints: int = 6, **config) -> Path:
    """Two cameras of different sizes, a chunk of 100."""
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    torch.manual_seed(0)
    cameras = cameras or {"front": (96, 128), "wrist": (64, 96)}
    inputs, outputs = features(cameras, joints)
    small = dict(dim_model=64, n_heads=4, dim_feedforward=128, n_encoder_layers=2, n_decoder_layers=2, latent_dim=8, chunk_size=100, n_action_steps=50)
    policy = ACTPolicy(ACTConfig(input_features=inputs, output_features=outputs, device="cpu", pretrained_backbone_weights=None, **{**small, **config}))
    shake(policy)
    return save(policy, folder, stats(list(cameras), joints, still=still))


def diffusion(folder: Path, cameras: dict[str, tuple[int, int]] | None = None, **config) -> Path:
    """Two cameras, a horizon of 16 of which 8 actions are sent."""
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    torch.manual_seed(0)
    cameras = cameras or {"front": (72, 96), "wrist": (72, 96)}
    inputs, outputs = features(cameras)
    small = dict(n_obs_steps=1, horizon=16, n_action_steps=8, down_dims=(32, 64), spatial_softmax_num_keypoints=8, diffusion_step_embed_dim=32, noise_scheduler_type="DDIM", num_inference_steps=10)
    policy = DiffusionPolicy(DiffusionConfig(input_features=inputs, output_features=outputs, device="cpu", pretrained_backbone_weights=None, **{**small, **config}))
    shake(policy)
    return save(policy, folder, stats(list(cameras)))
