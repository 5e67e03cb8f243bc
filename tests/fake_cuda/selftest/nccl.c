/* NCCL among processes: every collective, groups, communicators. */
#include "check.h"

enum { COUNT = 300000 }; /* more than a slot holds, of 4 bytes */

static CUstream stream;

static CUdeviceptr floats(int rank, size_t count)
{
    float *host = malloc(count * sizeof *host);
    for (size_t i = 0; i < count; ++i)
        host[i] = (float)(rank + 1) * (float)(i % 1000);
    CUdeviceptr memory = memory_of(host, count * sizeof *host);
    free(host);
    return memory;
}

static void expect_floats(CUdeviceptr from, size_t count, float factor)
{
    float *host = malloc(count * sizeof *host);
    read_back(host, from, count * sizeof *host);
    for (size_t i = 0; i < count; ++i)
        CHECK(host[i] == factor * (float)(i % 1000));
    free(host);
}

static void collectives(int rank, int size, ncclUniqueId id)
{
    start();
    stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    int number;
    OK(ncclCommCount(comm, &number));
    EXPECT(number, size);

    size_t ranks = (size_t)size;
    CUdeviceptr mine = floats(rank, COUNT), result = memory_new(4 * COUNT), all = memory_new(4 * COUNT * ranks);
    float sum = (float)(size * (size + 1) / 2);
    OK(ncclAllReduce((void *)mine, (void *)result, COUNT, ncclFloat32, ncclSum, comm, stream));
    OK(cuStreamSynchronize(stream));
    expect_floats(result, COUNT, sum);
    OK(ncclAllReduce((void *)mine, (void *)result, COUNT, ncclFloat32, ncclMax, comm, stream));
    OK(cuStreamSynchronize(stream));
    expect_floats(result, COUNT, (float)size);
    OK(ncclAllGather((void *)mine, (void *)all, COUNT, ncclFloat32, comm, stream));
    OK(cuStreamSynchronize(stream));
    for (int other = 0; other < size; ++other)
        expect_floats(all + 4ull * COUNT * (unsigned)other, COUNT, (float)(other + 1));
    OK(ncclReduceScatter((void *)all, (void *)result, COUNT, ncclFloat32, ncclSum, comm, stream));
    OK(cuStreamSynchronize(stream));
    expect_floats(result, COUNT, (float)(size * (rank + 1)));
    OK(ncclBroadcast((void *)mine, (void *)result, COUNT, ncclFloat32, size - 1, comm, stream));
    OK(cuStreamSynchronize(stream));
    expect_floats(result, COUNT, (float)size);
    OK(ncclReduce((void *)mine, (void *)result, COUNT, ncclFloat32, ncclSum, 1, comm, stream));
    OK(cuStreamSynchronize(stream));
    expect_floats(result, COUNT, rank == 1 ? sum : (float)size);
    /* In place, and twice in a row without waiting. */
    OK(ncclAllReduce((void *)mine, (void *)mine, COUNT, ncclFloat32, ncclSum, comm, stream));
    OK(ncclAllReduce((void *)mine, (void *)mine, COUNT, ncclFloat32, ncclAvg, comm, stream));
    OK(cuStreamSynchronize(stream));
    expect_floats(mine, COUNT, sum);
    OK(ncclCommFinalize(comm));
    EXPECT(ncclAllReduce((void *)mine, (void *)mine, 1, ncclFloat32, ncclSum, comm, stream), ncclInvalidUsage);
    OK(ncclCommDestroy(comm));
    EXPECT(ncclCommCount(comm, &number), ncclInvalidArgument);
}

static void collectives_of_2(void)
{
    with_ranks(2, collectives);
}

static void collectives_of_3(void)
{
    with_ranks(3, collectives);
}

/* The same with all that can be late being late. */
static void collectives_with_delays(void)
{
    setenv("FAKE_CUDA_DELAY_US", "3000", 1);
    with_ranks(3, collectives);
}

