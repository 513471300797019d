"""SmolVLA: a vision-language model whose keys and values an expert attends to at every step of the flow.

The prefix embeds pictures, task and state, and runs the language model once; every step runs the expert over the chunk's
rows. It uses LeRobot's weights, with sizes known at export: values that depend on no input (time and position tables, the
pictures' positions) are constants, the expert's keys and values of the prefix are computed once and not at every step, and
empty cameras, to which nothing attends, are left out.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import resize
from ..errors import ExportError
from ..images import to_float
from .flow import FlowFamily


class Rope:
    """Rotary positions from constant tables of the sine and cosine of every position."""

    def __init__(self, positions: int, size: int) -> None:
        half = size // 2
        # LeRobot's arithmetic, in float32.
        scale = 10_000 ** ((2.0 / size) * torch.arange(half, dtype=torch.float32))
        radians = torch.arange(positions)[:, None].to(torch.float32) / scale[None]
        self.cos, self.sin = torch.cos(radians), torch.sin(radians)


def features(x: Tensor) -> int:
    """The last dimension, as a number that tracing does not follow."""
    return int(x.shape[-1])


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, L, heads, size], cos and sin [B, L, 1, size / 2]."""
    a, b = x.split(features(x) // 2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Heads:
    """Splits a layer's projections into heads; `groups` heads share a key and a value."""

    def __init__(self, config: Any) -> None:
        self.kv, self.size = int(config.num_key_value_heads), int(config.head_dim)
        self.groups = int(config.num_attention_heads) // self.kv

    def split(self, x: Tensor, rows: int) -> Tensor:
        """[B, rows, n * size] -> [B, rows, n, size]."""
        return x.reshape(-1, rows, features(x) // self.size, self.size)

    def queries(self, x: Tensor, rows: int) -> Tensor:
        """[B, rows, kv * groups, size] -> [B, kv, groups * rows, size]: one product per key, for all queries that share it."""
        x = (x * self.size**-0.5).reshape(-1, rows, self.kv, self.groups, self.size)
        return x.permute(0, 2, 3, 1, 4).reshape(-1, self.kv, self.groups * rows, self.size)

    def joined(self, x: Tensor, rows: int) -> Tensor:
        """[B, kv, groups * rows, size] -> [B, rows, kv * groups * size]."""
        x = x.reshape(-1, self.kv, self.groups, rows, self.size).permute(0, 3, 1, 2, 4)
        return x.reshape(-1, rows, self.kv * self.groups * self.size)


def attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """q [B, kv, rows, size], keys [B, kv, size, L], values [B, kv, L, size], mask bool [B, 1, rows, L]."""
    scores = torch.matmul(q, keys)
    scores = torch.where(mask, scores, torch.full((1,), torch.finfo(torch.float32).min))
    return torch.matmul(torch.softmax(scores, dim=-1), values)


def rms_norm(norm: nn.Module, x: Tensor) -> Tensor:
    return norm.weight * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + norm.variance_epsilon))


def feed(layer: nn.Module, x: Tensor, attended: Tensor) -> Tensor:
    """The part of a layer after its attention."""
    x = x + layer.self_attn.o_proj(attended)
    h = rms_norm(layer.post_attention_layernorm, x)
    gate = layer.mlp.gate_proj(h)
    return x + layer.mlp.down_proj(gate * torch.sigmoid(gate) * layer.mlp.up_proj(h))


