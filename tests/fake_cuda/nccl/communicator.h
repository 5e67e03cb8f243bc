/* A communicator as this process sees it, and what the files of the fake NCCL share. */
#ifndef FAKE_NCCL_COMMUNICATOR_H
#define FAKE_NCCL_COMMUNICATOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "api.h"
#include "segment.h"

/* The driver's part that the fake NCCL uses; found in the library that the program has loaded. */
struct driver {
    fake_cuda_enqueue_call *enqueue;
    fake_cuda_touch_call *touch;
    fake_cuda_broken_call *broken;
    fake_cuda_log_call *log;
    CUresult (*context_device)(CUdevice *device);
    CUresult (*bus_id)(char *text, int length, CUdevice device);
};
const struct driver *driver(void); /* null if it is not there */

/* How long what is not to block takes at least, so that nobody counts on its being quick. */
enum { HELPER_US = 3000 };

struct ncclComm {
    struct ncclComm *next;
    int references; /* the user's, its operations', its helpers' */
    ncclUniqueId id;
    int rank, size, device;
    bool blocking;
    bool finalized;
    bool connected[2];        /* whether a collective, and a send or receive, was launched before */
    struct member myself;     /* what the others are told */
    struct segment *segment;  /* null until all have met */
    int helpers;              /* at work: it is in progress */
    int running;              /* operations that have begun */
    _Atomic int error;        /* the first one */
    _Atomic int aborted;
    struct submission *first; /* operations in the order of their calls, in which they run, on whatever streams */
    int64_t looked_ns;        /* when its peers were looked after */
};

/* Held for all communicators; never while one waits for others, nor in calls of the driver. */
extern pthread_mutex_t nccl_lock;
extern pthread_cond_t nccl_changed;

/* errors.c: keeps the text for ncclGetLastError. */
ncclResult_t fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* nccl.c. Lock held. */
ncclResult_t comm_check(ncclComm_t comm); /* whether this is a communicator, and ready for calls */
void comm_drop(ncclComm_t comm);
/* A line in the log; with the lock or without. */
void comm_log(ncclComm_t comm, const char *what);
/* Runs on a thread of its own, during which the communicator is in progress. */
void comm_help(ncclComm_t comm, void *(*work)(void *argument), void *argument);
void comm_helped(ncclComm_t comm, ncclResult_t result);
/* Without the lock: its first error is kept. */
void comm_break(ncclComm_t comm, ncclResult_t error);

enum kind { ALLREDUCE, ALLGATHER, REDUCESCATTER, BROADCAST, REDUCE, SEND, RECEIVE };

struct call {
    enum kind kind;
    ncclComm_t comm;
    CUstream stream;
    uint64_t send, receive; /* addresses of the device; once it runs, of the host */
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
};

/* group.c */
bool group_is_open(void);
void group_add_init(ncclComm_t comm);
ncclResult_t group_add(const struct call *call);

/* What one communicator does in one operation of a stream: collectives in order, then all sends and receives at once. */
struct submission {
    struct submission *next;
    ncclComm_t comm;
    CUstream stream;
    size_t count;
    struct call calls[];
};
/* operation.c */
const char *kind_name(enum kind kind);
void operation_run(void *argument, int broken);
/* Whether an operation that waits should give up. */
bool given_up(ncclComm_t comm);
/* Until it is given up: what has failed does not end by itself. */
void hang(ncclComm_t comm);

/* collective.c, letters.c; false if given up. */
bool collective_run(const struct call *call);
bool letters_run(const struct call *calls, size_t count);

/* arithmetic.c */
size_t type_bytes(ncclDataType_t type);
const char *type_name(ncclDataType_t type);
/* Of all sources, in their order. */
void reduce(void *to, unsigned char *const from[], int sources, size_t count, ncclDataType_t type, ncclRedOp_t op);

#endif
