/* The fake libraries' own test: each case in a process of its own. An argument selects cases by a part of their name. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { LIMIT_S = 120, RANKS_MAX = 8 };

static bool ended_well(pid_t process)
{
    int status;
    CHECK(waitpid(process, &status, 0) == process);
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

void with_ranks(int size, void (*run)(int rank, int size, ncclUniqueId id))
{
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    pid_t ranks[RANKS_MAX];
    for (int rank = 0; rank < size; ++rank) {
        ranks[rank] = fork();
        CHECK(ranks[rank] >= 0);
        if (ranks[rank] == 0) {
            alarm(LIMIT_S);
            run(rank, size, id);
            exit(0);
        }
    }
    bool well = true;
    for (int rank = 0; rank < size; ++rank)
        well = ended_well(ranks[rank]) && well;
    CHECK(well);
}

void start(void)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

CUstream stream_new(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUdeviceptr memory_new(size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAlloc_v2(&address, bytes));
    return address;
}

CUdeviceptr memory_of(const void *host, size_t bytes)
{
    CUdeviceptr address = memory_new(bytes);
    OK(cuMemcpyHtoD_v2(address, host, bytes));
    OK(cuStreamSynchronize(NULL));
    return address;
}

void read_back(void *host, CUdeviceptr from, size_t bytes)
{
    OK(cuMemcpyDtoH_v2(host, from, bytes));
}

void pause_ms(unsigned ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000l};
    nanosleep(&time, NULL);
}

static void hold_up(void *argument, int broken)
{
    if (!broken)
        pause_ms((unsigned)(uintptr_t)argument);
}

void occupy(CUstream stream, unsigned ms)
{
    OK(fake_cuda_enqueue(stream, "occupy", hold_up, (void *)(uintptr_t)ms));
}

ncclComm_t communicator(int rank, int size, ncclUniqueId id)
{
    char host[16];
    snprintf(host, sizeof host, "%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, size, id, rank));
    return comm;
}

ncclResult_t error_to_come(ncclComm_t comm)
{
    ncclResult_t error = ncclSuccess;
    for (int i = 0; i < 2000 && (error == ncclSuccess || error == ncclInProgress); ++i) {
        OK(ncclCommGetAsyncError(comm, &error));
        pause_ms(5);
    }
    return error;
}

int main(int argc, char **argv)
{
    const struct test *const lists[] = {driver_tests, kernel_tests, nccl_tests, failure_tests};
    int failed = 0, passed = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; ++i) {
        for (const struct test *test = lists[i]; test->name; ++test) {
            if (argc > 1 && !strstr(test->name, argv[1]))
                continue;
            fflush(NULL);
            pid_t process = fork();
            if (process == 0) {
                alarm(LIMIT_S);
                test->run();
                exit(0);
            }
            bool well = ended_well(process);
            printf("%s %s\n", well ? "ok    " : "FAILED", test->name);
            passed += well;
            failed += !well;
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
