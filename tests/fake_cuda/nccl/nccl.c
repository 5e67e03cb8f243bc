/* NCCL on the CPU: the life of communicators. ../README.md says what it imitates and what not. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous.h"

pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t nccl_changed = PTHREAD_COND_INITIALIZER;

static ncclComm_t comms; /* that the user may use */

/* How often peers are looked after. */
static const int64_t LOOK_NS = 20000000;

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return fail(ncclInvalidArgument, "no room for the version");
    *version = number("FAKE_NCCL_VERSION", 22105);
    return ncclSuccess;
}

static struct driver found;

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return;
    *(void **)&found.enqueue = dlsym(library, "fake_cuda_enqueue");
    *(void **)&found.touch = dlsym(library, "fake_cuda_touch");
    *(void **)&found.broken = dlsym(library, "fake_cuda_broken");
    *(void **)&found.log = dlsym(library, "fake_cuda_log");
    *(void **)&found.context_device = dlsym(library, "cuCtxGetDevice");
    *(void **)&found.bus_id = dlsym(library, "cuDeviceGetPCIBusId");
}

const struct driver *driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_driver);
    return found.enqueue ? &found : NULL;
}

static bool is_live(ncclComm_t comm)
{
    ncclComm_t at = comms;
    while (at && at != comm)
        at = at->next;
    return at != NULL;
}

ncclResult_t comm_check(ncclComm_t comm)
{
    if (!comm || !is_live(comm))
        return fail(ncclInvalidArgument, "not a communicator");
    if (comm->helpers)
        return fail(ncclInvalidArgument, "the communicator is used while something on it is in progress");
    return (ncclResult_t)comm->error;
}

void comm_drop(ncclComm_t comm)
{
    if (--comm->references)
        return;
    if (comm->segment)
        munmap(comm->segment, segment_bytes(comm->size));
    free(comm);
}

void comm_log(ncclComm_t comm, const char *what)
{
    char line[100];
    snprintf(line, sizeof line, "%s rank=%d/%d comm=%04x", what, comm->rank, comm->size, rendezvous_tag(&comm->id));
    driver()->log(line);
}

void comm_break(ncclComm_t comm, ncclResult_t error)
{
    int none = ncclSuccess;
    atomic_compare_exchange_strong(&comm->error, &none, (int)error);
}

void comm_help(ncclComm_t comm, void *(*work)(void *argument), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, argument))
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(thread);
    comm->helpers++;
    comm->references++;
}

void comm_helped(ncclComm_t comm, ncclResult_t result)
{
    if (result)
        comm_break(comm, result);
    comm->helpers--;
    pthread_cond_broadcast(&nccl_changed);
    comm_drop(comm);
}

static void *init(void *argument)
{
    ncclComm_t comm = argument;
    usleep(HELPER_US);
    ncclResult_t result = rendezvous(comm);
    pthread_mutex_lock(&nccl_lock);
    comm_helped(comm, result);
    pthread_mutex_unlock(&nccl_lock);
    return NULL;
}

/* The device of the thread's context; of a thread that has none it is 0, as for the CUDA runtime. */
static ncclResult_t find_device(ncclComm_t comm)
{
    if (!driver())
        return fail(ncclUnhandledCudaError, "the fake CUDA driver is not loaded");
    CUresult result = driver()->context_device(&comm->device);
    if (result == CUDA_ERROR_INVALID_CONTEXT)
        comm->device = 0, result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = driver()->bus_id(comm->myself.bus, sizeof comm->myself.bus, comm->device);
    return result ? fail(ncclUnhandledCudaError, "CUDA error %d", result) : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    if (!made || size < 1 || rank < 0 || rank >= size)
        return fail(ncclInvalidArgument, "rank %d of %d", rank, size);
    *made = NULL;
    if (config && config->magic != NCCL_CONFIG_MAGIC)
        return fail(ncclInvalidArgument, "the configuration is not initialized");
    int blocking = config && config->blocking != NCCL_CONFIG_UNDEF_INT ? config->blocking : 1;
    if (blocking != 0 && blocking != 1)
        return fail(ncclInvalidArgument, "blocking is %d", blocking);
    int wanted = number("FAKE_NCCL_INIT_ERROR", 0);
    if (wanted)
        return fail((ncclResult_t)wanted, "FAKE_NCCL_INIT_ERROR is %d", wanted);
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm)
        abort();
    comm->references = 1;
    comm->id = id;
    comm->rank = rank;
    comm->size = size;
    comm->blocking = blocking;
    ncclResult_t result = find_device(comm);
    bool helped = !blocking || group_is_open();
    if (result == ncclSuccess && !helped)
        result = rendezvous(comm);
    pthread_mutex_lock(&nccl_lock);
    if (result) {
        comm_drop(comm);
    } else {
        comm_log(comm, "ncclCommInitRank");
        comm->next = comms;
        comms = comm;
        *made = comm;
        if (helped) {
            comm_help(comm, init, comm);
            if (group_is_open())
                group_add_init(comm);
            result = blocking ? ncclSuccess : ncclInProgress;
        }
    }
    pthread_mutex_unlock(&nccl_lock);
    return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *made, int size, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(made, size, id, rank, NULL);
}

