"""Writes golden/: one picture in every form that a camera delivers, and its pixels by an independent decoder.

Pillow 13.0.0 (libjpeg-turbo 3.2) and numpy 2.2.6. The picture is 96 wide and 64 high and has no symmetry: red top left,
green top right, blue bottom left, yellow bottom right, a black cross and soft ramps between them.
"""
import os

import numpy as np
from PIL import Image

W, H = 96, 64
os.makedirs("golden", exist_ok=True)
y, x = np.mgrid[0:H, 0:W].astype(np.float64)
u, v = (x / (W - 1))[..., None], (y / (H - 1))[..., None]
corner = {"tl": (230, 30, 30), "tr": (30, 200, 40), "bl": (30, 50, 220), "br": (240, 220, 40)}
tl, tr, bl, br = (np.array(c, np.float64) for c in corner.values())
rgb = (1 - v) * ((1 - u) * tl + u * tr) + v * ((1 - u) * bl + u * br)
rgb[28:36, 16:80] = 0
rgb[8:56, 44:52] = 0
rgb = np.rint(rgb).astype(np.uint8)
im = Image.fromarray(rgb)
im.save("golden/scene.png")
for name, sub in (("420", "4:2:0"), ("422", "4:2:2"), ("444", "4:4:4")):
    im.save(f"golden/scene_{name}.jpg", quality=90, subsampling=sub)
im.convert("L").save("golden/scene_gray.jpg", quality=90)
im.save("golden/scene_restart.jpg", quality=90, subsampling="4:2:2", restart_marker_rows=1)
# The form of a webcam: no Huffman tables.
src, out, i = open("golden/scene_422.jpg", "rb").read(), b"\xff\xd8", 2
while src[i + 1] != 0xDA:
    n = 2 + int.from_bytes(src[i + 2 : i + 4], "big")
    if src[i + 1] != 0xC4:
        out += src[i : i + n]
    i += n
open("golden/scene_bare.jpg", "wb").write(out + src[i:])
for name in ("420", "422", "444", "gray", "restart"):
    Image.open(f"golden/scene_{name}.jpg").convert("RGB").save(f"golden/scene_{name}.png")

# Raw forms, computed from the definition of ITU-R BT.601: full range as in JPEG, narrow 16..235 and 16..240.
f = rgb.astype(np.float64)
luma = 0.299 * f[..., 0] + 0.587 * f[..., 1] + 0.114 * f[..., 2]
cb, cr = (f[..., 2] - luma) / 1.772 + 128, (f[..., 0] - luma) / 1.402 + 128
for name, (ys, yo, cs) in {"full": (1, 0, 1), "narrow": (219 / 255, 16, 224 / 255)}.items():
    Y = np.rint(luma * ys + yo).clip(0, 255).astype(np.uint8)
    C = [((c - 128) * cs + 128) for c in (cb, cr)]
    half = [np.rint((c[:, 0::2] + c[:, 1::2]) / 2).clip(0, 255).astype(np.uint8) for c in C]
    quarter = [np.rint((c[0::2, 0::2] + c[1::2, 0::2] + c[0::2, 1::2] + c[1::2, 1::2]) / 4).clip(0, 255).astype(np.uint8) for c in C]
    yuyv = np.empty((H, W, 2), np.uint8)
    yuyv[..., 0] = Y
    yuyv[:, 0::2, 1], yuyv[:, 1::2, 1] = half
    yuyv.tofile(f"golden/scene_{name}.yuyv")
    uv = np.empty((H // 2, W), np.uint8)
    uv[:, 0::2], uv[:, 1::2] = quarter
    open(f"golden/scene_{name}.nv12", "wb").write(Y.tobytes() + uv.tobytes())
np.asarray(im.convert("L")).tofile("golden/scene.gray")
