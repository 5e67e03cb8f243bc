/* What goes wrong between ranks: duplicate devices, mismatches, death, abort. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static void duplicate(int rank, int size, ncclUniqueId id)
{
    char wanted[100];
    ncclComm_t comm;
    start();
    unsetenv("NCCL_HOSTID");
    EXPECT(ncclCommInitRank(&comm, size, id, rank), ncclInvalidUsage);
    CHECK(!comm);
    snprintf(wanted, sizeof wanted, "Duplicate GPU detected : rank %d and rank %d both on CUDA device 0", rank, 1 - rank);
    CHECK(strcmp(ncclGetLastError(NULL), wanted) == 0);
}

static void duplicate_devices(void)
{
    with_ranks(2, duplicate);
}

/* On one host, but not on one device. */
static void neighbours(int rank, int size, ncclUniqueId id)
{
    CUcontext context;
    ncclComm_t comm;
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, rank));
    OK(cuCtxSetCurrent(context));
    OK(ncclCommInitRank(&comm, size, id, rank));
    OK(ncclCommDestroy(comm));
}

static void two_devices(void)
{
    with_ranks(2, neighbours);
}

static bool is_pending(CUstream stream, unsigned ms)
{
    pause_ms(ms);
    return cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

/* A rank that waits for one that is alive, but does not come, is freed by its abort, at once. */
static void absent(int rank, int size, ncclUniqueId id)
{
    start();
    CUstream stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    CUdeviceptr memory = memory_new(400);
    if (rank == 0) {
        OK(ncclAllReduce((void *)memory, (void *)memory, 100, ncclFloat32, ncclSum, comm, stream));
        OK(ncclAllReduce((void *)memory, (void *)memory, 100, ncclFloat32, ncclSum, comm, stream));
        ncclResult_t error;
        CHECK(is_pending(stream, 200));
        OK(ncclCommGetAsyncError(comm, &error));
        OK(error);
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        OK(ncclCommAbort(comm));
        OK(cuStreamSynchronize(stream));
        clock_gettime(CLOCK_MONOTONIC, &after);
        CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < 2000);
        EXPECT(ncclCommAbort(comm), ncclInvalidArgument);
    } else {
        pause_ms(1000);
        OK(ncclCommAbort(comm));
    }
}

static void abort_frees(void)
{
    with_ranks(2, absent);
}

static void dying(int rank, int size, ncclUniqueId id)
{
    start();
    CUstream stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    CUdeviceptr memory = memory_new(400);
    OK(ncclAllReduce((void *)memory, (void *)memory, 100, ncclFloat32, ncclSum, comm, stream));
    OK(cuStreamSynchronize(stream));
    if (rank == 1)
        kill(getpid(), SIGKILL);
    OK(ncclAllReduce((void *)memory, (void *)memory, 100, ncclFloat32, ncclSum, comm, stream));
    EXPECT(error_to_come(comm), ncclRemoteError);
    CHECK(strstr(ncclGetLastError(comm), "rank 1"));
    CHECK(is_pending(stream, 200));
    EXPECT(ncclSend((void *)memory, 1, ncclInt8, 0, comm, stream), ncclRemoteError);
    OK(ncclCommAbort(comm));
    OK(cuStreamSynchronize(stream));
}

static void a_rank_dies(void)
{
    with_ranks(3, dying);
}

/* One that has left as it should is not missed. */
static void leaving(int rank, int size, ncclUniqueId id)
{
    start();
    ncclComm_t comm = communicator(rank, size, id);
    ncclResult_t error;
    if (rank == 1) {
        OK(ncclCommDestroy(comm));
        return;
    }
    for (int i = 0; i < 60; ++i) {
        pause_ms(5);
        OK(ncclCommGetAsyncError(comm, &error));
        OK(error);
    }
    OK(ncclCommDestroy(comm));
}

static void a_rank_leaves(void)
{
    with_ranks(2, leaving);
}

static void dying_early(int rank, int size, ncclUniqueId id)
{
    start();
    ncclComm_t comm;
    if (rank == 2) {
        /* Comes too late to be more than dead. */
        pause_ms(300);
        kill(getpid(), SIGKILL);
    }
    char host[8];
    snprintf(host, sizeof host, "%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    if (rank == 1) {
        ncclConfig_t config = {.size = sizeof config, .magic = NCCL_CONFIG_MAGIC, .blocking = 0};
        EXPECT(ncclCommInitRankConfig(&comm, size, id, rank, &config), ncclInProgress);
        pause_ms(200);
        OK(ncclCommAbort(comm)); /* of what is still waiting */
    } else {
        EXPECT(ncclCommInitRank(&comm, size, id, rank), ncclRemoteError);
    }
}

static void abort_of_initialization(void)
{
    with_ranks(3, dying_early);
}

