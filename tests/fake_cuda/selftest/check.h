/* Checks, cases, and what they share. A case runs in a process of its own; one of several ranks in several. */
#ifndef FAKE_CUDA_SELFTEST_CHECK_H
#define FAKE_CUDA_SELFTEST_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../nccl/api.h"

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);  \
            _exit(1);                                                                \
        }                                                                            \
    } while (0)

#define EXPECT(call, wanted)                                                                         \
    do {                                                                                             \
        int result_ = (int)(call), wanted_ = (int)(wanted);                                          \
        if (result_ != wanted_) {                                                                    \
            fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, result_, \
                    wanted_);                                                                        \
            _exit(1);                                                                                \
        }                                                                                            \
    } while (0)

/* Both libraries' success is 0. */
#define OK(call) EXPECT(call, 0)

struct test {
    const char *name;
    void (*run)(void);
};
extern const struct test driver_tests[], kernel_tests[], nccl_tests[], failure_tests[];

/* main.c */
/* A child for each rank, with a unique id for all of them; they must all end well, but for those that kill themselves. */
void with_ranks(int size, void (*run)(int rank, int size, ncclUniqueId id));
void start(void);               /* cuInit, and device 0's context is current */
CUstream stream_new(void);
CUdeviceptr memory_new(size_t bytes);
CUdeviceptr memory_of(const void *host, size_t bytes); /* new, with these bytes in it */
void read_back(void *host, CUdeviceptr from, size_t bytes);
/* An operation that holds up the stream for so long. */
void occupy(CUstream stream, unsigned ms);
void pause_ms(unsigned ms);
/* A communicator whose ranks share device 0 as if each was on a host of its own. */
ncclComm_t communicator(int rank, int size, ncclUniqueId id);
/* What the asynchronous error becomes, in some seconds. */
ncclResult_t error_to_come(ncclComm_t comm);

#endif