/* Rank r has r + 2 in every type; 2 ranks: sum 5, product 6, greatest 3, least 2, average 2 or 2.5. */
static void types(int rank, int size, ncclUniqueId id)
{
    static const unsigned char values[ncclNumTypes][2][8] = {
        [ncclInt8] = {{2}, {3}},          [ncclUint8] = {{2}, {3}},          [ncclInt32] = {{2}, {3}},
        [ncclUint32] = {{2}, {3}},        [ncclInt64] = {{2}, {3}},          [ncclUint64] = {{2}, {3}},
        [ncclFloat16] = {{0, 0x40}, {0, 0x42}},
        [ncclFloat32] = {{0, 0, 0, 0x40}, {0, 0, 0x40, 0x40}},
        [ncclFloat64] = {{0, 0, 0, 0, 0, 0, 0, 0x40}, {0, 0, 0, 0, 0, 0, 8, 0x40}},
        [ncclBfloat16] = {{0, 0x40}, {0x40, 0x40}},
    };
    /* 5, 6, 3, 2, and 2 or 2.5 */
    static const unsigned char wanted[ncclNumTypes][ncclNumOps][8] = {
        [ncclInt8] = {{5}, {6}, {3}, {2}, {2}},   [ncclUint8] = {{5}, {6}, {3}, {2}, {2}},
        [ncclInt32] = {{5}, {6}, {3}, {2}, {2}},  [ncclUint32] = {{5}, {6}, {3}, {2}, {2}},
        [ncclInt64] = {{5}, {6}, {3}, {2}, {2}},  [ncclUint64] = {{5}, {6}, {3}, {2}, {2}},
        [ncclFloat16] = {{0, 0x45}, {0, 0x46}, {0, 0x42}, {0, 0x40}, {0, 0x41}},
        [ncclFloat32] = {{0, 0, 0xa0, 0x40}, {0, 0, 0xc0, 0x40}, {0, 0, 0x40, 0x40}, {0, 0, 0, 0x40}, {0, 0, 0x20, 0x40}},
        [ncclFloat64] = {{0, 0, 0, 0, 0, 0, 0x14, 0x40}, {0, 0, 0, 0, 0, 0, 0x18, 0x40}, {0, 0, 0, 0, 0, 0, 8, 0x40},
                         {0, 0, 0, 0, 0, 0, 0, 0x40}, {0, 0, 0, 0, 0, 0, 4, 0x40}},
        [ncclBfloat16] = {{0xa0, 0x40}, {0xc0, 0x40}, {0x40, 0x40}, {0, 0x40}, {0x20, 0x40}},
    };
    start();
    stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    for (int type = 0; type < ncclNumTypes; ++type) {
        CUdeviceptr from = memory_of(values[type][rank], 8), to = memory_of("\0\0\0\0\0\0\0\0", 8);
        for (int op = 0; op < ncclNumOps; ++op) {
            unsigned char got[8];
            OK(ncclAllReduce((void *)from, (void *)to, 1, (ncclDataType_t)type, (ncclRedOp_t)op, comm, stream));
            OK(cuStreamSynchronize(stream));
            read_back(got, to, 8);
            CHECK(memcmp(got, wanted[type][op], 8) == 0);
        }
    }
    OK(ncclCommDestroy(comm));
}

static void types_and_operations(void)
{
    with_ranks(2, types);
}

/* All to all, of sizes that differ, several pieces long, the own part included. */
static void alltoall(int rank, int size, ncclUniqueId id)
{
    start();
    stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    CUdeviceptr to[8], from[8];
    OK(ncclGroupStart());
    for (int peer = 0; peer < size; ++peer) {
        size_t sent = 50000 + 1000 * (size_t)(rank * size + peer), received = 50000 + 1000 * (size_t)(peer * size + rank);
        to[peer] = floats(rank * size + peer, sent);
        from[peer] = memory_new(4 * received);
        OK(ncclSend((void *)to[peer], sent, ncclFloat32, peer, comm, stream));
        OK(ncclRecv((void *)from[peer], received, ncclFloat32, peer, comm, stream));
    }
    OK(ncclGroupEnd());
    OK(cuStreamSynchronize(stream));
    for (int peer = 0; peer < size; ++peer)
        expect_floats(from[peer], 50000 + 1000 * (size_t)(peer * size + rank), (float)(peer * size + rank + 1));
    /* Two messages one after the other to the same rank, and a collective in the same group. */
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    CUdeviceptr first = floats(10 * rank, 5), second = floats(10 * rank + 1, 7), sum = floats(rank, 100);
    CUdeviceptr got_first = memory_new(20), got_second = memory_new(28);
    OK(ncclGroupStart());
    OK(ncclSend((void *)first, 5, ncclFloat32, next, comm, stream));
    OK(ncclGroupStart());
    OK(ncclSend((void *)second, 7, ncclFloat32, next, comm, stream));
    OK(ncclAllReduce((void *)sum, (void *)sum, 100, ncclFloat32, ncclSum, comm, stream));
    OK(ncclGroupEnd());
    OK(ncclRecv((void *)got_first, 5, ncclFloat32, previous, comm, stream));
    OK(ncclRecv((void *)got_second, 7, ncclFloat32, previous, comm, stream));
    OK(ncclGroupEnd());
    OK(cuStreamSynchronize(stream));
    expect_floats(got_first, 5, (float)(10 * previous + 1));
    expect_floats(got_second, 7, (float)(10 * previous + 2));
    expect_floats(sum, 100, (float)(size * (size + 1) / 2));
    OK(ncclCommDestroy(comm));
}

static void sends_and_receives(void)
{
    with_ranks(3, alltoall);
}

