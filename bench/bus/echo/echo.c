/*
 * The smallest possible client of servo buses: writes the given frames, reads as
 * many bytes as the replies have, counts them, and reads the clock. It does not
 * parse any byte, so its time is the time of the ports.
 *
 *   echo RATE CYCLES PATIENCE-NS BUS...    BUS: PORT BAUD REPLY-BYTES FRAMES FRAME...
 *
 * Frames are in hex; each is one write(2), as in the driver. It sends the frames of all buses
 * before it waits for the replies of a cycle, as long as the driver would. It prints one line per
 * cycle: nanoseconds of the clock, nanoseconds of the thread's CPU, bytes read.
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

#define BUSES 4
#define FRAMES 4
#define FRAME 1024
#define PRIORITY 80 /* of SCHED_FIFO, as for the driver's thread */

struct bus {
	int fd, want, have, frames, size[FRAMES];
	unsigned char frame[FRAMES][FRAME];
};

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

/* read_buses waits for the replies of all buses; -1: a port is gone. */
static int read_buses(struct bus *b, int buses, int64_t until) {
	static unsigned char in[4096];
	for (int64_t left; (left = until - now(CLOCK_MONOTONIC)) > 0;) {
		struct pollfd p[BUSES];
		struct timespec t = {left / 1000000000LL, left % 1000000000LL};
		int waiting = 0;
		for (int i = 0; i < buses; i++) {
			if (b[i].have < b[i].want) {
				p[waiting++] = (struct pollfd){b[i].fd, POLLIN, 0};
			}
		}
		if (waiting == 0) {
			return 0;
		}
		ppoll(p, waiting, &t, NULL);
		for (int i = 0; i < buses; i++) {
			if (b[i].have >= b[i].want) {
				continue;
			}
			ssize_t n = read(b[i].fd, in, sizeof in);
			if (n > 0) {
				b[i].have += (int)n;
			} else if (n == 0 || errno != EAGAIN) {
				return -1;
			}
		}
	}
	return 0;
}

/* parse_buses opens the buses of the arguments and returns their number; -1: they are no buses. */
static int parse_buses(struct bus *b, char **argv, int argc) {
	int buses = 0;
	for (int at = 4; at < argc; buses++) {
		if (buses == BUSES || at + 4 > argc) {
			return -1;
		}
		struct bus *one = &b[buses];
		one->want = atoi(argv[at + 2]);
		one->frames = atoi(argv[at + 3]);
		if (one->frames < 1 || one->frames > FRAMES || at + 4 + one->frames > argc) {
			return -1;
		}
		for (int k = 0; k < one->frames; k++) {
			one->size[k] = unhex(argv[at + 4 + k], one->frame[k]);
		}
		if ((one->fd = open_port(argv[at], (unsigned)atoi(argv[at + 1]))) < 0) {
			fprintf(stderr, "echo: %s: %s\n", argv[at], strerror(errno));
			exit(1);
		}
		at += 4 + one->frames;
	}
	return buses;
}

int main(int argc, char **argv) {
	static struct bus b[BUSES];
	static unsigned char late[4096];
	struct sched_param param = {.sched_priority = PRIORITY};
	int buses = parse_buses(b, argv, argc);
	if (buses < 1) {
		fprintf(stderr, "echo: want RATE CYCLES PATIENCE-NS and 1 to %d times PORT BAUD REPLY-BYTES FRAMES FRAME...\n", BUSES);
		return 2;
	}
	int64_t period = 1000000000LL / atoi(argv[1]), patience = atoll(argv[3]);
	int cycles = atoi(argv[2]);
	int64_t *took = calloc(3 * (size_t)cycles, sizeof *took);
	if (took == NULL) {
		fprintf(stderr, "echo: %s\n", strerror(errno));
		return 1;
	}
	sched_setscheduler(0, SCHED_FIFO, &param); /* on failure without it, as the driver does */
	int64_t next = now(CLOCK_MONOTONIC) + period;
	for (int i = 0; i < cycles; i++) {
		sleep_until(next);
		for (int k = 0; k < buses; k++) {
			b[k].have = 0;
			while (read(b[k].fd, late, sizeof late) > 0) {
			}
		}
		int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID), start = now(CLOCK_MONOTONIC);
		for (int k = 0; k < buses; k++) {
			for (int f = 0; f < b[k].frames; f++) {
				if (write(b[k].fd, b[k].frame[f], b[k].size[f]) != b[k].size[f]) {
					fprintf(stderr, "echo: write: %s\n", strerror(errno));
					return 1;
				}
			}
		}
		if (read_buses(b, buses, start + patience) < 0) {
			fprintf(stderr, "echo: the port is gone\n");
			return 1;
		}
		took[3 * i] = now(CLOCK_MONOTONIC) - start;
		took[3 * i + 1] = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
		for (int k = 0; k < buses; k++) {
			took[3 * i + 2] += b[k].have;
		}
		next += period;
		int64_t end = now(CLOCK_MONOTONIC);
		while (next <= end) {
			next += period;
		}
	}
	for (int i = 0; i < cycles; i++) {
		printf("%lld %lld %lld\n", (long long)took[3 * i], (long long)took[3 * i + 1], (long long)took[3 * i + 2]);
	}
	return 0;
}
