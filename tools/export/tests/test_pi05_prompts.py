"""Compares Pi0.5's prompt, computed as in the server from the bundle's keys alone, with
LeRobot's processor, and the committed cases with both."""

import json
import math
import random

import numpy as np
import pi05_prompts
import torch
from gemma_tokenizer import tasks
from tokenizers import Tokenizer


def prompt(spec: dict, task: str, state: list[float]) -> str:
    """The server's computation: float32 arithmetic, one rounding for each operation."""
    a, span = (np.float32(spec["state"][k]) for k in ("a", "span"))
    x = np.float32(2) * (np.float32(state) - a) / span - np.float32(1)
    bins = [max(-1, min(255, math.floor(float(v) * 128) + 128)) for v in x]
    clean = task.strip().replace("_", " ").replace("\n", " ")
    return spec["template"].replace("{state}", " ".join(map(str, bins))).replace("{task}", clean, 1)


def test_committed_cases():
    data = json.loads(pi05_prompts.FILE.read_text(encoding="utf-8"))
    assert data["tokenizer"] == pi05_prompts.spec()
    made = pi05_prompts.cases()
    assert len(made) == 100 and data["cases"] == made
    words = Tokenizer.from_file(str(pi05_prompts.WORDS / "tokenizer.json"))
    with np.errstate(over="ignore"):
        for case in data["cases"]:
            assert prompt(data["tokenizer"], case["task"], case["state"]) == case["prompt"]
            assert words.encode(case["prompt"]).ids == case["ids"]


def test_random_states_and_tasks():
    """1,000 more cases, with tasks of random letters."""
    rng = random.Random(8)
    letters = "abc XYZ _\n\t.,;:{}0189é漢😀▁\u00a0\u2003\x1c"
    pre, spec = pi05_prompts.pipeline(pi05_prompts.WORDS), pi05_prompts.spec()
    for task in tasks(10, 200) + ["".join(rng.choice(letters) for _ in range(rng.randint(0, 12))) for _ in range(800)]:
        state = [lo + rng.uniform(-0.2, 1.2) * (h - lo) for lo, h in zip(pi05_prompts.LOW, pi05_prompts.HIGH, strict=True)]
        state = np.float32(state).tolist()
        got = pre({"observation.state": torch.tensor(state), "task": task})["task"][0]
        if "{state}" not in task:
            assert prompt(spec, task, state) == got
