"""Writes scale/: a picture of noise, and OpenCV's versions of it in other sizes.

opencv-python-headless 4.13.0.92 and numpy 2.2.6. In 64 bit floats, rounded once: INTER_AREA along a shrinking side, INTER_LINEAR along a growing
side. lerobot_*.png is INTER_LINEAR alone, in 8 bits, as LeRobot's policy server resizes a picture (torch's bilinear without antialias has the same
definition). Both must be equal where a side grows or is halved.
"""

import os

import cv2
import numpy as np

W, H = 60, 44
AREA = [(60, 44), (30, 22), (20, 11), (47, 33), (59, 43), (7, 5), (1, 1), (120, 88), (77, 50), (61, 45), (90, 20), (31, 60), (60, 13), (240, 1)]
LEROBOT = [(30, 22), (120, 88), (77, 50), (61, 45)]

os.makedirs("scale", exist_ok=True)
noise = np.random.default_rng(19).integers(0, 256, (H, W, 3), dtype=np.uint8)
noise[10:20, 30:50] = (250, 20, 10)  # reveals shifts and swapped channels
cv2.imwrite("scale/noise.png", noise[..., ::-1])
for w, h in AREA:
    across = cv2.resize(noise.astype(np.float64), (w, H), interpolation=cv2.INTER_AREA if w <= W else cv2.INTER_LINEAR)
    both = cv2.resize(across, (w, h), interpolation=cv2.INTER_AREA if h <= H else cv2.INTER_LINEAR)
    cv2.imwrite(f"scale/area_{w}x{h}.png", np.rint(both).clip(0, 255).astype(np.uint8)[..., ::-1])
for w, h in LEROBOT:
    cv2.imwrite(f"scale/lerobot_{w}x{h}.png", cv2.resize(noise, (w, h), interpolation=cv2.INTER_LINEAR)[..., ::-1])
