/*
 * The smallest possible client of a servo bus: writes the given frames, reads as
 * many bytes as the replies have, counts them, and reads the clock. It does not
 * parse any byte, so its time is the time of the port.
 *
 *   echo PORT BAUD RATE CYCLES REPLY-BYTES PATIENCE-NS FRAME...
 *
 * Frames are in hex; each is one write(2), as in the driver. It waits for the
 * replies of a cycle as long as the driver. It prints one line per cycle:
 * nanoseconds of the clock, nanoseconds of the thread's CPU, bytes read.
 */
#define _GNU_SOURCE
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define FRAMES 4
#define FRAME 1024
#define PRIORITY 80 /* of SCHED_FIFO, as for the driver's thread */

static int64_t now(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(int64_t at) {
	struct timespec t = {at / 1000000000LL, at % 1000000000LL};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
	}
}

static int unhex(const char *text, unsigned char *out) {
	int n = 0;
	unsigned v;
	for (; n < FRAME && sscanf(text, "%2x", &v) == 1; text += 2) {
		out[n++] = (unsigned char)v;
	}
	return n;
}

static int open_port(const char *path, unsigned baud) {
	struct termios2 t;
	int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TCGETS2, &t) < 0) {
		return -1;
	}
	t.c_iflag = t.c_oflag = t.c_lflag = 0;
	t.c_cflag = CS8 | CREAD | CLOCAL | BOTHER;
	t.c_ispeed = t.c_ospeed = baud;
	t.c_cc[VMIN] = 1;
	t.c_cc[VTIME] = 0;
	if (ioctl(fd, TCSETS2, &t) < 0 || ioctl(fd, TCFLSH, 2) < 0) {
		return -1;
	}
	return fd;
}

int main(int argc, char **argv) {
	static unsigned char frame[FRAMES][FRAME], in[4096];
	int size[FRAMES], frames = argc - 7;
	struct sched_param param = {.sched_priority = PRIORITY};
	if (frames < 1 || frames > FRAMES) {
		fprintf(stderr, "echo: want PORT BAUD RATE CYCLES REPLY-BYTES PATIENCE-NS and 1 to %d frames\n", FRAMES);
		return 2;
	}
	for (int i = 0; i < frames; i++) {
		size[i] = unhex(argv[7 + i], frame[i]);
	}
	int64_t period = 1000000000LL / atoi(argv[3]), patience = atoll(argv[6]);
	int cycles = atoi(argv[4]), want = atoi(argv[5]);
	int64_t *took = calloc(3 * (size_t)cycles, sizeof *took);
	int fd = open_port(argv[1], (unsigned)atoi(argv[2]));
	if (took == NULL || fd < 0) {
		fprintf(stderr, "echo: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	sched_setscheduler(0, SCHED_FIFO, &param); /* goes on without, as the driver does */
	int64_t next = now(CLOCK_MONOTONIC) + period;
	for (int i = 0; i < cycles; i++) {
		sleep_until(next);
		while (read(fd, in, sizeof in) > 0) {
		}
		int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID), start = now(CLOCK_MONOTONIC);
		for (int k = 0; k < frames; k++) {
			if (write(fd, frame[k], size[k]) != size[k]) {
				fprintf(stderr, "echo: write: %s\n", strerror(errno));
				return 1;
			}
		}
		int have = 0;
		for (int64_t left; have < want && (left = start + patience - now(CLOCK_MONOTONIC)) > 0;) {
			struct pollfd p = {fd, POLLIN, 0};
			struct timespec t = {left / 1000000000LL, left % 1000000000LL};
			ppoll(&p, 1, &t, NULL);
			ssize_t n = read(fd, in + have, sizeof in - have);
			if (n > 0) {
				have += (int)n;
			} else if (n == 0 || errno != EAGAIN) {
				fprintf(stderr, "echo: the port is gone\n");
				return 1;
			}
		}
		took[3 * i] = now(CLOCK_MONOTONIC) - start;
		took[3 * i + 1] = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
		took[3 * i + 2] = have;
		next += period;
		int64_t late = now(CLOCK_MONOTONIC);
		while (next <= late) {
			next += period;
		}
	}
	for (int i = 0; i < cycles; i++) {
		printf("%lld %lld %lld\n", (long long)took[3 * i], (long long)took[3 * i + 1], (long long)took[3 * i + 2]);
	}
	return 0;
}
