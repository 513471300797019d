#!/usr/bin/env python3
"""Train small tokenizers and write the Python libraries' tokens of 1,000 strings.

    python3 testdata/tokenizer/make.py

needs tokenizers 0.22.2, sentencepiece 0.2.3, transformers 5.5.4 and lerobot 0.6.1
and writes into its own folder, gzipped:

    smolvlm.json       byte-level BPE, the pipeline of SmolVLM2's tokenizer.json
    gemma.model        SentencePiece BPE as Gemma's tokenizer.model
    plain.model        the same kind without user-defined or long pieces
    gemma.json         Gemma's in the form of transformers, as PaliGemma's tokenizer.json
    cases.json         the strings, and their ids in each of these; gpt2 is
                       smolvlm.json without its Digits step, as in the GPT2Tokenizer
                       of transformers 5
    classes.txt        the class of each code point in the pre-tokenizers
    prompts.json       prompts of Pi0.5 from states by LeRobot's own steps, and their ids

The published tokenizers are not used: we may not redistribute their vocabularies.
The training text is Python's own manual pages, the sentences below, and tasks.
"""

import gzip
import io
import itertools
import json
import os
import pathlib
import pydoc_data.topics
import random
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import lerobot
import sentencepiece
import tokenizers
import torch
import transformers
from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
from lerobot.lerobot_types import TransitionKey
from lerobot.policies.pi05.processor_pi05 import Pi05PrepareStateTokenizerProcessorStep
from lerobot.processor.normalize_processor import NormalizerProcessorStep
from lerobot.utils.constants import OBS_STATE
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
WANT = {"tokenizers": "0.22.2", "sentencepiece": "0.2.3", "transformers": "5.5.4", "lerobot": "0.6.1"}

VERBS = "pick up|grasp|move|place|push|pull|lift|open|close|rotate|stack|pour|wipe|fold|insert|hand over|throw away|press".split("|")
COLOURS = "red|green|blue|yellow|orange|black|white|grey|transparent|wooden|small|large|left|right|nearest".split("|")
THINGS = (
    "cube|block|lego brick|cup|mug|bowl|plate|spoon|drawer|door|towel|sponge|bottle|screwdriver|battery|apple|banana|pen|box|lid|cable|button|tape|sock"
).split("|")
WHERE = (
    "in the bin|on the table|into the drawer|next to the cup|onto the plate|to the right|to the left|in the box|on the shelf|under the lamp|"
    "and put it back|and place it on the tray|at 0.25 m|in slot 12|3 times|within 10 s"
).split("|")

OTHER = [
    "Nimm den roten Würfel und lege ihn in die Schüssel. Schließe die Tür, größer, süß, Öl.",
    "Prends le cube rouge et place-le dans la boîte à côté de l'évier. Ça, c'est déjà prêt, où ?",
    "Coge el cubo rojo y colócalo en el cajón, ¿vale? Mañana, niño, acción, corazón.",
    "Pegue o cubo vermelho e coloque na caixa. Não, ação, coração, amanhã.",
    "Weź czerwony klocek i połóż go na stole. Zażółć gęślą jaźń.",
    "Vezmi červenou kostku a polož ji na stůl. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Возьми красный кубик и положи его в коробку. Открой ящик, закрой дверь.",
    "Πάρε τον κόκκινο κύβο και βάλ' τον στο κουτί.",
    "请把红色的方块放进盒子里。打开抽屉，关上门。把杯子拿起来。",
    "赤いキューブを箱に入れてください。引き出しを開けて、コップを持ち上げる。",
    "빨간 큐브를 상자에 넣어 주세요. 서랍을 열고 문을 닫으세요.",
    "ضع المكعب الأحمر في الصندوق. افتح الدرج وأغلق الباب.",
    "שים את הקובייה האדומה בקופסה. פתח את המגירה.",
    "लाल घन को डिब्बे में रखो। दराज खोलो।",
    "หยิบลูกบาศก์สีแดงใส่กล่อง เปิดลิ้นชัก",
    "Đặt khối lập phương màu đỏ vào hộp. Mở ngăn kéo.",
]

