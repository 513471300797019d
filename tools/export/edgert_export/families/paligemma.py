"""PaliGemma with an action expert, as Pi0 and Pi0.5 have it: an explicit forward pass over
the loaded modules' weights, with the KV cache as tensors.

Weights are in the type of the export; the residual stream, the norms and the softmax are
fp32 in every type, because half precision loses too much over layers and Euler steps.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import resize
from ..errors import ExportError
from ..images import Picture

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

IMAGE_TRANSFORM = "u8 / 255, resized with padding on all sides, -1 to 1"

# Added to the score of a masked token. It is representable in every type.
UNSEEN = -30000.0


def typed(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The layer with its weights in a type. LeRobot's own layer stays as it is, because
    its policy makes the golden sets."""
    if dtype == torch.float32:
        return layer
    own = copy.copy(layer)
    own._parameters = {k: p if p is None else nn.Parameter(p.detach().to(dtype), requires_grad=False) for k, p in layer._parameters.items()}
    return own


def cast(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """x in a type; adds no node to the graph where x already has it."""
    return x if x.dtype == dtype else x.to(dtype)


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Applies the layer in the type of its weights."""
    return layer(cast(x, layer.weight.dtype))


def sizes(x: Tensor) -> list[int]:
    """The dimensions after the batch, as numbers: in a trace a size would be a node of the graph."""
    return [int(n) for n in x.shape[1:]]


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scaling: float) -> Tensor:
    """q [B, heads, T, d] on k and v [B, kv heads, S, d] -> [B, T, heads * d]."""
    heads, rows, size = sizes(q)
    kv_heads, seen, _ = sizes(k)
    # The heads of one group read the same keys: they are rows of one product.
    grouped = q.reshape(-1, kv_heads, heads // kv_heads * rows, size)
    scores = cast(grouped @ k.transpose(2, 3)) * scaling
    if bias is not None:
        scores = (scores.reshape(-1, heads, rows, seen) + bias).reshape(-1, kv_heads, heads // kv_heads * rows, seen)
    mixed = cast(torch.softmax(scores, dim=-1), v.dtype) @ v
    return mixed.reshape(-1, heads, rows, size).transpose(1, 2).reshape(-1, rows, heads * size)


def split_heads(x: Tensor, heads: int, size: int) -> Tensor:
    return x.reshape(-1, sizes(x)[0], heads, size).transpose(1, 2)


class PadResize(nn.Module):
    """[B, 3, H, W] in 0 to 1 to [B, 3, side, side] in -1 to 1, the picture in the middle.
    Sizes are numbers of the export, not of the trace."""

    def __init__(self, height: int, width: int, side: tuple[int, int]):
        super().__init__()
        self.changes = (height, width) != tuple(side)
        ratio = max(width / side[1], height / side[0])
        self.size = int(height / ratio), int(width / ratio)
        spare = side[0] - self.size[0], side[1] - self.size[1]
        # An odd pixel goes to the right and to the bottom.
        first = [n // 2 for n in spare]
        self.pad = [0, 0, *first], [0, 0, *(n - m for n, m in zip(spare, first, strict=True))]

    def forward(self, x: Tensor) -> Tensor:
        if self.changes:
            x = resize.bilinear(x, *self.size).clamp(0.0, 1.0)
            x = resize.padded(x, *self.pad)
        return x * 2.0 - 1.0


class VisionLayer(nn.Module):
    """One layer of SigLIP."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype):
        super().__init__()
        a = layer.self_attn
        self.heads, self.size, self.scaling, self.activation = a.num_heads, a.head_dim, a.scale, layer.mlp.activation_fn
        self.q, self.k, self.v, self.out, self.up, self.down = (typed(p, dtype) for p in (a.q_proj, a.k_proj, a.v_proj, a.out_proj, layer.mlp.fc1, layer.mlp.fc2))
        self.before, self.after = layer.layer_norm1, layer.layer_norm2

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (split_heads(linear(p, y), self.heads, self.size) for p in (self.q, self.k, self.v))
        x = x + cast(linear(self.out, attend(q, k, v, None, self.scaling)))
        return x + cast(linear(self.down, self.activation(linear(self.up, self.after(x)))))


class Vision(nn.Module):
    """SigLIP and the projector: pictures [N, 3, side, side] to tokens [N, tokens, width]."""

    def __init__(self, paligemma: nn.Module, dtype: torch.dtype):
        super().__init__()
        tower = paligemma.vision_tower
        tower = getattr(tower, "vision_model", tower)
        # Pictures are cut into patches in fp32: it is little work, and bf16 has no such node.
        self.patch, self.norm = tower.embeddings.patch_embedding.float(), tower.post_layernorm
        self.layers = nn.ModuleList(VisionLayer(layer, dtype) for layer in tower.encoder.layers)
        self.projector = typed(paligemma.multi_modal_projector.linear, dtype)
        places = tower.embeddings.position_embedding.weight
        self.tokens, self.width = places.shape
        self.register_buffer("places", places.detach().float()[None])

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patch(pictures).reshape(-1, self.width, self.tokens).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return cast(linear(self.projector, self.norm(x)))


class Norm(nn.Module):
    """Gemma's RMS norm, plain or with the shift and gate of each Euler step."""

    def __init__(self, norm: nn.Module, conditions: Tensor | None):
        super().__init__()
        self.eps, self.width = norm.eps, norm.dim
        self.steps = conditions is not None
        if self.steps:
            # The effect of the time on a layer is known at export: one row of numbers for each
            # step, instead of a large matrix in the graph.
            self.register_buffer("rows", norm.dense(conditions).detach())
        else:
            self.register_buffer("scale", (1.0 + norm.weight.float()).detach().clone())

    def forward(self, x: Tensor, at: Tensor | None = None, clean: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The normalised x, and the factor of its block's result (None: no factor).
        at: the step [1]; clean: the rows [B, T, 1] at time 0."""
        x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps)
        if not self.steps:
            return x * self.scale, None
        row = self.rows.index_select(0, at)
        if clean is not None:
            row = torch.where(clean, self.rows[-1:], row[:, None])
        scale, shift, gate = row.split(self.width, dim=-1)
        return x * (1.0 + scale) + shift, gate


class Layer(nn.Module):
    """One decoder layer of Gemma."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype, conditions: Tensor | None = None):
        super().__init__()
        a, mlp = layer.self_attn, layer.mlp
        self.size, self.scaling, self.activation = a.head_dim, a.scaling, mlp.act_fn
        self.heads, self.kv_heads = a.q_proj.out_features // self.size, a.k_proj.out_features // self.size
        self.q, self.k, self.v, self.out, self.gate, self.up, self.down = (typed(p, dtype) for p in (a.q_proj, a.k_proj, a.v_proj, a.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        self.before, self.after = Norm(layer.input_layernorm, conditions), Norm(layer.post_attention_layernorm, conditions)

    def keys(self, y: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised y as keys and values [B, kv heads, T, d]."""
        k = split_heads(linear(self.k, y), self.kv_heads, self.size)
        return rotate(k, cos, sin), split_heads(linear(self.v, y), self.kv_heads, self.size)

    def mix(self, x: Tensor, y: Tensor, k: Tensor, v: Tensor, bias: Tensor, cos: Tensor, sin: Tensor, gate: Tensor | None, at=None, clean=None) -> Tensor:
        """Attention of the normalised y to k and v, then the feed-forward part, both added to x."""
        q = rotate(split_heads(linear(self.q, y), self.heads, self.size), cos, sin)
        x = x + gated(linear(self.out, attend(q, k, v, bias, self.scaling)), gate)
        y, gate = self.after(x, at, clean)
        return x + gated(linear(self.down, self.activation(linear(self.gate, y)) * linear(self.up, y)), gate)


def gated(y: Tensor, gate: Tensor | None) -> Tensor:
    return cast(y) if gate is None else cast(y) * gate


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on x [B, heads, T, d], with cos and sin [B, 1, T, d]."""
    half = sizes(x)[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cast(cos, x.dtype) + turned * cast(sin, x.dtype)


class Positions(nn.Module):
    """cos and sin [B, 1, T, d] of positions [B, T] below `most`, from constant tables."""

    def __init__(self, rotary: nn.Module, most: int):
        super().__init__()
        cos, sin = rotary(torch.zeros(1, dtype=torch.float32), torch.arange(most)[None])
        self.register_buffer("cos", cos[0].contiguous())
        self.register_buffer("sin", sin[0].contiguous())

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return F.embedding(positions, self.cos)[:, None], F.embedding(positions, self.sin)[:, None]


class Prefix(nn.Module):
    """Pictures and prompt to the KV cache: forward(pictures..., state, tokens, token_mask).

    A camera that the robot lacks is left out. LeRobot masks its tokens as keys and counts
    positions without them, so its absence does not change any other token.
    """

    def __init__(self, family, suffix: int, state: nn.Module | None, among: Tensor):
        """suffix: the number of rows of a step. state: the state's token for the steps, or None.
        among: bool [suffix, suffix], the attention mask among the rows of a step."""
        super().__init__()
        model = family.policy.model.paligemma_with_expert
        paligemma, side = model.paligemma.model, tuple(family.policy.config.image_resolution)
        if not family.cameras:
            raise ExportError("every camera of this policy is missing, want at least one: LeRobot refuses that too")
        self.pictures = nn.ModuleList(nn.Sequential(Picture(family.picture_in(c.key)), PadResize(c.height, c.width, side)) for c in family.cameras)
        dtype, words = DTYPES[family.options.dtype], paligemma.language_model.embed_tokens
        self.side, self.vision = side, Vision(paligemma, dtype)
        self.words, self.scale, self.width = typed(words, dtype), words.scalar_embed_scale, words.embedding_dim
        self.layers = nn.ModuleList(Layer(layer, dtype) for layer in paligemma.language_model.layers)
        self.first = len(family.cameras) * self.vision.tokens  # the first token of the prompt
        self.rows, self.state = self.first + family.max_len, state
        self.positions = Positions(paligemma.language_model.rotary_emb, self.rows + suffix)
        self.register_buffer("picture_places", torch.arange(self.first)[None])
        self.register_buffer("suffix_places", torch.arange(suffix)[None])
        # A row of a step attends to all tokens of the prefix that the mask admits.
        seen = torch.where(among, 0.0, UNSEEN)
        self.register_buffer("among", F.pad(seen, (self.rows, 0))[None, None])

    def caches(self) -> list[str]:
        keys = [name for i in range(len(self.layers)) for name in (f"key.{i}", f"value.{i}")]
        return [*keys, "bias", "cos", "sin", *(["state_token"] if self.state is not None else [])]

    def embeddings(self, pictures: tuple[Tensor, ...], tokens: Tensor) -> Tensor:
        seen = torch.stack([fit(u8) for fit, u8 in zip(self.pictures, pictures, strict=True)], dim=1)
        # All cameras go through the tower at once, as one batch.
        vision = self.vision(seen.reshape(-1, 3, *self.side)).reshape(-1, self.first, self.width)
        words = cast(F.embedding(tokens, self.words.weight)) * self.scale
        return torch.cat([vision, words], dim=1)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        *pictures, state, tokens, token_mask = inputs
        x = self.embeddings(tuple(pictures), tokens)
        counted = torch.cumsum(token_mask.to(torch.int64), dim=1)
        # Padding continues the positions of the token before it; it is always masked.
        every = self.picture_places + 0 * counted[:, :1]
        cos, sin = self.positions(torch.cat([every, self.first - 1 + counted], dim=1))
        unseen = torch.where(token_mask, 0.0, UNSEEN)[:, None, None]
        bias = resize.padded(unseen, [0, 0, 0, self.first], [0] * 4)
        cache = []
        for i, layer in enumerate(self.layers):
            y, _ = layer.before(x)
            k, v = layer.keys(y, cos, sin)
            cache += [k, v]
            # Only the keys and values of the last layer are used.
            if i < len(self.layers) - 1:
                x = layer.mix(x, y, k, v, bias, cos, sin, None)
        suffix = self.positions(self.first + counted[:, -1:] + self.suffix_places)
        bias = resize.padded(bias, [0] * 4, [0, 0, 0, sizes(self.suffix_places)[0]]) + self.among
        tokens = [] if self.state is None else [self.state(state)]
        return *cache, bias, *suffix, *tokens


class Expert(nn.Module):
    """The action expert: rows [B, T, width] of a step to its last hidden state."""

    def __init__(self, family, conditions: Tensor | None = None):
        super().__init__()
        expert = family.policy.model.paligemma_with_expert.gemma_expert.model
        dtype = DTYPES[family.options.dtype]
        self.layers = nn.ModuleList(Layer(layer, dtype, conditions) for layer in expert.layers)
        self.norm = Norm(expert.norm, conditions)

    def forward(self, x: Tensor, cache: tuple[Tensor, ...], bias: Tensor, cos: Tensor, sin: Tensor, at: Tensor | None = None, clean: Tensor | None = None) -> Tensor:
        for i, layer in enumerate(self.layers):
            y, gate = layer.before(x, at, clean)
            k, v = layer.keys(y, cos, sin)
            k, v = torch.cat([cache[2 * i], k], dim=2), torch.cat([cache[2 * i + 1], v], dim=2)
            x = layer.mix(x, y, k, v, bias, cos, sin, gate, at, clean)
        return self.norm(x, at, clean)[0]


def times(policy: nn.Module, steps: int, width: int) -> Tensor:
    """LeRobot's embedding of the time of each Euler step, and of time 0 as the last row."""
    from lerobot.policies.common.vla_utils import create_sinusoidal_pos_embedding

    time = torch.tensor([1.0 + k * (-1.0 / steps) for k in range(steps)] + [0.0], dtype=torch.float32)
    config = policy.config
    return create_sinusoidal_pos_embedding(time, width, min_period=config.min_period, max_period=config.max_period, device=time.device).float()

