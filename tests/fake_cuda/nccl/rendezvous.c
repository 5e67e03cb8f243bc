/* How the ranks of a communicator find each other: over a socket whose name comes from the unique id.
 *
 * Rank 0 listens, the others tell it who they are, and it answers all at once: with the shared memory, or with what is
 * wrong. The socket's name is abstract and the memory has none, so nothing is left behind, whoever dies.
 */
#include "rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What is in a unique id. */
struct identity {
    char magic[8];
    uint64_t random[2];
    pid_t process; /* that made it: without it there will be no communicator */
    uint64_t started;
};
static const char MAGIC[8] = "fakenccl";

struct hello {
    int size;
    int rank;
    struct member member;
};

struct verdict {
    ncclResult_t result;
    char text[TEXT_BYTES];
};

static const int PATIENCE_MS = 5;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    if (!id)
        return fail(ncclInvalidArgument, "no room for a unique id");
    struct identity identity = {.process = getpid(), .started = process_started(getpid())};
    memcpy(identity.magic, MAGIC, sizeof MAGIC);
    if (getrandom(identity.random, sizeof identity.random, 0) != (ssize_t)sizeof identity.random)
        return fail(ncclSystemError, "no random numbers");
    memset(id, 0, sizeof *id);
    memcpy(id, &identity, sizeof identity);
    return ncclSuccess;
}

static struct identity identity_of(const struct ncclComm *comm)
{
    struct identity identity;
    memcpy(&identity, &comm->id, sizeof identity);
    return identity;
}

unsigned rendezvous_tag(const ncclUniqueId *id)
{
    struct identity identity;
    memcpy(&identity, id, sizeof identity);
    return (unsigned)identity.random[0] & 0xffff;
}

static socklen_t address_of(const struct ncclComm *comm, struct sockaddr_un *address)
{
    struct identity identity = identity_of(comm);
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "fake-nccl-%016llx%016llx",
                          (unsigned long long)identity.random[0], (unsigned long long)identity.random[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static ncclResult_t map(ncclComm_t comm, int file)
{
    void *memory = mmap(NULL, segment_bytes(comm->size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return fail(ncclSystemError, "cannot map the shared memory: %s", strerror(errno));
    comm->segment = memory;
    return ncclSuccess;
}

/* Tells a rank what came out; the memory goes along with success. */
static void answer(int peer, const struct verdict *verdict, int file)
{
    struct iovec part = {(void *)verdict, sizeof *verdict};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (verdict->result == ncclSuccess) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &file, sizeof file);
    }
    sendmsg(peer, &message, MSG_NOSIGNAL);
}

/* Another rank of the same host on the same device, or -1. */
static int duplicate(const struct member *members, int size, int rank)
{
    for (int other = 0; other < size; ++other)
        if (other != rank && strcmp(members[other].host, members[rank].host) == 0 &&
            strcmp(members[other].bus, members[rank].bus) == 0)
            return other;
    return -1;
}

/* A device's number as the real library prints it: domain, bus, device and function, a digit each at least. */
static unsigned long device_number(const char *bus)
{
    unsigned domain = 0, number = 0, device = 0, function = 0;
    sscanf(bus, "%x:%x:%x.%x", &domain, &number, &device, &function);
    return (unsigned long)domain << 20 | number << 12 | device << 4 | function;
}

/* What this rank is told. A rank without a duplicate fails with those that have one. */
static struct verdict verdict_of(const struct member *members, int size, int rank)
{
    struct verdict verdict = {.result = ncclSuccess};
    for (int i = 0; i < size; ++i) {
        int one = (rank + i) % size, other = duplicate(members, size, one);
        if (other < 0)
            continue;
        verdict.result = ncclInvalidUsage;
        snprintf(verdict.text, sizeof verdict.text, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %lx",
                 one, other, device_number(members[one].bus));
        break;
    }
    return verdict;
}

/* The ranks that rank 0 has seen. */
struct assembly {
    int size, arrived;
    int *peers; /* sockets; -1: not seen */
    struct member *members;
};

static ncclResult_t welcome(struct assembly *assembly, int listener)
{
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct hello hello;
    if (peer < 0)
        return ncclSuccess;
    if (recv(peer, &hello, sizeof hello, 0) != (ssize_t)sizeof hello) {
        close(peer);
        return fail(ncclRemoteError, "a rank died while it joined");
    }
    if (hello.size != assembly->size || assembly->peers[hello.rank] >= 0 || hello.rank == 0) {
        close(peer);
        return fail(ncclInvalidUsage, "rank %d of %d joins a communicator of %d ranks where it cannot", hello.rank,
                    hello.size, assembly->size);
    }
    assembly->peers[hello.rank] = peer;
    assembly->members[hello.rank] = hello.member;
    assembly->arrived++;
    return ncclSuccess;
}

/* Until all are there, one of them dies, or this rank is not to go on. */
static ncclResult_t assemble(ncclComm_t comm, struct assembly *assembly, int listener)
{
    struct pollfd *waiting = calloc((size_t)assembly->size, sizeof *waiting);
    if (!waiting)
        abort();
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess && assembly->arrived < assembly->size) {
        if (comm->aborted) {
            result = fail(ncclInvalidUsage, "aborted");
            break;
        }
        waiting[0] = (struct pollfd){listener, POLLIN, 0};
        for (int rank = 1; rank < assembly->size; ++rank)
            waiting[rank] = (struct pollfd){assembly->peers[rank], 0, 0};
        if (poll(waiting, (nfds_t)assembly->size, PATIENCE_MS) <= 0)
            continue;
        for (int rank = 1; rank < assembly->size; ++rank)
            if (waiting[rank].revents & (POLLHUP | POLLERR))
                result = fail(ncclRemoteError, "rank %d left before the others came", rank);
        if (result == ncclSuccess && waiting[0].revents)
            result = welcome(assembly, listener);
    }
    free(waiting);
    return result;
}

static ncclResult_t share(ncclComm_t comm, struct assembly *assembly)
{
    int file = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)segment_bytes(comm->size))) {
        if (file >= 0)
            close(file);
        return fail(ncclSystemError, "cannot make the shared memory: %s", strerror(errno));
    }
    ncclResult_t result = map(comm, file);
    if (result == ncclSuccess) {
        comm->segment->size = comm->size;
        memcpy(comm->segment->members, assembly->members, (size_t)comm->size * sizeof *assembly->members);
        for (int rank = 1; rank < comm->size; ++rank) {
            struct verdict verdict = verdict_of(assembly->members, comm->size, rank);
            answer(assembly->peers[rank], &verdict, file);
        }
        struct verdict mine = verdict_of(assembly->members, comm->size, 0);
        if (mine.result)
            result = fail(mine.result, "%s", mine.text);
    }
    close(file);
    return result;
}

