"""Writes the pictures of this folder: four bands 32 wide, 64 high: red, green, blue, orange. Pillow 13.0.0 (libjpeg-turbo 3.2)."""
from PIL import Image

RED, GREEN, BLUE, ORANGE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 140, 0)
im = Image.new("RGB", (128, 64))
for i, colour in enumerate((RED, GREEN, BLUE, ORANGE)):
    im.paste(colour, (32 * i, 0, 32 * i + 32, 64))
im.save("bands_420.jpg", quality=95, subsampling="4:2:0")
im.save("bands_444.jpg", quality=95, subsampling="4:4:4")
im.save("bands_progressive.jpg", quality=95, progressive=True)
im.save("bands_rgb.jpg", quality=95, keep_rgb=True)
im.convert("L").save("bands_gray.jpg", quality=95)
im.convert("CMYK").save("bands_cmyk.jpg", quality=95)
