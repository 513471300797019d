// The C side of package jpeg: libjpeg-turbo's TurboJPEG API on memory owned by the
// caller, and the two loops that are several times faster as vector code.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

enum { edgert_corrupt = -1, edgert_badsize = -2, edgert_toolarge = -3, edgert_badformat = -4, edgert_warned = 1 };

// Converts ITU-R 601 levels to JFIF's: luma 16..235 and chroma 16..240 to 0..255.
// 149/128 and 146/128 equal 255/219 and 255/224 to within a quarter of a level; 63
// rounds like 64 and keeps the highest level at 255. Levels are clamped first, in
// unsigned 16 bits, which compilers vectorise on every machine.
static inline uint8_t edgert_bright(uint8_t y) {
	y = y < 16 ? 16 : y;
	y = y > 235 ? 235 : y;
	return (uint8_t)((uint16_t)((uint16_t)(y - 16) * 149u + 63) >> 7);
}
static inline uint8_t edgert_wide(uint8_t c) {
	c = c < 16 ? 16 : c;
	c = c > 240 ? 240 : c;
	return (uint8_t)((uint16_t)((uint16_t)(c - 16) * 146u + 63) >> 7);
}
static inline uint8_t edgert_mean(uint8_t a, uint8_t b) { return (uint8_t)((uint16_t)(a + b + 1) >> 1); }

// One row of luma, step bytes from pixel to pixel.
static void edgert_luma(uint8_t *restrict dst, const uint8_t *restrict src, int n, int step, int full) {
	if (full && step == 1) memcpy(dst, src, (size_t)n);
	else if (full) for (int i = 0; i < n; i++) dst[i] = src[2 * i];
	else if (step == 1) for (int i = 0; i < n; i++) dst[i] = edgert_bright(src[i]);
	else for (int i = 0; i < n; i++) dst[i] = edgert_bright(src[2 * i]);
}

// Chroma of two rows of YUYV, from the first Cb on, to one planar row each; a == b
// keeps the row, otherwise the two rows are averaged.
static void edgert_chroma4(uint8_t *restrict u, uint8_t *restrict v, const uint8_t *a, const uint8_t *b, int n, int full) {
	if (full && a == b) for (int i = 0; i < n; i++) { u[i] = a[4 * i]; v[i] = a[4 * i + 2]; }
	else if (full) for (int i = 0; i < n; i++) { u[i] = edgert_mean(a[4 * i], b[4 * i]); v[i] = edgert_mean(a[4 * i + 2], b[4 * i + 2]); }
	else if (a == b) for (int i = 0; i < n; i++) { u[i] = edgert_wide(a[4 * i]); v[i] = edgert_wide(a[4 * i + 2]); }
	else for (int i = 0; i < n; i++) { u[i] = edgert_wide(edgert_mean(a[4 * i], b[4 * i])); v[i] = edgert_wide(edgert_mean(a[4 * i + 2], b[4 * i + 2])); }
}

// Chroma of a row of NV12.
static void edgert_chroma2(uint8_t *restrict u, uint8_t *restrict v, const uint8_t *restrict a, int n, int full) {
	if (full) for (int i = 0; i < n; i++) { u[i] = a[2 * i]; v[i] = a[2 * i + 1]; }
	else for (int i = 0; i < n; i++) { u[i] = edgert_wide(a[2 * i]); v[i] = edgert_wide(a[2 * i + 1]); }
}

// YUYV to planes at y, then Cb, then Cr; half: every second chroma row only, as 4:2:0.
static void edgert_split_yuyv(uint8_t *y, const uint8_t *src, int w, int h, int stride, int half, int full) {
	int cw = w / 2, ch = half ? (h + 1) / 2 : h;
	uint8_t *u = y + (size_t)w * h, *v = u + (size_t)cw * ch;
	for (int row = 0; row < h; row++) edgert_luma(y + (size_t)row * w, src + (size_t)row * stride, w, 2, full);
	for (int row = 0; row < ch; row++) {
		const uint8_t *a = src + (size_t)(half ? 2 * row : row) * stride + 1;
		const uint8_t *b = half && 2 * row + 1 < h ? a + stride : a;
		edgert_chroma4(u + (size_t)row * cw, v + (size_t)row * cw, a, b, cw, full);
	}
}

// NV12 to planes at y, then Cb, then Cr.
static void edgert_split_nv12(uint8_t *y, const uint8_t *src, int w, int h, int stride, int full) {
	int cw = (w + 1) / 2, ch = (h + 1) / 2;
	uint8_t *u = y + (size_t)w * h, *v = u + (size_t)cw * ch;
	for (int row = 0; row < h; row++) edgert_luma(y + (size_t)row * w, src + (size_t)row * stride, w, 1, full);
	const uint8_t *uv = src + (size_t)h * stride;
	for (int row = 0; row < ch; row++) edgert_chroma2(u + (size_t)row * cw, v + (size_t)row * cw, uv + (size_t)row * stride, cw, full);
}

