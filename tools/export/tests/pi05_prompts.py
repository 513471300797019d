"""Writes testdata/tokenizer/pi05_prompts.json: the prompts and ids of LeRobot's own
processor for tasks and states, with which the server's tokenizer is compared.

    python tests/pi05_prompts.py     writes the file, and the tokenizer if it is missing
"""

import json
import random
import tempfile
from pathlib import Path

import gemma_tokenizer
import numpy as np
import torch

DATA = Path(__file__).resolve().parents[3] / "testdata" / "tokenizer"
FILE, WORDS = DATA / "pi05_prompts.json", DATA / "pi05"
MAX_LEN = 200

# Statistics with a joint that did not move, and a joint with tiny bounds.
LOW = [-98.5, -10.25, 0.1, 3.0, -1e-4, -180.0]
HIGH = [101.75, 12.5, 0.7, 3.0, 1e-4, 179.9]

TASKS = [
    "", " ", "a", "pick up the red cube", " pick up the red cube ", "pick_up_the_red_cube", "put it\non the\n\ntable", "two  spaces", "three   spaces and    four",
    "\tTab\tand\r\nreturn\r\n", "\u00a0\u2003no-break\u2028 \u3000", "\x1cseparators\x1f", "\u200bzero width\u200b", "_", "__a__", "\n", "▁ ▁▁ literal", "<bos> in a task", "<loc0000><seg000>",
    "25 apples, 7.5 kg", "Größe: ß é ñ", "把红色方块放进盒子", "поднять куб", "😀🤖 emoji", "STATE: 1 2 3;\nAction: ", "Task: x, State: 1;", "e\u0301 combining", "{task} {state}",
]  # fmt: skip


def states(rng: random.Random) -> list[list[float]]:
    """States on, beside, between and far beyond the bins' edges."""
    width = [h - lo if h != lo else 1e-8 for lo, h in zip(LOW, HIGH, strict=True)]
    found = [LOW, HIGH, [0.0] * 6, [(lo + h) / 2 for lo, h in zip(LOW, HIGH, strict=True)], [1e30] * 6, [-1e30] * 6]
    for edge in (-128, -127, -1, 0, 1, 64, 127, 128):
        for nudge in (-1e-6, 0.0, 1e-6):
            found.append([lo + (edge / 128 + 1 + nudge) / 2 * w for lo, w in zip(LOW, width, strict=True)])
    while len(found) < 100:
        found.append([lo + rng.uniform(-0.15, 1.15) * w for lo, w in zip(LOW, width, strict=True)])
    return [[float(np.float32(v)) for v in s] for s in found]


def pipeline(words: Path):
    """Pi0.5's pre-processor with these statistics and this tokenizer."""
    from unittest import mock

    from lerobot.configs import FeatureType, PolicyFeature
    from lerobot.policies.pi05 import processor_pi05
    from lerobot.policies.pi05.configuration_pi05 import PI05Config

    inputs = {"observation.state": PolicyFeature(FeatureType.STATE, (6,))}
    config = PI05Config(input_features=inputs, output_features={"action": PolicyFeature(FeatureType.ACTION, (6,))}, device="cpu")
    stats = {"observation.state": {"q01": torch.tensor(LOW), "q99": torch.tensor(HIGH)}, "action": {"q01": torch.tensor(LOW), "q99": torch.tensor(HIGH)}}
    step = processor_pi05.TokenizerProcessorStep
    with mock.patch.object(processor_pi05, "TokenizerProcessorStep", lambda tokenizer_name, **rest: step(tokenizer_name=str(words), **rest)):
        return processor_pi05.make_pi05_pre_post_processors(config, stats)[0]


def cases() -> list[dict]:
    rng = random.Random(7)
    tasks = TASKS + gemma_tokenizer.tasks(9, 100 - len(TASKS))
    pre, found = pipeline(WORDS), []
    for task, state in zip(tasks, states(rng), strict=True):
        batch = {"observation.state": torch.tensor(state, dtype=torch.float32), "task": task}
        made = pre(batch)
        mask = made["observation.language.attention_mask"][0]
        assert not mask.all() and mask[: int(mask.sum())].all()
        found.append({"task": task, "state": state, "prompt": made["task"][0], "ids": made["observation.language.tokens"][0][mask].tolist()})
    return found


def spec() -> dict:
    """The tokenizer's part of bundle.json."""
    low, high = (np.float32(v) for v in (LOW, HIGH))
    span = np.where(high == low, np.float32(1e-8), high - low)
    state = {"bins": 256, "mode": "quantiles"} | {name: [float(x) for x in v] for name, v in (("a", low), ("b", high), ("span", span))}
    return {"kind": "sentencepiece", "max_len": MAX_LEN, "pad_id": 0, "bos_id": 2, "template": "Task: {task}, State: {state};\nAction: ", "clean": True, "state": state}


def main() -> None:
    if not (WORDS / "tokenizer.json").exists():
        WORDS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            made = gemma_tokenizer.write(Path(folder))
            for name in ("tokenizer.json", "tokenizer.model"):
                (WORDS / name).write_bytes((made / name).read_bytes())
        (WORDS / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>", "add_bos_token": True}) + "\n")
    lines = ",\n    ".join(json.dumps(c, ensure_ascii=False) for c in cases())
    FILE.write_text(f'{{\n  "tokenizer": {json.dumps(spec())},\n  "cases": [\n    {lines}\n  ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