static ncclResult_t host(ncclComm_t comm)
{
    struct sockaddr_un address;
    socklen_t length = address_of(comm, &address);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, comm->size)) {
        if (listener >= 0)
            close(listener);
        return fail(ncclSystemError, "rank 0 cannot listen: %s", strerror(errno));
    }
    struct assembly assembly = {.size = comm->size, .arrived = 1};
    assembly.peers = malloc((size_t)comm->size * sizeof *assembly.peers);
    assembly.members = calloc((size_t)comm->size, sizeof *assembly.members);
    if (!assembly.peers || !assembly.members)
        abort();
    for (int rank = 0; rank < comm->size; ++rank)
        assembly.peers[rank] = -1;
    assembly.members[0] = comm->myself;

    ncclResult_t result = assemble(comm, &assembly, listener);
    close(listener);
    if (result == ncclSuccess)
        result = share(comm, &assembly);
    struct verdict bad = {.result = result == ncclInvalidUsage && !comm->aborted ? result : ncclRemoteError};
    snprintf(bad.text, sizeof bad.text, "%s", ncclGetLastError(comm));
    for (int rank = 1; rank < comm->size; ++rank) {
        if (assembly.peers[rank] < 0)
            continue;
        if (result != ncclSuccess) /* of two answers the first counts */
            answer(assembly.peers[rank], &bad, -1);
        close(assembly.peers[rank]);
    }
    free(assembly.peers);
    free(assembly.members);
    return result;
}

static ncclResult_t connect_to_host(ncclComm_t comm, int *connection)
{
    struct sockaddr_un address;
    socklen_t length = address_of(comm, &address);
    struct identity identity = identity_of(comm);
    for (;;) {
        int to_host = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (to_host < 0)
            return fail(ncclSystemError, "no socket: %s", strerror(errno));
        if (connect(to_host, (struct sockaddr *)&address, length) == 0) {
            *connection = to_host;
            return ncclSuccess;
        }
        close(to_host);
        if (comm->aborted)
            return fail(ncclInvalidUsage, "aborted");
        if (process_started(identity.process) != identity.started)
            return fail(ncclRemoteError, "the process that made the unique id is gone");
        usleep((unsigned)PATIENCE_MS * 1000);
    }
}

static ncclResult_t hear(ncclComm_t comm, int connection)
{
    struct pollfd waiting = {connection, POLLIN, 0};
    while (poll(&waiting, 1, PATIENCE_MS) <= 0)
        if (comm->aborted)
            return fail(ncclInvalidUsage, "aborted");
    struct verdict verdict;
    struct iovec part = {&verdict, sizeof verdict};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof verdict)
        return fail(ncclRemoteError, "rank 0 left before all had come");
    if (verdict.result)
        return fail(verdict.result, "%s", verdict.text);
    int file;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (!rights || rights->cmsg_type != SCM_RIGHTS)
        return fail(ncclInternalError, "no shared memory came");
    memcpy(&file, CMSG_DATA(rights), sizeof file);
    ncclResult_t result = map(comm, file);
    close(file);
    return result;
}

static ncclResult_t visit(ncclComm_t comm)
{
    int connection = -1;
    ncclResult_t result = connect_to_host(comm, &connection);
    if (result)
        return result;
    struct hello hello = {.size = comm->size, .rank = comm->rank, .member = comm->myself};
    if (send(connection, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        result = fail(ncclRemoteError, "rank 0 left");
    else
        result = hear(comm, connection);
    close(connection);
    return result;
}

ncclResult_t rendezvous(ncclComm_t comm)
{
    if (memcmp(comm->id.internal, MAGIC, sizeof MAGIC) != 0)
        return fail(ncclInvalidArgument, "not a unique id of this library");
    const char *host_id = getenv("NCCL_HOSTID");
    if (host_id && *host_id)
        snprintf(comm->myself.host, sizeof comm->myself.host, "id %s", host_id);
    else
        gethostname(comm->myself.host, sizeof comm->myself.host - 1);
    comm->myself.process = getpid();
    comm->myself.started = process_started(getpid());
    return comm->rank == 0 ? host(comm) : visit(comm);
}
