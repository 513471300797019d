"""A small tokenizer of Gemma's kind: SentencePiece BPE with byte fallback, single
digits, Gemma's ids of the special tokens, and LeRobot's tokenizer.json of it."""

import io
import json
import random
from pathlib import Path

import sentencepiece
from transformers import GemmaTokenizer

PAD, EOS, BOS, UNK = 0, 1, 2, 3

VERBS = ["pick up", "place", "push", "open", "close", "stack", "wipe", "pour", "fold", "grasp"]
THINGS = ["red cube", "blue cup", "small drawer", "towel", "green block", "bowl", "bottle", "lego brick", "spoon", "can"]
PLACES = ["into the box", "on the table", "to the left", "next to the plate", "with both arms", "slowly", "from the shelf", "and wait"]

# Symbols that are single pieces in Gemma's vocabulary.
WHOLE = ["\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "<loc0000>", "<loc0001>", "<seg000>"]


def tasks(seed: int, count: int) -> list[str]:
    """Tasks as people write them."""
    rng = random.Random(seed)
    return [f"{rng.choice(VERBS)} the {rng.choice(THINGS)} {rng.choice(PLACES)}" for _ in range(count)]


def corpus() -> list[str]:
    rng = random.Random(1)
    lines = tasks(2, 400)
    for task in tasks(3, 400):
        state = " ".join(str(rng.randint(-1, 255)) for _ in range(6))
        lines.append(f"Task: {task}, State: {state};")
        lines.append("Action: ")
    return lines


def train(size: int = 512) -> bytes:
    """Trains the model and returns tokenizer.model."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=out, model_type="bpe", vocab_size=size, byte_fallback=True, split_digits=True,
        add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity", allow_whitespace_only_pieces=True,
        pad_id=PAD, eos_id=EOS, bos_id=BOS, unk_id=UNK, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>",
        user_defined_symbols=WHOLE, num_threads=1, minloglevel=2,
    )
    return out.getvalue()


def write(folder: Path, model: bytes | None = None) -> Path:
    """Writes the tokenizer as LeRobot main saves it into a checkpoint's tokenizer/
    folder, and the model file beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model or train())
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False}))
    tokenizer = GemmaTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
