/* How to run the kernels on a processor: copy.cu compiled as C with -DRONDE_ON_CPU, without a GPU and for tests. */
#ifndef RONDE_RUN_ON_CPU_H
#define RONDE_RUN_ON_CPU_H

#include "table.h"

struct ronde_kernel {
    const char *name; /* null after the last one */
    void (*run)(const struct ronde_table *table);
};

extern const struct ronde_kernel ronde_kernels[];

/* The thread, and its block, that `run` is. A launch is all threads of all blocks, in any order, also at once: each thread of
 * the operating system has its own two. */
extern _Thread_local unsigned int ronde_block, ronde_thread;

/* Sets them and runs the kernel, for callers that are not C. */
void ronde_run(const struct ronde_kernel *kernel, const struct ronde_table *table, unsigned int block, unsigned int thread);

#endif
