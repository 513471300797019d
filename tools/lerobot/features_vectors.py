"""Writes the dictionary of features that LeRobot gives a policy for an SO-101 with one camera.

    .venv-export/bin/python tools/lerobot/features_vectors.py testdata/golden/features.json
"""

import json
import sys

import lerobot
from lerobot.utils.feature_utils import dataset_to_policy_features, hw_to_dataset_features

MOTORS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]


def entries(dataset):
    """Returns type and shape as the policy's configuration has them, dtype and names of vectors as the data set does."""
    out = {}
    for name, feature in dataset_to_policy_features(dataset).items():
        out[name] = {"type": feature.type.value, "shape": list(feature.shape)}
        if dataset[name]["dtype"] == "float32":
            out[name] |= {"dtype": "float32", "names": list(dataset[name]["names"])}
    return out


joints = {f"{motor}.pos": float for motor in MOTORS}
features = {
    "lerobot": lerobot.__version__,
    "input_features": entries(hw_to_dataset_features({**joints, "top": (120, 160, 3)}, "observation")),
    "output_features": entries(hw_to_dataset_features(joints, "action")),
}
with open(sys.argv[1], "w") as f:
    json.dump(features, f, indent=1)
    f.write("\n")
