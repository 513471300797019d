"""Pi0 and Pi0.5 checkpoints with random weights, made offline by LeRobot's own classes.

LeRobot fixes Pi's sizes in its code, so the patches of `small()` are needed both to make
a small checkpoint and to load it."""

import contextlib
import importlib
import json
import shutil
from pathlib import Path
from unittest import mock

import torch

import gemma_tokenizer
from checkpoints import features, shake, stats

MODULES = {"pi0": ("lerobot.policies.pi0", "PI0"), "pi05": ("lerobot.policies.pi05", "PI05")}


@contextlib.contextmanager
def small(vocabulary: int = 520, kv_heads: int = 1, depth: int = 3):
    """LeRobot's Pi classes at a small size: 16 tokens a picture, and all hidden sizes different."""
    sizes = {"gemma_2b": dict(width=48, mlp_dim=96), "gemma_300m": dict(width=32, mlp_dim=80)}

    def shrink(config):
        if hasattr(config, "vision_config"):
            config.text_config.vocab_size = vocabulary
            for key, value in dict(hidden_size=40, num_hidden_layers=2, num_attention_heads=2, intermediate_size=72, patch_size=56, projection_dim=config.text_config.hidden_size).items():
                setattr(config.vision_config, key, value)
        else:
            config.vocab_size = vocabulary
        return config

    with contextlib.ExitStack() as stack:
        for kind, (package, _) in MODULES.items():
            module = importlib.import_module(f"{package}.modeling_{kind}")
            variant = lambda name, m=module: m.GemmaConfig(depth=depth, num_heads=4, num_kv_heads=kv_heads, head_dim=16, **sizes[name])
            stack.enter_context(mock.patch.object(module, "get_gemma_config", variant))
            for name in ("PaliGemmaForConditionalGenerationWithPiGemma", "PiGemmaForCausalLM"):
                real = getattr(module, name)
                stack.enter_context(mock.patch.object(module, name, lambda config, real=real: real(config=shrink(config))))
        yield


def make(kind: str, folder: Path, cameras: dict[str, tuple[int, int]] | None = None, tokenizer: Path | None = None, **config) -> Path:
    """A checkpoint in the form of LeRobot's main branch, with the tokenizer in tokenizer/. The
    second camera is square and smaller than the policy's pictures."""
    package, name = MODULES[kind]
    torch.manual_seed(0)
    cameras = cameras or {"front": (96, 130), "wrist": (64, 64)}
    inputs, outputs = features(cameras)
    modeling = importlib.import_module(f"{package}.modeling_{kind}")
    configuration = importlib.import_module(f"{package}.configuration_{kind}")
    processing = importlib.import_module(f"{package}.processor_{kind}")
    chosen = getattr(configuration, f"{name}Config")(input_features=inputs, output_features=outputs, device="cpu", **{"chunk_size": 12, "n_action_steps": 8, **config})
    policy = getattr(modeling, f"{name}Policy")(chosen)
    shake(policy)
    with torch.no_grad():
        # The chunk of a fresh network hardly depends on the observation: the noise passes through.
        for key, weight in policy.named_parameters():
            if "gemma_expert" in key and "o_proj" in key:
                weight.mul_(8)
    policy.save_pretrained(folder)

    words = folder / "tokenizer"
    if tokenizer:
        shutil.copytree(tokenizer, words, dirs_exist_ok=True)
    else:
        gemma_tokenizer.write(words)
    step = processing.TokenizerProcessorStep
    local = lambda tokenizer_name, **rest: step(tokenizer_name=str(words), **rest)
    with mock.patch.object(processing, "TokenizerProcessorStep", local):
        pre, post = getattr(processing, f"make_{kind}_pre_post_processors")(chosen, stats(list(cameras)))
    pre.save_pretrained(folder)
    post.save_pretrained(folder)
    path = folder / "policy_preprocessor.json"
    pipeline = json.loads(path.read_text())
    for entry in pipeline["steps"]:
        if entry.get("registry_name") == "tokenizer_processor":
            entry["config"]["tokenizer_name"] = "tokenizer"
            entry["artifacts"] = {"tokenizer_name": "tokenizer"}
    path.write_text(json.dumps(pipeline))
    return folder
