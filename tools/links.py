"""Writes the traces of links for bench faults, bench/faults/scripts/{lan,wifi,cellular}.yaml.

Round trips are drawn from published distributions; their halves are the delays each way. The sources give no order of
the values in time: each is independent of the one before.
"""

import math
import pathlib
import random

SECONDS = 60


def quantiles(*points):
    """Draws from a distribution by its quantiles (share, ms), interpolated between them by logarithm."""

    def draw(rng):
        u = rng.random()
        for (a, low), (b, high) in zip(points, points[1:]):
            if u <= b:
                return low * (high / low) ** ((u - a) / (b - a))

    return draw


def lognormal(mean, deviation):
    """Draws from a log-normal distribution of this mean and standard deviation in ms."""
    variance = math.log(1 + (deviation / mean) ** 2)
    return lambda rng: rng.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))


# file: name, seconds between two values, distribution of the round trips, further faults, source
WLAN = "Sui et al., Characterizing and Improving WiFi Latency in Large-Scale Operational Networks, MobiSys 2016"
LINKS = {
    "lan": ("a wired local network", 0.1, quantiles((0, 0.2), (0.5, 0.4), (0.99, 1), (1, 2)), [],
            f"{WLAN}: 99 % of its wired part's round trips take less than 1 ms. The rest is chosen."),
    "wifi": ("the Wi-Fi of a campus", 0.1, quantiles((0, 1), (0.5, 3), (0.9, 20), (0.99, 250), (1, 500)), [],
             f"{WLAN}: median 3 ms, 90 % 20 ms, 99 % 250 ms. Lowest and highest are chosen."),
    "cellular": ("4G of medium signal", 0.5, lognormal(86.38, 39.85), ["{kind: bandwidth, bytes_per_second: 494000}"],
                 "Trevisan et al., ERRANT, Computer Networks 176, 2020, profiles.csv (telenor, norway, 4G, medium): mean "
                 "86.38 ms, deviation 39.85 ms, 3.95 Mbit/s from the robot. The log-normal form is chosen."),
}  # fmt: skip


def main():
    folder = pathlib.Path(__file__).parent.parent / "bench/faults/scripts"
    for link, (name, step, draw, others, source) in LINKS.items():
        rng = random.Random(1)
        points = [f"[{i * step:g}, {draw(rng) / 2:.2f}]" for i in range(round(SECONDS / step))]
        rows = [", ".join(points[i : i + 8]) for i in range(0, len(points), 8)]
        text = f"# Made by tools/links.py. Source: {source}\nname: {name}\nfaults:\n"
        text += "".join(f"  - {fault}\n" for fault in others)
        text += f"  - kind: trace\n    anywhere: true\n    every: {SECONDS}s\n    points: [\n      "
        (folder / f"{link}.yaml").write_text(text + ",\n      ".join(rows) + "]\n")


if __name__ == "__main__":
    main()
