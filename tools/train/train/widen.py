"""Adds today's conditioning to an exported bundle without a new training: python -m train.widen BUNDLE

A graph of the time when guidance always fell linearly gets the inputs `schedule` and `sigma_d`, per sample. The networks
stay the same, byte for byte; an export from the weights would give the same graph.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from . import bundle, golden, graph, rtc
from .onnxgraph import INPUTS, Graph

DIFFERENCE = 1e-5  # model units, between the graph before and after with linear schedules


def widen(model: onnx.ModelProto) -> bytes:
    """The graph with both inputs. Raises ValueError when it is not one of ours, or has them already."""
    if any(i.name == "schedule" for i in model.graph.input):
        raise ValueError("the graph has an input schedule: there is nothing to do")
    g, nodes, step = Graph("w"), [], 0
    replaced = ""
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if replaced and name == replaced[0]:
                node.input[i] = replaced[1]
        if node.op_type == "Min" and "beta" in node.input:
            node.input[list(node.input).index("beta") ^ 1] = rtc.limit(g, step, graph.STEPS)
            nodes += g.take()
            step += 1
        nodes.append(node)
        if node.op_type == "Clip":  # the graph's only Clip makes the linear weights
            replaced = (node.output[0], rtc.scheduled(g, node.output[0], *rtc.bounds(g)))
            nodes += g.take()
    if step != graph.STEPS or not replaced:
        raise ValueError(f"the graph has {step} guided steps, want {graph.STEPS} and one set of weights: it is not one of ours")
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(g.initializers)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.input.extend(helper.make_tensor_value_info(name, *INPUTS[name]) for name in ("schedule", "sigma_d"))
    for entry in model.metadata_props:
        if entry.key == "schedule":
            entry.value = ",".join(rtc.SCHEDULES)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.widen", description=__doc__.split(":")[0])
    parser.add_argument("bundle", type=Path, help="the bundle's directory, which is rewritten")
    folder = parser.parse_args().bundle
    old = (folder / "policy.onnx").read_bytes()
    new = widen(onnx.load_from_string(old))
    sets = golden.record(new)
    before = golden.session(old)
    for name, arrays in sets.items():
        batch = {k.removeprefix("in/"): v for k, v in arrays.items() if k.startswith("in/")}
        if np.any(batch.pop("schedule") != rtc.LINEAR) or np.any(batch.pop("sigma_d") != 1):
            continue
        off = float(np.abs(golden.run(before, batch)["chunk_model"] - arrays["out/chunk_model"]).max())
        if off > DIFFERENCE:
            raise RuntimeError(f"{name}: the new graph is {off:.2g} away from the old one, want at most {DIFFERENCE:.0e}")
        print(f"{name}: {off:.2g} from the old graph")
    manifest = json.loads((folder / "bundle.json").read_text())
    known = {k: manifest[k] for k in ("policy_type", "source_repo", "source_revision", "weights_sha256", "num_steps", "rtc",
                                      "rtc_max_delay", "prefix_end", "norm_stats_sha256")}  # fmt: skip
    facts = bundle.Facts(
        **known, norm=manifest["norm_state"], batch_invariant=golden.batch_invariant(new), golden=sets,
        notes=(folder / "SOURCE.md").read_text(),
    )  # fmt: skip
    bundle.write(folder, new, facts)
    print(f"wrote {folder}, batch invariant {facts.batch_invariant}")


if __name__ == "__main__":
    main()
