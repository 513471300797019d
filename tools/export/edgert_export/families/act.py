"""ACT: one pass, without the encoder that only training uses."""

import math

import torch
from torch import Tensor, nn

from ..images import Picture
from .base import Family


class Attention(nn.Module):
    """torch's MultiheadAttention, batch first; the batch is the graph's only dynamic size."""

    def __init__(self, mha: nn.MultiheadAttention):
        super().__init__()
        self.heads, self.head_dim = mha.num_heads, mha.head_dim
        self.q, self.k, self.v = (linear(w, b) for w, b in zip(mha.in_proj_weight.chunk(3), mha.in_proj_bias.chunk(3), strict=True))
        self.out = mha.out_proj

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(-1, tokens(x), self.heads, self.head_dim).transpose(1, 2)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q = self.split(self.q(query)) * math.sqrt(1.0 / self.head_dim)
        k, v = self.split(self.k(key)), self.split(self.v(value))
        weights = torch.softmax(q @ k.transpose(-1, -2), dim=-1)
        mixed = (weights @ v).transpose(1, 2)
        return self.out(mixed.reshape(-1, tokens(query), self.heads * self.head_dim))


def tokens(x: Tensor) -> int:
    """The number of tokens, as a number that tracing does not follow."""
    return int(x.shape[1])


def flat(features: Tensor) -> Tensor:
    """A feature map [B, C, H, W] as tokens [B, HW, C]."""
    channels, height, width = (int(n) for n in features.shape[1:])
    return features.reshape(-1, channels, height * width).transpose(1, 2)


def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight, layer.bias = nn.Parameter(weight.detach().clone()), nn.Parameter(bias.detach().clone())
    return layer


class Block(nn.Module):
    """An encoder or decoder layer: self-attention, in a decoder also attention to the
    encoder's tokens, then the feed-forward part. Each adds to its input and is normalised
    before (pre_norm) or after."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.pre = layer, layer.pre_norm
        self.self_attn = Attention(layer.self_attn)
        self.cross = Attention(layer.multihead_attn) if hasattr(layer, "multihead_attn") else None

    def attend_self(self, x: Tensor, pos: Tensor) -> Tensor:
        y = self.layer.norm1(x) if self.pre else x
        x = x + self.self_attn(y + pos, y + pos, y)
        return x if self.pre else self.layer.norm1(x)

    def attend_cross(self, x: Tensor, pos: Tensor, seen: Tensor, seen_pos: Tensor) -> Tensor:
        y = self.layer.norm2(x) if self.pre else x
        x = x + self.cross(y + pos, seen + seen_pos, seen)
        return x if self.pre else self.layer.norm2(x)

    def feed(self, x: Tensor) -> Tensor:
        norm = self.layer.norm3 if self.cross else self.layer.norm2
        y = norm(x) if self.pre else x
        x = x + self.layer.linear2(self.layer.activation(self.layer.linear1(y)))
        return x if self.pre else norm(x)


class ActGraph(nn.Module):
    """Pictures and state to the chunk, with every number of tokens static."""

    def __init__(self, family: "ActExport"):
        super().__init__()
        act = family.policy.model
        self.act = act
        self.pictures = nn.ModuleList(Picture(family.picture_in(c.key)) for c in family.cameras)
        self.state_in, self.action_out = family.state_in(), family.action_out()
        self.encoder = nn.ModuleList(Block(layer) for layer in act.encoder.layers)
        self.decoder = nn.ModuleList(Block(layer) for layer in act.decoder.layers)
        with torch.no_grad():
            # The latent is zero at inference, so its token is constant.
            self.register_buffer("latent", act.encoder_latent_input_proj(torch.zeros(1, act.config.latent_dim)).unsqueeze(1))
            pos = [act.encoder_1d_feature_pos_embed.weight.unsqueeze(0)]
            for c in family.cameras:
                features = act.backbone(torch.zeros(1, 3, c.height, c.width))["feature_map"]
                pos.append(flat(act.encoder_cam_feat_pos_embed(features)))
            self.register_buffer("pos", torch.cat(pos, dim=1))
            self.register_buffer("query_pos", act.decoder_pos_embed.weight.unsqueeze(0).clone())

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        state = inputs[len(self.pictures)]
        embedded = self.act.encoder_robot_state_input_proj(self.state_in(state)).unsqueeze(1)
        seen = [self.latent + torch.zeros_like(embedded), embedded]
        for picture, u8 in zip(self.pictures, inputs, strict=False):
            features = self.act.encoder_img_feat_input_proj(self.act.backbone(picture(u8))["feature_map"])
            seen.append(flat(features))
        x = torch.cat(seen, dim=1)
        for block in self.encoder:
            x = block.feed(block.attend_self(x, self.pos))
        x = self.act.encoder.norm(x)

        # The first layer's self-attention does not depend on the observation: it is computed
        # once, for a batch of one, and becomes a constant.
        y = torch.zeros_like(self.query_pos)
        for i, block in enumerate(self.decoder):
            y = block.attend_self(y, self.query_pos)
            if i == 0:
                y = y + torch.zeros_like(x[:, :1])
            y = block.feed(block.attend_cross(y, self.query_pos, x, self.pos))
        model = self.act.action_head(self.act.decoder.norm(y))
        return model, self.action_out(model)


class ActExport(Family):
    type = "act"

    def __init__(self, checkpoint, options):
        super().__init__(checkpoint, options)
        config = self.policy.config
        self.meta = {
            "chunk_size": config.chunk_size,
            "n_action_steps": config.n_action_steps,
            "image_transform": "u8 / 255, normalised",
            "rtc": "none",
        }

        coeff = getattr(config, "temporal_ensemble_coeff", None)
        if coeff is not None:
            checkpoint.warnings.setdefault(
                f"temporal_ensemble_coeff is {coeff:g}: LeRobot asks this policy at every step and averages what all chunks say of it (weights exp(-{coeff:g} i), the oldest first). The bundle gives whole chunks: with edge-rt's default schedule the arm follows the newest. "
                f"`edge-rt --schedule async --chunk-size-threshold 1 --similarity 0 --aggregate temporal:{-coeff or 1e-6:g}` asks as often as the server answers and takes this mean of all chunks. Watch the arm before you trust either"
            )

    def load(self):
        # The checkpoint holds the backbone's weights, so nothing is fetched.
        return self.checkpoint.policy(pretrained_backbone_weights=None)

    def graph(self) -> nn.Module:
        return ActGraph(self).eval()