EMOJI = ["🤖", "🦾", "👍🏽", "👩‍🔬", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇯🇵", "1️⃣", "❤️", "☕", "⚠️", "✅", "🫱🏿‍🫲🏻"]

SMOL_FIRST = (
    "<|endoftext|> <|im_start|> <|im_end|> <repo_name> <reponame> <file_sep> <filename> <gh_stars> <issue_start> <issue_comment> "
    "<issue_closed> <jupyter_start> <jupyter_text> <jupyter_code> <jupyter_output> <jupyter_script> <empty_output>"
).split()
SMOL_LAST = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)] + (
    "<global-img> <fake_token_around_image> <image> <end_of_utterance>".split()
)
GEMMA_OWN = (
    ["<mask>", "<2mass>", "[@BOS@]"]
    + [f"<unused{i}>" for i in range(9)]
    + ["<start_of_turn>", "<end_of_turn>"]
    + ["\n" * n for n in range(1, 32)]
    + ["▁" * n for n in range(2, 32)]
    + "<table> <caption> <thead> <tbody> <tr> <td> <h1> <h2> <li> <b> <i> </table> </tr> </td> </b> </i>".split()
)

# Bytes that did not occur in SmolVLM2's corpus have no token in its vocabulary, and are dropped.
MISSING = {0x02, 0x05, 0x0E, 0x1F, 0xF3, 0xF4}


def write(name: str, data: bytes) -> None:
    (HERE / (name + ".gz")).write_bytes(gzip.compress(data, 9, mtime=0))


def dump(value) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def tasks(rng: random.Random, n: int) -> list[str]:
    out = []
    while len(out) < n:
        s = f"{rng.choice(VERBS)} the {rng.choice(COLOURS)} {rng.choice(THINGS)} {rng.choice(WHERE)}"
        s = rng.choice([s, s.capitalize(), s.capitalize() + ".", s.upper(), s.replace(" ", "_"), s + "\n", f" {s} ", f"Please {s}!"])
        out.append(s)
    return out


def corpus() -> list[str]:
    rng = random.Random(1)
    lines = [line for text in pydoc_data.topics.topics.values() for line in text.split("\n")]
    return lines + tasks(rng, 3000) + OTHER * 20 + [f"{rng.randrange(10**rng.randrange(1, 7))} {e}" for e in EMOJI * 10]


def train_smolvlm(lines: list[str]) -> Tokenizer:
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)]
    )
    t.decoder = decoders.ByteLevel()
    alphabet = byte_alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=6000,
        special_tokens=SMOL_FIRST,
        initial_alphabet=[alphabet[b] for b in range(256) if b not in MISSING],
        show_progress=False,
    )
    t.train_from_iterator(lines, trainer)
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SMOL_LAST])
    return t


def byte_alphabet() -> list[str]:
    visible = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or 0xAE <= b]
    hidden = itertools.count(256)
    return [chr(b) if b in visible else chr(next(hidden)) for b in range(256)]