// Gray to planes with colourless 4:2:0 chroma: policies expect three components.
static void edgert_split_gray(uint8_t *y, const uint8_t *src, int w, int h, int stride) {
	for (int row = 0; row < h; row++) memcpy(y + (size_t)row * w, src + (size_t)row * stride, (size_t)w);
	memset(y + (size_t)w * h, 128, 2 * (size_t)((w + 1) / 2) * ((h + 1) / 2));
}

// Returns the number of bytes written, or edgert_*. The library assumes that a buffer
// of fixed size has tjBufSize bytes, so the size is checked here.
static long edgert_encode(tjhandle t, const unsigned char *pix, int w, int h, int stride, int format, int subsamp, int quality, unsigned char *dst, unsigned long cap) {
	unsigned long n = cap;
	if (cap < tjBufSize(w, h, subsamp)) return edgert_badsize;
	if (tjCompress2(t, pix, w, stride, h, format, &dst, &n, subsamp, quality, TJFLAG_NOREALLOC) != 0) return edgert_corrupt;
	return (long)n;
}

// The same from planes with rows of w, cw and cw bytes (luma and both chromas).
static long edgert_encode_planes(tjhandle t, const unsigned char *y, int w, int h, int cw, int ch, int subsamp, int quality, unsigned char *dst, unsigned long cap) {
	unsigned long n = cap;
	const unsigned char *planes[3] = {y, y + (size_t)w * h, y + (size_t)w * h + (size_t)cw * ch};
	int strides[3] = {w, cw, cw};
	if (cap < tjBufSize(w, h, subsamp)) return edgert_badsize;
	if (tjCompressFromYUVPlanes(t, planes, w, strides, h, subsamp, &dst, &n, quality, TJFLAG_NOREALLOC) != 0) return edgert_corrupt;
	return (long)n;
}

// Planes to RGB.
static int edgert_rgb_planes(tjhandle t, const unsigned char *y, int w, int h, int cw, int ch, int subsamp, unsigned char *dst) {
	const unsigned char *planes[3] = {y, y + (size_t)w * h, y + (size_t)w * h + (size_t)cw * ch};
	int strides[3] = {w, cw, cw};
	return tjDecodeYUVPlanes(t, planes, strides, subsamp, dst, w, 0, h, TJPF_RGB, 0) != 0 ? edgert_corrupt : 0;
}

// After an error in a header libjpeg-turbo 2.1 keeps its position in that header and
// would read the next picture as its continuation. edgert_renew replaces the handle.
static int edgert_renew(tjhandle *t) {
	tjhandle fresh = tjInitDecompress();
	if (fresh == NULL) return edgert_corrupt;
	tjDestroy(*t);
	*t = fresh;
	return 0;
}

// edgert_because copies the library's error text at once: the library keeps the text of
// a warning per thread, and a goroutine's next call may run on another thread.
static int edgert_because(tjhandle t, char *why, int room, int failure) {
	snprintf(why, (size_t)room, "%s", tjGetErrorStr2(t));
	return failure;
}

// edgert_whole reports, after a failed call, whether the picture is complete: the
// failure was only a warning about at most `most` stray bytes before a marker, as
// webcams send them, which the library skips. After any other warning a part of the
// picture is gray or wrong. The library keeps only the text of a picture's first
// warning.
static int edgert_whole(tjhandle t, char *why, int room, int most) {
	unsigned stray = 0, marker = 0;
	edgert_because(t, why, room, 0);
	return tjGetErrorCode(t) == TJERR_WARNING &&
		sscanf(why, "Corrupt JPEG data: %u extraneous bytes before marker 0x%x", &stray, &marker) == 2 && stray <= (unsigned)most;
}

// The picture's own size is compared before the decoding, so that at most w * h * 3
// bytes of dst are written; shrink is 1, 2, 4 or 8. why has room for the library's
// text. Returns 0, edgert_warned for a complete picture with up to `stray` stray bytes,
// or the reason of the failure.
static int edgert_decode(tjhandle t, const unsigned char *src, unsigned long n, unsigned char *dst, int w, int h, int shrink, long long max_pixels, int stray, char *why, int room) {
	int pw = 0, ph = 0, subsamp = 0, space = 0;
	why[0] = 0;
	if (tjDecompressHeader3(t, src, n, &pw, &ph, &subsamp, &space) != 0 && !edgert_whole(t, why, room, stray)) return edgert_corrupt;
	if (pw <= 0 || ph <= 0) return edgert_corrupt;
	if ((long long)pw * ph > max_pixels) return edgert_toolarge;
	if (space != TJCS_YCbCr && space != TJCS_RGB && space != TJCS_GRAY) return edgert_badformat;
	if ((pw + shrink - 1) / shrink != w || (ph + shrink - 1) / shrink != h) return edgert_badsize;
	if (tjDecompress2(t, src, n, dst, w, 0, h, TJPF_RGB, TJFLAG_LIMITSCANS) == 0) return 0;
	return edgert_whole(t, why, room, stray) ? edgert_warned : edgert_corrupt;
}
