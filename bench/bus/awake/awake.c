/*
 * Keeps the cores in its affinity mask from entering a sleep state: until it is ended, it computes
 * on each core in the lowest scheduling class. That class is the lowest only within a scheduling
 * group: where each session is a group, the program makes a group of its own with the lowest
 * weight.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *compute(void *arg) {
	for (;;) {
		__asm__ volatile("" ::: "memory");
	}
	return arg;
}

static int fail(const char *what, int why) {
	fprintf(stderr, "awake: %s: %s\n", what, strerror(why));
	return 1;
}

int main(void) {
	struct sched_param lowest = {0};
	cpu_set_t all, one;
	pthread_t thread;
	FILE *group;
	if (setsid() > 0 && (group = fopen("/proc/self/autogroup", "w")) != NULL) {
		fputs("19", group);
		fclose(group);
	}
	if (sched_getaffinity(0, sizeof all, &all) < 0 || sched_setscheduler(0, SCHED_IDLE, &lowest) < 0) {
		return fail("the lowest class", errno);
	}
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all)) {
			continue;
		}
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		int why = pthread_create(&thread, NULL, compute, NULL); /* in the same class */
		if (why == 0) {
			why = pthread_setaffinity_np(thread, sizeof one, &one);
		}
		if (why != 0) {
			return fail("a thread for each core", why);
		}
	}
	pthread_join(thread, NULL);
}