static void different(int rank, int size, ncclUniqueId id)
{
    start();
    CUstream stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    CUdeviceptr memory = memory_new(400);
    OK(ncclAllReduce((void *)memory, (void *)memory, 100 - (unsigned)rank, ncclFloat32, ncclSum, comm, stream));
    EXPECT(error_to_come(comm), ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(comm), "99 float32"));
    CHECK(is_pending(stream, 100));
    OK(ncclCommAbort(comm));
    OK(cuStreamSynchronize(stream));
}

static void sizes_that_differ(void)
{
    with_ranks(2, different);
}

static void different_letters(int rank, int size, ncclUniqueId id)
{
    start();
    CUstream stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    CUdeviceptr memory = memory_new(400);
    if (rank == 0)
        OK(ncclSend((void *)memory, 10, ncclInt8, 1, comm, stream));
    else
        OK(ncclRecv((void *)memory, 11, ncclInt8, 0, comm, stream));
    EXPECT(error_to_come(comm), ncclInvalidUsage);
    OK(ncclCommAbort(comm));
    OK(cuStreamSynchronize(stream));
}

static void letters_that_differ(void)
{
    with_ranks(2, different_letters);
}

static void bad_memory(int rank, int size, ncclUniqueId id)
{
    start();
    CUstream stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    CUdeviceptr memory = memory_new(400);
    if (rank == 0) {
        OK(ncclAllReduce((void *)memory, (void *)memory, 101, ncclFloat32, ncclSum, comm, stream));
        EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        ncclResult_t result = ncclAllReduce((void *)memory, (void *)memory, 101, ncclFloat32, ncclSum, comm, stream);
        EXPECT(result, ncclUnhandledCudaError);
        OK(ncclCommAbort(comm));
    } else {
        OK(ncclAllReduce((void *)memory, (void *)memory, 100, ncclFloat32, ncclSum, comm, stream));
        EXPECT(error_to_come(comm), ncclRemoteError);
        OK(ncclCommAbort(comm));
    }
}

static void memory_of_nobody(void)
{
    with_ranks(2, bad_memory);
}

/* A failed context does not leave an operation waiting for ever. */
static void context_fails(int rank, int size, ncclUniqueId id)
{
    start();
    CUstream stream = stream_new(), other = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    CUdeviceptr memory = memory_new(400);
    if (rank == 1) {
        pause_ms(500);
        return;
    }
    OK(ncclAllReduce((void *)memory, (void *)memory, 100, ncclFloat32, ncclSum, comm, stream));
    CHECK(is_pending(stream, 50));
    OK(cuMemsetD8Async(memory, 0, 401, other));
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(ncclCommAbort(comm));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void a_context_fails(void)
{
    with_ranks(2, context_fails);
}

static void bad_arguments(int rank, int size, ncclUniqueId id)
{
    ncclComm_t comm;
    start();
    CUstream stream = stream_new();
    EXPECT(ncclCommInitRank(&comm, size, id, size), ncclInvalidArgument);
    setenv("FAKE_NCCL_INIT_ERROR", "2", 1);
    EXPECT(ncclCommInitRank(&comm, size, id, rank), ncclSystemError);
    unsetenv("FAKE_NCCL_INIT_ERROR");
    comm = communicator(rank, size, id);
    CUdeviceptr memory = memory_new(4);
    void *at = (void *)memory;
    EXPECT(ncclAllReduce(at, at, 1, (ncclDataType_t)12, ncclSum, comm, stream), ncclInvalidArgument);
    EXPECT(ncclBroadcast(at, at, 1, ncclInt8, 2, comm, stream), ncclInvalidArgument);
    OK(ncclGroupStart());
    EXPECT(ncclBroadcast(at, at, 1, ncclInt8, 2, comm, stream), ncclInvalidArgument);
    EXPECT(ncclGroupEnd(), ncclInvalidArgument);
    OK(cuStreamDestroy_v2(stream));
    EXPECT(ncclAllReduce(at, at, 1, ncclInt8, ncclSum, comm, stream), ncclUnhandledCudaError);
    OK(ncclCommDestroy(comm));
}

static void arguments(void)
{
    with_ranks(1, bad_arguments);
}

const struct test failure_tests[] = {
    {"duplicate_devices", duplicate_devices},
    {"two_devices", two_devices},
    {"abort_frees", abort_frees},
    {"a_rank_dies", a_rank_dies},
    {"a_rank_leaves", a_rank_leaves},
    {"abort_of_initialization", abort_of_initialization},
    {"sizes_that_differ", sizes_that_differ},
    {"letters_that_differ", letters_that_differ},
    {"memory_of_nobody", memory_of_nobody},
    {"a_context_fails", a_context_fails},
    {"arguments", arguments},
    {NULL, NULL},
};
