"""Diffusion: DDIM without added noise, so equal initial noise gives an equal chunk."""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from .. import sampler
from ..errors import ExportError
from ..images import Picture
from .base import Family
from .flow import ToModel

# DDIM steps for a checkpoint that was trained with DDPM.
STEPS = 10

# LeRobot's number of training steps where config.json has none.
TRAINED = 100


class Resize(nn.Module):
    """torch's bilinear resize with anti-aliasing. It is linear in rows and columns, so two
    constant matrices, computed by torch's own code, replace it."""

    def __init__(self, size: tuple[int, int], to: tuple[int, int]):
        super().__init__()
        self.register_buffer("rows", weights(size[0], to[0]))
        self.register_buffer("columns", weights(size[1], to[1]).transpose(0, 1).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        return self.rows @ (x @ self.columns)


def weights(size: int, to: int) -> Tensor:
    """The matrix [to, size] of a resize along one axis: the resize of an identity matrix."""
    eye = torch.eye(size).reshape(1, 1, size, size)
    return torch.nn.functional.interpolate(eye, (to, size), mode="bilinear", antialias=True, align_corners=False)[0, 0]


class Eye(nn.Module):
    """One picture encoder in eval mode: resize, centre crop, backbone, key points."""

    def __init__(self, encoder: nn.Module, size: tuple[int, int], config):
        super().__init__()
        self.encoder = encoder
        self.resize = nn.Identity()
        if config.resize_shape is not None and tuple(config.resize_shape) != size:
            self.resize = Resize(size, tuple(config.resize_shape))
            size = tuple(config.resize_shape)
        self.crop = tuple(config.crop_shape) if encoder.do_crop else size
        self.corner = tuple(int(round((have - want) / 2.0)) for have, want in zip(size, self.crop, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        (top, left), (height, width) = self.corner, self.crop
        x = self.resize(x)[..., top : top + height, left : left + width]
        return torch.relu(self.encoder.out(self.encoder.pool(self.encoder.backbone(x)).flatten(1)))


class See(nn.Module):
    """Pictures and state to the conditioning of the U-Net: for each observation, oldest
    first, the state and then the features of each camera."""

    def __init__(self, family: "DiffusionExport"):
        super().__init__()
        diffusion, config = family.policy.diffusion, family.policy.config
        separate = config.use_separate_rgb_encoder_per_camera
        encoders = [diffusion.rgb_encoder[i] if separate else diffusion.rgb_encoder for i in range(len(family.cameras))]
        self.eyes = nn.ModuleList(Eye(e, (c.height, c.width), config) for e, c in zip(encoders, family.cameras, strict=True))
        self.pictures = nn.ModuleList(Picture(family.picture_in(c.key)) for c in family.cameras)
        self.state_in, self.past, self.feature_dim = family.state_in(), config.n_obs_steps, encoders[0].feature_dim

    def forward(self, *inputs: Tensor) -> Tensor:
        *pictures, state = inputs
        parts = [self.state_in(state).reshape(-1, self.past, int(state.shape[-1]))]
        for eye, picture, u8 in zip(self.eyes, self.pictures, pictures, strict=True):
            frame = tuple(int(n) for n in u8.shape[-3:])
            parts.append(eye(picture(u8.reshape(-1, *frame))).reshape(-1, self.past, self.feature_dim))
        width = sum(int(p.shape[-1]) for p in parts)
        return torch.cat(parts, dim=-1).reshape(-1, self.past * width)


class Predict(nn.Module):
    """LeRobot's U-Net, with the step's number in place of its time. A table holds the
    embeddings of the sampler's times."""

    def __init__(self, unet: nn.Module, times: Tensor):
        super().__init__()
        with torch.no_grad():
            self.register_buffer("times", unet.diffusion_step_encoder(times))
        # The policy itself stays unchanged, because the graph is compared with it.
        self.unet = copy.copy(unet)
        self.unet._modules = {**unet._modules, "diffusion_step_encoder": nn.Identity()}

    def forward(self, x: Tensor, k: Tensor, clean: Tensor, cond: Tensor) -> Tensor:
        time = self.times.index_select(0, k.reshape(1)) + torch.zeros_like(cond[:, :1])
        return self.unet(x, time, global_cond=cond)


class Ddim(nn.Module):
    """One DDIM step with eta 0, from the scheduler's own table of alphas."""

    def __init__(self, scheduler, config):
        super().__init__()
        self.predicts, self.clip = config.prediction_type, config.clip_sample_range if config.clip_sample else None
        alphas, gap = scheduler.alphas_cumprod, scheduler.config.num_train_timesteps // scheduler.num_inference_steps
        now = alphas[scheduler.timesteps]
        before = scheduler.timesteps - gap
        then = torch.where(before >= 0, alphas[before.clamp(min=0)], scheduler.final_alpha_cumprod)
        self.register_buffer("table", torch.stack([now.sqrt(), (1 - now).sqrt(), then.sqrt(), (1 - then).sqrt()], dim=1))

    def forward(self, x: Tensor, out: Tensor, k: Tensor) -> Tensor:
        signal, noise, signal_then, noise_then = self.table.index_select(0, k.reshape(1)).reshape(4, 1, 1, 1).unbind(0)
        clean, eps = (out, (x - signal * out) / noise) if self.predicts == "sample" else ((x - noise * out) / signal, out)
        if self.clip is not None:
            clean = clean.clamp(-self.clip, self.clip)
        return signal_then * clean + noise_then * eps


class DiffusionExport(Family):
    type = "diffusion"
    sampled = True

    def __init__(self, checkpoint, options):
        trained = int(checkpoint.config.get("num_train_timesteps") or TRAINED)
        self.steps = options.steps or self._own_steps(checkpoint.config, trained)
        if self.steps > trained:
            steps = "--steps" if options.steps else "config.json's num_inference_steps"
            raise ExportError(f"{steps} is {self.steps}, want at most the {trained} that the policy was trained with")
        self._say_sampler(checkpoint, options, trained)
        super().__init__(checkpoint, options)
        config = self.policy.config
        if not self.cameras:
            raise ExportError("this policy has no camera, only the simulator's state: it is not served")
        self._check_sizes(config)
        self.meta = {
            "chunk_size": config.n_action_steps,
            "n_action_steps": config.n_action_steps,
            "image_transform": transform(config),
            "num_steps": self.steps,
            "noise_dim": checkpoint.action_dim(),
            "rtc": "none",
        }
        if options.form == "split":
            self.meta["form"] = "split"
        if config.n_obs_steps > 1:
            self.meta["observation_steps"] = config.n_obs_steps
        if config.horizon != config.n_action_steps:
            self.meta["noise_rows"] = config.horizon

    @staticmethod
    def _own_steps(config, trained: int) -> int:
        if config.get("noise_scheduler_type") != "DDIM":
            return min(STEPS, trained)
        return int(config.get("num_inference_steps") or trained)  # as LeRobot

    def _say_sampler(self, checkpoint, options, trained: int) -> None:
        """Notes each difference between the bundle's sampler and the checkpoint's configuration."""
        kind, own = str(checkpoint.config.get("noise_scheduler_type", "DDPM")), checkpoint.config.get("num_inference_steps")
        if kind == "DDIM":
            return
        steps = f"num_inference_steps is {own}" if own else f"num_inference_steps is absent, so LeRobot takes all {trained}"
        chosen = "--steps" if options.steps else "the exporter's default"
        checkpoint.warnings.setdefault(f"noise_scheduler_type is {kind} and {steps}: LeRobot draws new noise at each. The bundle samples with DDIM, eta 0, in {self.steps} steps ({chosen}), which gives other chunks than LeRobot's rollout of this checkpoint; --steps chooses another number")

    def load(self):
        # DDPM draws noise at every step; DDIM runs the same network on the same betas without
        # it. The checkpoint holds the backbone's weights.
        return self.checkpoint.policy(noise_scheduler_type="DDIM", num_inference_steps=self.steps, pretrained_backbone_weights=None, compile_model=False)

    def _check_sizes(self, config) -> None:
        """Refuses sizes of pictures that the policy cannot take: its feature map has a fixed size,
        and so have the pictures, unless the policy resizes or crops them. Warns of distortion."""
        trained = {c.key: self.checkpoint.inputs[c.key][1][1:] for c in self.cameras}
        if len({(c.height, c.width) for c in self.cameras}) > 1:
            raise ExportError(f"the cameras are {', '.join(f'{c.name}={c.height}x{c.width}' for c in self.cameras)}: Diffusion takes pictures of one size, give --cameras the same for each")
        for c in self.cameras:
            size = (c.height, c.width)
            if config.resize_shape is None and config.crop_shape is None and size != trained[c.key]:
                raise ExportError(f"--cameras {c.name}={c.height}x{c.width}: this policy takes pictures of {trained[c.key][0]}x{trained[c.key][1]} only, it neither resizes nor crops")
            crop = config.crop_shape if config.resize_shape is None else None
            if crop is not None and (crop[0] > c.height or crop[1] > c.width):
                raise ExportError(f"--cameras {c.name}={c.height}x{c.width} is smaller than the {crop[0]}x{crop[1]} that the policy crops")
            height, width = trained[c.key]
            if crop is not None and size != (height, width):
                self.checkpoint.warnings.setdefault(f"--cameras {c.name}={c.height}x{c.width}: this policy does not resize, it sees the middle {crop[0]}x{crop[1]} of a picture, which is another part of the scene than of the {height}x{width} in training; leave it out, edge-rt scales the robot's pictures")
            elif c.height * width != c.width * height:
                self.checkpoint.warnings.setdefault(f"--cameras {c.name}={c.height}x{c.width} has another shape than the {height}x{width} in training, and the resize to {config.resize_shape[0]}x{config.resize_shape[1]} distorts it otherwise; give the training's shape")

    def predict(self, batch, case):
        # With one observation LeRobot gives the pictures a time axis but not the state.
        if self.policy.config.n_obs_steps == 1:
            batch = {**batch, "observation.state": batch["observation.state"].unsqueeze(1)}
        self.policy.reset()
        return self.policy.predict_action_chunk(batch, noise=torch.from_numpy(case.inputs["noise"]))

    def prefix(self) -> nn.Module:
        return See(self)

    def step(self) -> nn.Module:
        return Predict(self.policy.diffusion.unet, self.scheduler().timesteps)

    def scheduler(self):
        scheduler = self.policy.diffusion.noise_scheduler
        scheduler.set_timesteps(self.steps)
        return scheduler

    def flow(self) -> sampler.Flow:
        config = self.policy.config
        case = self.case(2, np.random.default_rng(0))
        names = [f"image.{c.name}" for c in self.cameras] + ["state"]
        first = config.n_obs_steps - 1
        return sampler.Flow(
            prefix=self.prefix().eval(), step=self.step().eval(), observation={n: torch.from_numpy(case.inputs[n]) for n in names}, caches=["cond"],
            steps=self.steps, rows=config.horizon, width=self.checkpoint.action_dim(), to_model=ToModel(self), to_robot=ToModel(self, back=True),
            action_dim=self.checkpoint.action_dim(), chunk=(first, first + config.n_action_steps), update=Ddim(self.scheduler(), config),
        )  # fmt: skip


def transform(config) -> str:
    parts = ["u8 / 255, normalised"]
    if config.resize_shape is not None:
        parts.append(f"resized to {config.resize_shape[0]}x{config.resize_shape[1]}")
    if config.crop_shape is not None:
        parts.append(f"centre {config.crop_shape[0]}x{config.crop_shape[1]}")
    return ", ".join(parts)