/* Two communicators, whose operations are called in one order and on two streams. */
static void two(int rank, int size, ncclUniqueId id)
{
    start();
    stream = stream_new();
    CUstream other = stream_new();
    ncclComm_t world = communicator(rank, size, id), pair = NULL;
    /* The second one's id comes by the first. */
    ncclUniqueId second;
    OK(ncclGetUniqueId(&second));
    CUdeviceptr memory = memory_of(&second, sizeof second);
    OK(ncclBroadcast((void *)memory, (void *)memory, sizeof second, ncclUint8, 1, world, stream));
    OK(cuStreamSynchronize(stream));
    read_back(&second, memory, sizeof second);
    if (rank > 0)
        pair = communicator(rank - 1, size - 1, second);
    CUdeviceptr a = floats(rank, 1000), b = floats(rank, 1000);
    occupy(stream, 30);
    OK(ncclAllReduce((void *)a, (void *)a, 1000, ncclFloat32, ncclSum, world, stream));
    OK(ncclAllReduce((void *)b, (void *)b, 1000, ncclFloat32, ncclSum, world, other));
    OK(cuStreamSynchronize(other));
    OK(cuStreamSynchronize(stream));
    expect_floats(a, 1000, 6);
    expect_floats(b, 1000, 6);
    if (pair) {
        OK(ncclAllReduce((void *)a, (void *)a, 1000, ncclFloat32, ncclSum, pair, other));
        OK(cuStreamSynchronize(other));
        expect_floats(a, 1000, 12);
        OK(ncclCommDestroy(pair));
    }
    OK(ncclCommDestroy(world));
}

static void two_communicators(void)
{
    with_ranks(3, two);
}

static void nonblocking(int rank, int size, ncclUniqueId id)
{
    start();
    stream = stream_new();
    char host[8];
    snprintf(host, sizeof host, "%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    ncclConfig_t config = {.size = sizeof config, .magic = NCCL_CONFIG_MAGIC, .version = 22105, .blocking = 0};
    ncclComm_t comm;
    ncclResult_t error;
    int number;
    EXPECT(ncclCommInitRankConfig(&comm, size, id, rank, &config), ncclInProgress);
    OK(ncclCommGetAsyncError(comm, &error));
    EXPECT(error, ncclInProgress);
    EXPECT(ncclCommCount(comm, &number), ncclInvalidArgument);
    while (error == ncclInProgress)
        OK(ncclCommGetAsyncError(comm, &error));
    OK(error);
    CUdeviceptr memory = floats(rank, 1000);
    ncclResult_t first = ncclAllReduce((void *)memory, (void *)memory, 1000, ncclFloat32, ncclSum, comm, stream);
    EXPECT(first, ncclInProgress);
    do
        OK(ncclCommGetAsyncError(comm, &error));
    while (error == ncclInProgress);
    OK(cuStreamSynchronize(stream));
    expect_floats(memory, 1000, 3);
    OK(ncclAllReduce((void *)memory, (void *)memory, 1000, ncclFloat32, ncclSum, comm, stream));
    EXPECT(ncclCommFinalize(comm), ncclInProgress);
    do
        OK(ncclCommGetAsyncError(comm, &error));
    while (error == ncclInProgress);
    expect_floats(memory, 1000, 6);
    OK(ncclCommDestroy(comm));
}

static void not_blocking(void)
{
    with_ranks(2, nonblocking);
}

static void versions(void)
{
    int version;
    OK(ncclGetVersion(&version));
    EXPECT(version, 22105);
    setenv("FAKE_NCCL_VERSION", "21403", 1);
    OK(ncclGetVersion(&version));
    EXPECT(version, 21403);
    CHECK(strcmp(ncclGetErrorString(ncclInvalidUsage), "invalid usage") == 0);
}

static void one(int rank, int size, ncclUniqueId id)
{
    start();
    stream = stream_new();
    ncclComm_t comm = communicator(rank, size, id);
    CUdeviceptr memory = floats(rank, 1000), copy = memory_new(4000);
    OK(ncclAllReduce((void *)memory, (void *)memory, 1000, ncclFloat32, ncclAvg, comm, stream));
    OK(ncclGroupStart());
    OK(ncclSend((void *)memory, 1000, ncclFloat32, 0, comm, stream));
    OK(ncclRecv((void *)copy, 1000, ncclFloat32, 0, comm, stream));
    OK(ncclGroupEnd());
    OK(cuStreamSynchronize(stream));
    expect_floats(copy, 1000, 1);
    EXPECT(ncclSend((void *)memory, 1000, ncclFloat32, 0, comm, stream), ncclInvalidUsage);
    OK(ncclCommDestroy(comm));
}

static void alone(void)
{
    with_ranks(1, one);
}

const struct test nccl_tests[] = {
    {"versions", versions},
    {"alone", alone},
    {"collectives_of_2", collectives_of_2},
    {"collectives_of_3", collectives_of_3},
    {"collectives_with_delays", collectives_with_delays},
    {"types_and_operations", types_and_operations},
    {"sends_and_receives", sends_and_receives},
    {"two_communicators", two_communicators},
    {"not_blocking", not_blocking},
    {NULL, NULL},
};