/* Whether another rank has died; or has aborted, while this one waits for something. */
static bool has_lost_a_peer(ncclComm_t comm)
{
    for (int rank = 0; rank < comm->size; ++rank) {
        struct member *member = &comm->segment->members[rank];
        if (rank == comm->rank)
            continue;
        enum departure gone = (enum departure)member->gone;
        bool aborted = gone == ABORTED && comm->first;
        if (aborted || (gone == PRESENT && process_started(member->process) != member->started)) {
            fail(ncclRemoteError, "rank %d (process %d) %s", rank, (int)member->process, aborted ? "aborted" : "died");
            return true;
        }
    }
    return false;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    int64_t now = time.tv_sec * 1000000000ll + time.tv_nsec;
    pthread_mutex_lock(&nccl_lock);
    ncclResult_t result = ncclSuccess;
    if (!comm || !error || !is_live(comm)) {
        result = fail(ncclInvalidArgument, "not a communicator");
    } else if (comm->helpers) {
        *error = ncclInProgress;
    } else {
        if (!comm->error && now - comm->looked_ns >= LOOK_NS) {
            comm->looked_ns = now;
            if (has_lost_a_peer(comm))
                comm_break(comm, ncclRemoteError);
        }
        *error = (ncclResult_t)comm->error;
    }
    pthread_mutex_unlock(&nccl_lock);
    return result;
}

/* The user has no more to do with it. */
static void retire(ncclComm_t comm, enum departure departure)
{
    ncclComm_t *at = &comms;
    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
    if (comm->segment) {
        comm->segment->members[comm->rank].gone = (int)departure;
        segment_ring(comm->segment);
    }
    comm_drop(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    pthread_mutex_lock(&nccl_lock);
    ncclResult_t result = ncclSuccess;
    if (!is_live(comm)) {
        result = fail(ncclInvalidArgument, "not a communicator");
    } else {
        comm_log(comm, "ncclCommAbort");
        comm->aborted = 1;
        if (!comm->helpers && comm->segment)
            segment_ring(comm->segment);
        pthread_cond_broadcast(&nccl_changed);
        while (comm->helpers || comm->running)
            pthread_cond_wait(&nccl_changed, &nccl_lock);
        retire(comm, ABORTED);
    }
    pthread_mutex_unlock(&nccl_lock);
    return result;
}

static void wait_for_operations(ncclComm_t comm)
{
    while (comm->first && !comm->aborted)
        pthread_cond_wait(&nccl_changed, &nccl_lock);
}

static void *finalize(void *argument)
{
    ncclComm_t comm = argument;
    usleep(HELPER_US);
    pthread_mutex_lock(&nccl_lock);
    wait_for_operations(comm);
    comm_helped(comm, ncclSuccess);
    pthread_mutex_unlock(&nccl_lock);
    return NULL;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    pthread_mutex_lock(&nccl_lock);
    ncclResult_t result = comm_check(comm);
    if (result == ncclSuccess && comm->finalized)
        result = fail(ncclInvalidUsage, "finalized already");
    if (result == ncclSuccess) {
        comm->finalized = true;
        if (comm->blocking) {
            wait_for_operations(comm);
        } else {
            comm_help(comm, finalize, comm);
            result = ncclInProgress;
        }
    }
    pthread_mutex_unlock(&nccl_lock);
    return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    pthread_mutex_lock(&nccl_lock);
    ncclResult_t result = comm_check(comm);
    if (result == ncclSuccess) {
        wait_for_operations(comm);
        comm_log(comm, "ncclCommDestroy");
        retire(comm, DESTROYED);
    }
    pthread_mutex_unlock(&nccl_lock);
    return result;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *count)
{
    if (!count)
        return fail(ncclInvalidArgument, "no room for the answer");
    pthread_mutex_lock(&nccl_lock);
    ncclResult_t result = comm_check(comm);
    if (result == ncclSuccess)
        *count = comm->size;
    pthread_mutex_unlock(&nccl_lock);
    return result;
}
