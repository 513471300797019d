"""Breaks the exporter one line at a time and runs the tests that must notice.

    python mutants.py            all of them
    python mutants.py 3 5        those by number
    python mutants.py act        those whose file name contains the word

A mutation is a file, a text that occurs in it once, and the replacement. Each is made in a
copy of this folder; exit 1 when the tests miss a mutation, or a text no longer occurs once.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

# A mutant whose tests take longer than this hangs, which is noticed too.
LIMIT_S = 600


@dataclasses.dataclass
class Mutant:
    file: str  # in edgert_export
    old: str
    new: str
    tests: str  # arguments of pytest


ACT, BUNDLE, DIFFUSION = "tests/test_act.py::test_two_cameras_and_a_chunk_of_100", "tests/test_bundle.py", "tests/test_diffusion.py"
RTC, SMOLVLA = "tests/test_rtc.py", "tests/test_smolvla.py"
SMOLVLA_100, SMOLVLA_OTHER = f"{SMOLVLA}::test_100_observations_without_and_with_prefixes", f"{SMOLVLA}::test_other_configurations"
ONE, TWO = f"{DIFFUSION}::test_one_observation", f"{DIFFUSION}::test_history_of_two_and_a_checkpoint_of_ddpm"
PI = "tests/test_pi.py"
HEADS, UNROLLED, TRAINED = f"{PI}::test_two_key_heads", f"{PI}::test_other_forms[unrolled]", f"{PI}::test_trained_prefix"

MUTANTS = [
    Mutant("normalize.py", "scale.b + scale.eps if", "scale.b - scale.eps if", "tests/test_normalize.py"),
    Mutant("normalize.py", "return (x + 1) / 2 * self.span + self.a", "return (x + 1) / 2 * self.span - self.a", ONE),
    Mutant("normalize.py", '"QUANTILES": ("q01", "q99")', '"QUANTILES": ("q10", "q90")', "tests/test_act.py::test_other_normalisation tests/test_normalize.py"),
    Mutant("images.py", "x.dim() - 1, x.dim() - 3, x.dim() - 2", "x.dim() - 1, x.dim() - 2, x.dim() - 3", "tests/test_act.py::test_other_normalisation"),
    Mutant("images.py", "picture.to(torch.float32) / 255", "picture.flip(-1).to(torch.float32) / 255", ACT),
    Mutant("images.py", "picture.to(torch.float32) / 255", "picture.to(torch.float32) / 256", ACT),
    Mutant("relative.py", "t in str(n).lower()", "t in str(n)", "tests/test_normalize.py"),
    Mutant("families/act.py", "block.attend_cross(y, self.query_pos, x, self.pos)", "block.attend_cross(y, self.query_pos, x, 0 * self.pos)", ACT),
    Mutant("families/act.py", "self.self_attn(y + pos, y + pos, y)", "self.self_attn(y + pos, y + pos, y + pos)", ACT),
    Mutant("families/act.py", "torch.zeros(1, act.config.latent_dim)", "torch.ones(1, act.config.latent_dim)", ACT),
    Mutant("families/act.py", "y = self.layer.norm2(x) if self.pre else x\n        x = x + self.cross", "y = x\n        x = x + self.cross", "tests/test_act.py::test_other_configurations"),
    Mutant("families/diffusion.py", "int(round((have - want) / 2.0))", "int((have - want) / 2.0)", f"{DIFFUSION}::test_other_configurations"),
    Mutant("families/diffusion.py", "antialias=True, ", "", f"{DIFFUSION}::test_other_configurations"),
    Mutant("families/diffusion.py", "first = config.n_obs_steps - 1", "first = 0", TWO),
    Mutant("families/diffusion.py", "before = scheduler.timesteps - gap", "before = scheduler.timesteps - 1", ONE),
    Mutant("families/diffusion.py", "clean = clean.clamp(-self.clip, self.clip)", "pass", ONE),
    Mutant("families/diffusion.py", "scheduler.final_alpha_cumprod", "alphas[0]", ONE),
    Mutant("checkpoint.py", "keys is not None and feature != ACTION and feature not in keys", "False", f"{BUNDLE}::test_keys_that_are_not_normalised"),
    Mutant("checkpoint.py", "not _same(f.get_tensor(k), have[k])", "False", "tests/test_refusals.py"),
    Mutant("checkpoint.py", "if k not in file and t.data_ptr() not in shared", "if False", "tests/test_refusals.py"),
    Mutant("checkpoint.py", "if got != want:", "if sorted(got) != sorted(want):", "tests/test_refusals.py"),
    Mutant("golden.py", 'if not line["max"] <= most', "if False", f"{BUNDLE}::test_a_wrong_graph_is_not_written"),
    Mutant("bundle.py", "outputs = golden.reference(family, case)", 'outputs = Runner(folder.parent, family.meta)(case.inputs)', f"{BUNDLE}::test_golden_sets_are_lerobots"),
    Mutant("bundle.py", "torch.set_num_threads(1)", "torch.set_num_threads(threads)", f"{BUNDLE}::test_two_exports_are_one_bundle"),
    Mutant("bundle.py", "    write_json(out / \"report.json\", report)\n", "", f"{BUNDLE}::test_report"),
    Mutant("bundle.py", "            shutil.rmtree(partial, ignore_errors=True)\n            raise\n", "            raise\n", "tests/test_refusals.py -k full_disk"),
    Mutant("checkpoint.py", "            raise error\n", "            pass\n", "tests/test_refusals.py -k full_disk"),
    Mutant("checkpoint.py", "and error.filename is None", "and False", "tests/test_refusals.py -k full_disk"),
    Mutant("checkpoint.py", "want {found[-1]}", "want {found[0]}", "tests/test_refusals.py -k instead"),
    Mutant("bundle.py", "camera.height * height == camera.width * width", "False", "tests/test_refusals.py -k height"),
    Mutant("licence.py", "(step.parents[1] if", "(step.parents[0] if", f"{BUNDLE}::test_name_of_a_training"),
    Mutant("dataset.py", "if u not in UNITS", "if not u", "tests/test_refusals.py -k test_flags"),
    Mutant("dataset.py", "if not n.isprintable()", "if not n", "tests/test_refusals.py -k test_flags"),
    Mutant("bundle.py", "abs(w) < CONSTANT", "abs(w) < -CONSTANT", f"{BUNDLE}::test_constant_joint_is_named"),
    Mutant("weights.py", "values.view(np.uint32) & 0xFFFF", "values.view(np.uint32) & 0xFF", "tests/test_weights.py -k rounded_as"),
    Mutant("weights.py", "first + nodes", "nodes + first", "tests/test_weights.py -k first"),
    Mutant("weights.py", "dtype is None and not exact(values)", "False", "tests/test_weights.py -k float32_weights"),
    Mutant("rtc.py", "v - gain *", "v + gain *", RTC),
    Mutant("rtc.py", "x - time * v", "x + time * v", RTC),
    Mutant("rtc.py", "(end - start + 1)", "(end - start + 2)", RTC),
    Mutant("rtc.py", "(self.rows < end[:, None]).float()", "(self.rows <= end[:, None]).float()", RTC),
    Mutant("rtc.py", "1 / (math.e - 1)", "1 / math.e", RTC),
    Mutant("rtc.py", "(sigma_d * sigma_d)", "sigma_d", RTC),
    Mutant("rtc.py", "torch.clamp(beta, 0.0, self.most)", "beta", RTC),
    Mutant("rtc.py", "torch.minimum(prefix_len, prefix_end)", "prefix_end", SMOLVLA_100),
    Mutant("rtc.py", "delay = torch.minimum(delay, prefix_len)", "", f"{SMOLVLA}::test_rows_beyond_the_prefix_do_not_matter"),
    Mutant("sampler.py", "goal, x - self.size * v", "goal, x + self.size * v", RTC),
    Mutant("sampler.py", "torch.where(known[:, :, None], goal, torch.zeros(()))", "goal * known[:, :, None]", RTC),
    Mutant("sampler.py", "1.0 + k * (-1.0 / flow.steps)", "1.0 + (k + 1) * (-1.0 / flow.steps)", RTC),
    Mutant("sampler.py", "gain.index_select(1, at)", "gain[:, :1]", RTC),
    Mutant("sampler.py", "[0, 0, 0], [0, 0, self.padding]", "[0, 0, self.padding], [0, 0, 0]", SMOLVLA_100),
    Mutant("sampler.py", "np.array(k, np.int64)", "np.array(0, np.int64)", RTC),
    Mutant("resize.py", "half_pixel", "asymmetric", SMOLVLA_100),
    Mutant("families/smolvla.py", "[0, 0, top, left], [0, 0, 0, 0]", "[0, 0, 0, 0], [0, 0, top, left]", SMOLVLA_100),
    Mutant("families/smolvla.py", "pad[:, None, :] & pad[:, :, None] &", "always[:, None, :] &", SMOLVLA_100),
    Mutant("families/smolvla.py", "pad[:, None, None, :] &", "always[:, None, None] & torch.ones_like(pad)[:, None, None] &", SMOLVLA_100),
    Mutant("families/smolvla.py", "self.last[:, None] | ~self.last[None]", "self.last[:, None] | ~self.last[:, None]", SMOLVLA_100),
    Mutant("families/smolvla.py", "torch.cumsum(pad.to(torch.int64), dim=1)", "torch.cumsum(torch.ones_like(pad).to(torch.int64), dim=1)", SMOLVLA_100),
    Mutant("families/smolvla.py", ".tril()", "", SMOLVLA_100),
    Mutant("families/smolvla.py", "self.cos, self.sin, given[\"cross_mask\"]", "given[\"cos\"], given[\"sin\"], given[\"cross_mask\"]", SMOLVLA_100),
    Mutant("families/smolvla.py", "every > 0 and i % every == 0", "every > 0 and i % every == every - 1", SMOLVLA_100),
    Mutant("families/smolvla.py", "permute(0, 2, 3, 1, 4)", "permute(0, 3, 2, 1, 4)", SMOLVLA_100),
    Mutant("families/smolvla.py", "1.0 + k * (-1.0 / config.num_steps)", "1.0 - (k + 1) / config.num_steps", SMOLVLA_100),
    Mutant("families/smolvla.py", "[self._all(self.before, seen), seen, self._all(self.after, seen)]", "[seen, self._all(self.before, seen), self._all(self.after, seen)]", SMOLVLA_OTHER),
    Mutant("families/paligemma.py", "first = [n // 2 for n in spare]", "first = [n - n // 2 for n in spare]", f"{PI}::test_pictures_are_fitted_as_lerobot_does"),
    Mutant("families/paligemma.py", "return x * 2.0 - 1.0", "return x", HEADS),
    Mutant("families/paligemma.py", ".transpose(1, 2) + self.places", ".transpose(1, 2)", HEADS),
    Mutant("families/paligemma.py", "self.words.weight)) * self.scale", "self.words.weight))", HEADS),
    Mutant("families/paligemma.py", "self.first - 1 + counted", "self.first + counted", HEADS),
    Mutant("families/paligemma.py", "self.first + counted[:, -1:] + self.suffix_places", "self.rows + 0 * counted[:, -1:] + self.suffix_places", HEADS),
    Mutant("families/paligemma.py", "torch.where(token_mask, 0.0, UNSEEN)", "torch.where(token_mask, 0.0, 0.0)", HEADS),
    Mutant("families/paligemma.py", "if i < len(self.layers) - 1:", "if i < len(self.layers) - 2:", HEADS),
    Mutant("families/paligemma.py", "(1.0 + norm.weight.float())", "(norm.weight.float())", HEADS),
    Mutant("families/paligemma.py", "self.rows[-1:], row[:, None]", "row[:, None], row[:, None]", TRAINED),
    Mutant("families/paligemma.py", "cast(y) if gate is None else cast(y) * gate", "cast(y)", UNROLLED),
    Mutant("families/paligemma.py", "+ shift, gate", "- shift, gate", UNROLLED),
    Mutant("families/paligemma.py", "    if dtype == torch.float32:\n", "    if True:\n", f"{PI}::test_half_precision"),
    Mutant("families/paligemma.py", "return [int(n) for n in x.shape[1:]]", "return list(x.shape[1:])", f"{PI}::test_sizes_are_numbers"),
    Mutant("families/pi0.py", "among[0, 1:] = False", "among[0, 1:] = True", HEADS),
    Mutant("families/pi0.py", "resize.padded(self.normalize(state)", "resize.padded(state", HEADS),
    Mutant("families/pi0.py", "index_select(0, k.reshape(1))", "index_select(0, 0 * k.reshape(1))", HEADS),
    Mutant("families/pi05.py", "rows = clean[:, :, None] if self.trained else None", "rows = None", TRAINED),
    Mutant("families/pi05.py", "else scale.span())", "else scale.b)", f"{PI}::test_bundle"),
    Mutant("families/flow.py", "actions if self.relative is None else self.relative.to_relative(actions, state)", "actions", f"{PI}::test_relative_actions_and_missing_cameras"),
    Mutant("families/flow.py", "robot if self.relative is None else self.relative.to_absolute(robot, state)", "robot", f"{PI}::test_relative_actions_and_missing_cameras"),
    Mutant("families/flow.py", "ids.max() >= (known", "ids.max() < 0 * (known", f"{PI}::test_the_tokenizer_of_another_model_is_refused"),
    Mutant("dataset.py", "options.fps != fps", "False", "tests/test_refusals.py -k another_rate"),
    Mutant("families/flow.py", "want) != want:", "want) == 0:", f"{PI}::test_another_padding_is_refused"),
]


def run(mutant: Mutant) -> str:
    """"noticed", or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tools" / "export"
        shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache", "*.egg-info"))
        (Path(folder) / "testdata").symlink_to(HERE.parents[1] / "testdata")
        path = copy / "edgert_export" / mutant.file
        text = path.read_text(encoding="utf-8")
        if (n := text.count(mutant.old)) != 1:
            return f"stands there {n} times, want once: change the mutation"
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests.split()]
        try:
            done = subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"noticed: no end within {LIMIT_S} s"
        # 1 is a failed test; with any other status no test has run.
        return {0: "no test noticed", 1: "noticed"}.get(done.returncode, f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-500:]}")


def main(chosen: list[str]) -> int:
    missed = 0
    for i, mutant in enumerate(MUTANTS, 1):
        if chosen and not any(c == str(i) or (not c.isdigit() and c in mutant.file) for c in chosen):
            continue
        verdict = run(mutant)
        missed += not verdict.startswith("noticed")
        print(f"{i:3} {mutant.file}: {mutant.old!r} -> {mutant.new!r}: {verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