class Eyes(nn.Module):
    """Pictures [B, 3, height, width] in -1 to 1 -> embeddings [B, tokens, width of the language model]."""

    def __init__(self, vlm: nn.Module, height: int, width: int) -> None:
        super().__init__()
        model = vlm.vision_model
        self.model, self.connector = model, vlm.connector
        patch = model.embeddings.patch_size
        self.rows, self.columns = height // patch, width // patch
        self.scale = int(vlm.connector.scale_factor)
        if self.rows != self.columns or self.rows % self.scale:
            raise ExportError(f"pictures of {height}x{width} make {self.rows}x{self.columns} patches, want a square of a multiple of {self.scale}: SmolVLA's connector takes no other")
        self.register_buffer("position", model.embeddings.position_embedding(self._positions(height, width)).detach())
        attention = model.encoder.layers[0].self_attn
        self.heads, self.size = attention.num_heads, attention.head_dim

    @torch.no_grad()
    def _positions(self, height: int, width: int) -> Tensor:
        """The table's row of each patch [1, patches], as the model computes it for a whole picture."""
        found: list[Tensor] = []
        table = self.model.embeddings.position_embedding
        hook = table.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        try:
            mask = torch.ones(1, self.rows, self.columns, dtype=torch.bool)
            self.model.embeddings(pixel_values=torch.zeros(1, 3, height, width), patch_attention_mask=mask)
        finally:
            hook.remove()
        return found[0]

    def forward(self, x: Tensor) -> Tensor:
        patches = self.rows * self.columns
        x = self.model.embeddings.patch_embedding(x).reshape(-1, features(self.position), patches).transpose(1, 2) + self.position
        for layer in self.model.encoder.layers:
            h, own = layer.layer_norm1(x), layer.self_attn
            q, k, v = (p(h).reshape(-1, patches, self.heads, self.size) for p in (own.q_proj, own.k_proj, own.v_proj))
            scores = torch.matmul((q * own.scale).permute(0, 2, 1, 3), k.permute(0, 2, 3, 1))
            h = torch.matmul(torch.softmax(scores, dim=-1), v.permute(0, 2, 1, 3)).permute(0, 2, 1, 3)
            x = x + own.out_proj(h.reshape(-1, patches, self.heads * self.size))
            x = x + layer.mlp(layer.layer_norm2(x))
        x = self.model.post_layernorm(x)
        return self.connector.modality_projection(self._shuffled(x, features(x)))

    def _shuffled(self, x: Tensor, size: int) -> Tensor:
        """A square of scale x scale patches becomes one token."""
        s, rows, columns = self.scale, self.rows, self.columns
        x = x.reshape(-1, rows, columns // s, size * s).permute(0, 2, 1, 3)
        x = x.reshape(-1, columns // s, rows // s, size * s * s).permute(0, 2, 1, 3)
        return x.reshape(-1, rows * columns // (s * s), size * s * s)


def cache_names(plan: list[tuple[int, str]]) -> list[str]:
    kv = [f"{what}.{i}" for i, kind in plan if kind for what in ("key", "value")]
    return ["own_mask", "cross_mask", "cos", "sin", *kv]


class Prefix(nn.Module):
    """Pictures, state, tokens -> the masks, the positions and the keys and values that the steps need."""

    def __init__(self, family: "SmolVLAExport") -> None:
        super().__init__()
        config, model = family.policy.config, family.policy.model
        self.expert = model.vlm_with_expert
        vlm = self.expert.get_vlm_model()
        self.model, self.text = model, vlm.text_model
        self.cameras, self.state_in = len(family.cameras), family.state_in()
        self.pictures = nn.ModuleList(family.picture_in(c.key) for c in family.cameras)
        self.target = config.resize_imgs_with_padding  # (width, height)
        self.eyes = Eyes(vlm, self.target[1], self.target[0])
        self.rows, self.state_width = config.chunk_size, config.max_state_dim
        self.fit = [_fit(c.height, c.width, self.target) for c in family.cameras]
        self.heads = Heads(self.expert.config.text_config)
        self.tokens = family.max_len
        special = config.add_image_special_tokens
        embed = self.text.get_input_embeddings()
        self.register_buffer("before", embed(model.global_image_start_token)[None].detach() if special else None)
        self.register_buffer("after", embed(model.image_end_token)[None].detach() if special else None)
        each = self.eyes.rows * self.eyes.columns // self.eyes.scale**2 + (3 if special else 0)
        self.length = self.cameras * each + self.tokens + 1
        self.register_buffer("seen", torch.ones(1, self.cameras * each, dtype=torch.bool))
        self.register_buffer("last", torch.arange(self.length) == self.length - 1)
        rope = Rope(self.length + self.rows, self.heads.size)
        self.register_buffer("cos", rope.cos)
        self.register_buffer("sin", rope.sin)
        self.register_buffer("causal", torch.ones(self.rows, self.rows, dtype=torch.bool).tril())
        self.plan = family.plan

    def caches(self) -> list[str]:
        return cache_names(self.plan)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        pictures, (state, tokens, token_mask) = values[: self.cameras], values[self.cameras :]
        x = self.embed(pictures, state, tokens)
        always = token_mask[:, :1] | ~token_mask[:, :1]
        pad = torch.cat([self.seen & always, token_mask, always], dim=1)
        positions = torch.cumsum(pad.to(torch.int64), dim=1) - 1
        # Only the state's row attends to the state; the state attends to everything.
        mask = pad[:, None, :] & pad[:, :, None] & (self.last[:, None] | ~self.last[None])[None]
        cos, sin = self.cos[positions][:, :, None], self.sin[positions][:, :, None]
        caches = self.run(x, self._grouped(mask[:, None], self.length), cos, sin)

        after = pad.to(torch.int64).sum(1, keepdim=True) + torch.arange(self.rows)[None]
        cross = self._grouped(pad[:, None, None, :] & torch.ones(1, 1, self.rows, 1, dtype=torch.bool), self.rows)
        causal = (self.causal[None] & always[:, :, None])[:, None]
        own = torch.cat([cross, self._grouped(causal, self.rows)], dim=3)
        return own, cross, self.cos[after][:, :, None], self.sin[after][:, :, None], *caches

    def embed(self, pictures: tuple[Tensor, ...], state: Tensor, tokens: Tensor) -> Tensor:
        # One picture after the other: attention over all n pictures at once needs n times the memory.
        parts = []
        for picture, normalize, fit in zip(pictures, self.pictures, self.fit, strict=True):
            seen = self.eyes(fitted(normalize(to_float(picture)), fit) * 2.0 - 1.0)
            size = features(seen)
            seen = seen * size**0.5
            parts += [seen] if self.before is None else [self._all(self.before, seen), seen, self._all(self.after, seen)]
        words = self.text.get_input_embeddings()(tokens) * math.sqrt(size)
        state = resize.padded(self.state_in(state), [0, 0], [0, self.state_width - features(state)])
        return torch.cat([*parts, words, self.model.state_proj(state)[:, None]], dim=1)

    def run(self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
        """Runs the language model's layers over the prefix. Returns the keys and values of each layer that the expert
        attends to."""
        caches, heads, length = [], self.heads, self.length
        for i, kind in self.plan:
            layer = self.text.layers[i]
            h = rms_norm(layer.input_layernorm, x)
            own = layer.self_attn
            key = rotate(heads.split(own.k_proj(h), length), cos, sin)
            value = heads.split(own.v_proj(h), length)
            if kind == "cross":
                expert = self.expert.get_model_layers([self.text, self.expert.lm_expert])[1][i].self_attn
                for given, project in ((key, expert.k_proj), (value, expert.v_proj)):
                    caches.append(heads.split(project(given.reshape(-1, length, heads.kv * heads.size)), length))
                caches[-2:] = [caches[-2].permute(0, 2, 3, 1), caches[-1].permute(0, 2, 1, 3)]
            keys, values = key.permute(0, 2, 3, 1), value.permute(0, 2, 1, 3)
            if kind == "own":
                caches += [keys, values]
            if i == self.plan[-1][0]:
                break
            q = heads.queries(rotate(heads.split(own.q_proj(h), length), cos, sin), length)
            x = feed(layer, x, heads.joined(attend(q, keys, values, mask), length))
        return caches

    def _grouped(self, mask: Tensor, rows: int) -> Tensor:
        """[B, 1, rows, L] -> [B, 1, groups * rows, L], as Heads.queries orders the rows."""
        return torch.cat([mask] * self.heads.groups, dim=2)

    @staticmethod
    def _all(one: Tensor, like: Tensor) -> Tensor:
        """Repeats the rows for every sample of a batch of dynamic size."""
        return one + 0 * like[:, :1]


def _fit(height: int, width: int, target: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Height and width to resize to and the padding on top and left, as LeRobot's resize_with_pad; None: no resizing."""
    if (height, width) == (target[1], target[0]):
        return None
    ratio = max(width / target[0], height / target[1])
    h, w = int(height / ratio), int(width / ratio)
    return h, w, max(0, target[1] - h), max(0, target[0] - w)


def fitted(x: Tensor, fit: tuple[int, int, int, int] | None) -> Tensor:
    if fit is None:
        return x
    height, width, top, left = fit
    return resize.padded(resize.bilinear(x, height, width), [0, 0, top, left], [0, 0, 0, 0])


class Step(nn.Module):
    """The expert over the chunk's rows: x -> v."""

    def __init__(self, family: "SmolVLAExport", caches: list[str]) -> None:
        super().__init__()
        config, model = family.policy.config, family.policy.model
        self.model, self.plan, self.names = model, family.plan, caches
        self.norm = model.vlm_with_expert.lm_expert.norm
        found = model.vlm_with_expert.get_model_layers([model.vlm_with_expert.get_vlm_model().text_model, model.vlm_with_expert.lm_expert])
        self.layers = nn.ModuleDict({str(i): found[1][i] for i, kind in self.plan if kind})
        self.heads, self.rows = Heads(model.vlm_with_expert.config.text_config), config.chunk_size
        rope = Rope(self.rows, self.heads.size)
        self.register_buffer("cos", rope.cos[None, :, None])
        self.register_buffer("sin", rope.sin[None, :, None])
        # The first layer after the actions' embedding also takes the time: that part of its result is a row of a table.
        mixed, width = model.action_time_mlp_in, model.vlm_with_expert.expert_hidden_size
        self.register_buffer("mix", mixed.weight[:, :width].T.detach().clone())
        self.register_buffer("times", self._times(config, width, mixed))

    @staticmethod
    @torch.no_grad()
    def _times(config: Any, width: int, mixed: nn.Linear) -> Tensor:
        """The part of that layer's result that depends on the step's time, [steps, 1, width]."""
        from lerobot.policies.common.vla_utils import create_sinusoidal_pos_embedding

        times = torch.tensor([1.0 + k * (-1.0 / config.num_steps) for k in range(config.num_steps)], dtype=torch.float32)
        embedded = create_sinusoidal_pos_embedding(times, width, config.min_period, config.max_period, device=times.device)
        embedded = embedded.to(torch.float32).double()
        return (embedded @ mixed.weight[:, width:].double().T + mixed.bias.double()).float()[:, None]

    def forward(self, x: Tensor, k: Tensor, clean: Tensor, *caches: Tensor) -> Tensor:
        given = dict(zip(self.names, caches, strict=True))
        h = torch.matmul(self.model.action_in_proj(x), self.mix) + self.times.index_select(0, k.reshape(1))
        h = self.model.action_time_mlp_out(h * torch.sigmoid(h))
        heads, rows = self.heads, self.rows
        for i, kind in self.plan:
            if not kind:
                continue
            layer = self.layers[str(i)]
            own, n = layer.self_attn, rms_norm(layer.input_layernorm, h)
            q = heads.split(own.q_proj(n), rows)
            key, value = given[f"key.{i}"], given[f"value.{i}"]
            if kind == "own":
                cos, sin, mask = given["cos"], given["sin"], given["own_mask"]
                fresh = rotate(heads.split(own.k_proj(n), rows), cos, sin)
                key = torch.cat([key, fresh.permute(0, 2, 3, 1)], dim=3)
                value = torch.cat([value, heads.split(own.v_proj(n), rows).permute(0, 2, 1, 3)], dim=2)
            else:
                cos, sin, mask = self.cos, self.sin, given["cross_mask"]
            q = heads.queries(rotate(q, cos, sin), rows)
            h = feed(layer, h, heads.joined(attend(q, key, value, mask), rows))
        return self.model.action_out_proj(rms_norm(self.norm, h))


class SmolVLAExport(FlowFamily):
    type = "smolvla"
    pre = ["rename_observations_processor", "smolvla_new_line_processor", "tokenizer_processor", "normalizer_processor"]
    image_transform = "u8 / 255, resized with padding on top and left, -1 to 1"
    kind = "bpe"
    template = "{task}\n"  # without a second newline where the task ends with one

    def __init__(self, checkpoint, options):
        super().__init__(checkpoint, options)
        if not self.cameras:
            raise ExportError("config.json's input_features have no picture, want at least one: SmolVLA looks at its scene")
        if self.policy.config.adapt_to_pi_aloha:
            raise ExportError("config.json has adapt_to_pi_aloha: the graph does not turn Aloha's joints into Pi's; train without it")

    def load(self):
        """LeRobot's policy in float32. It reads the language model's configuration from a folder, which needs no
        weights."""
        changes: dict[str, Any] = {"vlm_model_name": str(self.words), "load_vlm_weights": False, "compile_model": False, "rtc_config": None}
        if self.options.steps:
            changes["num_steps"] = self.options.steps
        return self.checkpoint.policy(**changes).float()

    def find_tokenizer(self, checkpoint, options) -> Path:
        """The language model's folder: config.json, processor_config.json and tokenizer.json."""
        name = checkpoint.config.get("vlm_model_name") or ""
        folder = Path(options.vlm or name)
        if (options.vlm or name) and all((folder / file).is_file() for file in ("config.json", "tokenizer.json")):
            return folder
        given = f"--vlm is {options.vlm}, which is not a folder with config.json and tokenizer.json" if options.vlm else f"{name!r} is not a folder of this machine, and there is no --vlm"
        raise ExportError(
            f"SmolVLA's language model: {given}: its sizes and its tokenizer are not in the checkpoint; "
            f"fetch them with `hf download {name} --include '*.json' --local-dir DIR` and give `--vlm DIR`"
        )

    def steps(self) -> int:
        return int(self.policy.config.num_steps)

    def check_prompt(self, config: dict[str, Any]) -> None:
        """LeRobot pads to the longest task of a batch or to the maximum length; with the mask the chunks are equal."""
        for key, want in (("padding", ("longest", "max_length")), ("padding_side", ("right",)), ("truncation", (True,))):
            if config.get(key, want[0]) not in want:
                raise ExportError(f"tokenizer_processor has {key} {config[key]!r}, want {' or '.join(map(repr, want))}: the server pads every prompt so")

    @property
    def plan(self) -> list[tuple[int, str]]:
        """The expert's attention in each layer, up to its last: "own" (to the prefix and its own rows, LeRobot's
        self-attention), "cross" (to the prefix alone), or "" (no attention)."""
        whole = self.policy.model.vlm_with_expert
        vlm = whole.get_vlm_model()
        experts = whole.get_model_layers([vlm.text_model, whole.lm_expert])[1]
        every = whole.self_attn_every_n_layers
        plan = []
        for i, layer in enumerate(experts):
            cross = "cross" in whole.attention_mode and not (every > 0 and i % every == 0)
            plan.append((i, "" if layer is None else "cross" if cross else "own"))
        while not plan[-1][1]:
            plan.pop()
        return plan

    def language_model(self) -> nn.Module:
        return self.policy.model.vlm_with_expert.get_vlm_model().text_model

    def prefix(self) -> nn.Module:
        return Prefix(self)

    def step(self) -> nn.Module:
        return Step(self, cache_names(self.plan))