def train_sentencepiece(lines: list[str], pieces: int, own: list[str]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=pieces,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        character_coverage=0.999,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3,
        pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>",
        user_defined_symbols=own,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def gemma_json(model: bytes) -> Tokenizer:
    """PaliGemma's file: Gemma's pieces, <image>, the places and the segments."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokenizer.model").write_bytes(model)
        t = transformers.GemmaTokenizer.from_pretrained(folder, add_bos_token=True)
    t.add_special_tokens({"additional_special_tokens": [AddedToken("<image>", normalized=False, special=True)]})
    t.add_tokens([f"<loc{i:0>4}>" for i in range(32)] + [f"<seg{i:0>3}>" for i in range(8)])
    return t.backend_tokenizer


def by_hand() -> list[str]:
    """Strings that have broken a tokenizer before."""
    special = SMOL_FIRST + SMOL_LAST[:3] + SMOL_LAST[-4:] + ["<pad>", "<eos>", "<bos>", "<unk>", "<s>", "</s>", "<0x41>", "<0xE2>"]
    special += GEMMA_OWN[:16] + GEMMA_OWN[75:] + ["<loc0000>", "<loc0031>", "<seg007>", "<loc9999>"]
    out = ["", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "▁", "▁▁", " ▁ ", "\ufeff", "\u200b", "\u2028", "\u0085", "\0", "a\0b"]
    out += special
    out += [f"put {s} here" for s in special] + [f"a{s}{s}b" for s in special[:20]] + [s[:-1] for s in special[:20]] + [s.upper() for s in special[:10]]
    out += ["<<image>", "<image><image>>", "< image>", "<|im_<|im_end|>", "<row_1_col_1<row_1_col_2>", " <bos> ", "<bos>\n", "\n<eos>"]
    out += [" " * n for n in (3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 64, 100)] + ["\n" * n for n in (3, 31, 32, 33, 63, 64)] + ["\t" * n for n in (2, 7)]
    out += ["a" + " " * n + "b" for n in range(2, 9)] + ["a\n b", "a \n b", "a \n\n  b \t c", " a", "a ", "  a  ", "a\t b", "a \tb", "x  1", "1  x", " 1 2 ", "1  2"]
    out += [chr(c) for c in range(1, 33)] + [f"a{chr(c)}b" for c in list(range(1, 32)) + list(range(127, 161))]
    out += ["it's we're they'll I'd you've I'm don't 's 'S 'LL", "' s", "''s", "'sx", "'tis", "o'clock", "’s"]
    out += ["0", "00", "007", "12", "123456789", "3.14", "-1", "1e-9", "10cm", "x2", "²³", "½", "Ⅷ", "٣٤٥", "１２３", "一二三", "𝟘𝟙", "१२३", "①", "1,000.50"]
    out += ["é", "e\u0301", "Å", "A\u030a", "ñ", "n\u0303", "ﬁ", "ſ", "ǆ", "a\u0301\u0302\u0303b", "\u0301", "q\u0323\u0307", "한", "\u1112\u1161\u11ab", "ក្រ", "नि", "ﷺ"]
    out += EMOJI + [f"pick {e} up" for e in EMOJI] + ["🤖🤖🤖", "👨‍👩‍👧‍👦👨‍👩‍👧‍👦", "\U000f0000", "\U0010ffff", "\U000c0041", "\ufffd", "\ufffe", "\ue000"]
    out += OTHER + ["\u202eabc\u202c", "a\u200fb", "שלום world 123 עולם", "abc مرحبا 123", "x\u200dy", "\u2066a\u2069"]
    out += ["a" * n for n in (2, 3, 17, 100, 500)] + ["ab" * 200, "-" * 80, "=" * 33, "." * 7, "!?" * 20, "A" * 64, "the" * 60, "ing" * 33, "的" * 40, "🤖" * 40]
    return out


def at_random(rng: random.Random, n: int) -> list[str]:
    """Strings of random pieces: words, marks, digits, spaces, any characters."""
    words = [w for s in OTHER for w in s.split()] + VERBS + THINGS + GEMMA_OWN[:14] + SMOL_LAST[-4:] + ["<bos>", "</s>", "'s", "'ll", "▁", "_"]

    def some() -> str:
        k = rng.randrange(9)
        if k < 3:
            return rng.choice(words)
        if k == 3:
            return str(rng.randrange(10 ** rng.randrange(1, 8)))
        if k == 4:
            return rng.choice([" ", "\n", "\t", "\u00a0", "\r"]) * rng.randrange(1, 5)
        if k == 5:
            return "".join(chr(rng.randrange(33, 127)) for _ in range(rng.randrange(1, 6)))
        if k == 6:
            return rng.choice(EMOJI)
        if k == 7:
            return chr(rng.choice([rng.randrange(0xA0, 0x800), rng.randrange(0x800, 0xD800), rng.randrange(0xE000, 0x30000)]))
        return chr(rng.randrange(0x300, 0x370))

    return [rng.choice(["", " "]).join(some() for _ in range(rng.randrange(1, 25))) for _ in range(n)]


def prompts(rng: random.Random, ids_of) -> list[dict]:
    """Prompts of Pi0.5 by LeRobot's own steps: normalise, digitise, clean, join."""
    edge_cases = [-1.0, 1.0, -1.0000001, 0.99999994, -1e-30, 1e-30, 0.0, -0.0, -0.0078125, 3e38, -3e38, 1e-45, -1e-45]
    texts = tasks(rng, 160) + ["  pick_up\nthe cube \u00a0\x1c", "", "_", "task: 12, State: 3", "赤いキューブ 🤖", "<bos>", "a  b", ":", "\r\nx\t", "{state}", " {state} {task}"]
    out = []
    modes = [NormalizationMode.IDENTITY, NormalizationMode.QUANTILES, NormalizationMode.MIN_MAX, NormalizationMode.MEAN_STD, NormalizationMode.QUANTILES]
    for i, task in enumerate(texts):
        dim, mode = rng.choice([1, 6, 7, 14]), modes[i % len(modes)]
        stats, case = statistics(rng, mode, dim)
        scale = 0.7 if mode == NormalizationMode.IDENTITY else 60
        state = torch.tensor([rng.gauss(0, scale) for _ in range(dim)], dtype=torch.float32)
        if case.get("span") and i % 2:  # the edges of bins, where rounding matters
            state = torch.tensor(case["a"]) + torch.tensor([rng.randrange(257) / 256 for _ in range(dim)]) * torch.tensor(case["span"])
        if i % 3 == 0:
            state[0] = rng.choice(edge_cases)
        step = {
            TransitionKey.OBSERVATION: {OBS_STATE: state[None]},
            TransitionKey.ACTION: None,
            TransitionKey.COMPLEMENTARY_DATA: {"task": [task]},
        }
        normalise = NormalizerProcessorStep(
            features={OBS_STATE: PolicyFeature(FeatureType.STATE, (dim,))}, norm_map={FeatureType.STATE: mode}, stats={OBS_STATE: stats}
        )
        step = Pi05PrepareStateTokenizerProcessorStep()(normalise(step))
        prompt = step[TransitionKey.COMPLEMENTARY_DATA]["task"][0]
        out.append(case | {"task": task, "state": state.tolist(), "prompt": prompt, "ids": ids_of(prompt)})
    return out


def statistics(rng: random.Random, mode: NormalizationMode, dim: int) -> tuple[dict, dict]:
    """Random statistics of a state, and their form in bundle.json."""
    a = torch.tensor([rng.uniform(-120, 10) for _ in range(dim)], dtype=torch.float32)
    b = a + torch.tensor([rng.choice([rng.uniform(1, 150), rng.uniform(1, 150), 0.0]) for _ in range(dim)], dtype=torch.float32)
    span = torch.where(b - a == 0, torch.tensor(1e-8), b - a)
    form = lambda name, a, span: {"mode": name, "a": a.tolist(), "span": span.tolist()}
    if mode == NormalizationMode.QUANTILES:
        return {"q01": a, "q99": b}, form("quantiles", a, span)
    if mode == NormalizationMode.MIN_MAX:
        return {"min": a, "max": b}, form("min_max", a, span)
    if mode == NormalizationMode.MEAN_STD:
        std = torch.tensor([rng.choice([rng.uniform(1, 50), 0.0]) for _ in range(dim)], dtype=torch.float32)
        return {"mean": a, "std": std}, form("mean_std", a, std + 1e-8)
    return {}, {"mode": "identity"}


def classes() -> bytes:
    """Runs of code points: letter, number, space or other to ByteLevel; digit to Digits."""
    level, digits = pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(True)
    out, last = [], None
    for cp in range(0x110000):
        kind = "other"
        if not 0xD800 <= cp < 0xE000:
            one = lambda s: len(level.pre_tokenize_str(s + chr(cp))) == 1
            kind = "letter" if one("a") else "number" if one("1") else "other" if one("!") else "space"
            if len(digits.pre_tokenize_str("a" + chr(cp))) == 2:
                kind += "+digit"
        if kind != last:
            out.append(f"{cp:x} {kind}\n")
            last = kind
    return "".join(out).encode()


def main() -> None:
    have = {m.__name__: m.__version__ for m in (tokenizers, sentencepiece, transformers, lerobot)}
    if have != WANT:
        sys.exit(f"have {have}, want {WANT}")
    lines = corpus()
    smol = train_smolvlm(lines)
    model = train_sentencepiece(lines, 8000, GEMMA_OWN)
    plain_model = train_sentencepiece(lines, 3000, [])
    gemma = gemma_json(model)
    piece = sentencepiece.SentencePieceProcessor(model_proto=model)
    plain = sentencepiece.SentencePieceProcessor(model_proto=plain_model)
    gpt2 = Tokenizer.from_str(smol.to_str())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    rng = random.Random(2)
    texts = list(dict.fromkeys(by_hand()))
    texts += tasks(rng, 300)
    texts += at_random(rng, 1000 - len(texts))
    if len(texts) != 1000:
        sys.exit(f"{len(texts)} strings, want 1000")

    write("smolvlm.json", smol.to_str().encode())
    write("gemma.json", gemma.to_str().encode())
    write("gemma.model", model)
    write("plain.model", plain_model)
    write("classes.txt", classes())
    cases = [
        {
            "text": s,
            "smolvlm": smol.encode(s).ids,
            "gpt2": gpt2.encode(s).ids,
            "words": [len(w) for w, _ in gpt2.pre_tokenizer.pre_tokenize_str(s)],  # in bytes
            "gemma_json": gemma.encode(s).ids,
            "gemma_model": [2] + piece.encode(s),
            "plain_model": plain.encode(s),
        }
        for s in texts
    ]
    write("cases.json", dump({"versions": have, "cases": cases}))
    write("prompts.json", dump({"versions": have, "prompts": prompts(rng, lambda s: gemma.encode(s).ids)}))


if __name__ == "__main__":
    main()
