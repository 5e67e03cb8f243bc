/* What the files of the fake driver share: one lock over everything, contexts, streams and their operations. */
#ifndef FAKE_CUDA_DRIVER_H
#define FAKE_CUDA_DRIVER_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>

#include "../api.h"

enum { DEVICES_MAX = 16, LINE_MAX_BYTES = 480 };

/* A device's primary context. */
struct context {
    CUdevice device;
    int retained;
    CUresult sticky;       /* the error that nothing mends, or CUDA_SUCCESS */
    size_t allocated;      /* bytes of the device's memory in use */
    unsigned events;       /* alive */
    struct stream *legacy; /* made when first used */
    struct stream *first;  /* all streams whose threads live */
};

/* Something to be done on a stream. */
struct operation {
    struct operation *next;
    void (*run)(void *argument, int broken);
    void *argument;
    char line[LINE_MAX_BYTES]; /* for the log; empty if the operation writes its own */
};

struct stream {
    struct stream *next;
    struct context *context;
    unsigned number; /* in the log; 0 is the legacy default stream */
    unsigned flags;
    int priority;
    CUstream handle;
    int references; /* its handle, its thread, and those who wait */
    bool ended; /* destroyed: the thread ends when the queue is empty */
    struct operation *first, *last;
    uint64_t enqueued, completed;
    pthread_cond_t work;
};

/* What the environment asks for, read when the library is initialized. */
struct settings {
    int devices;
    int version;
    int init_error;
    size_t memory_bytes;
    unsigned delay_us;
    const char *log;
};
extern struct settings settings;
void settings_read(void);

/* Held for all state below; never while an operation runs. */
extern pthread_mutex_t driver_lock;
/* Told whenever an operation has run, an event has happened or a context has failed. */
extern pthread_cond_t driver_changed;

/* The operation that this thread runs belongs to this stream; null elsewhere. */
extern _Thread_local struct stream *running;

/* cuda.c, context.c: the beginning of nearly every call. On success the lock is held, and `leave` lets it go. */
CUresult enter_initialized(void);
CUresult enter(struct context **context);
CUresult leave(CUresult result);
struct context *context_of_device(CUdevice device);
/* With the lock held: the context has failed for good; says why in one line. */
void context_break(struct context *context, CUresult error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* handle.c: handles that are never given twice, so that a dead one is always found out. Lock held. */
enum kind { STREAM = 1, EVENT, MODULE, FUNCTION };
void *handle_new(enum kind kind, void *object);
void *handle_object(enum kind kind, const void *handle);
void handle_drop(const void *handle);

/* stream.c. Lock held. */
CUresult stream_find(struct context *context, CUstream handle, struct stream **stream);
/* If the context has failed, `run` is called at once, broken, with the lock held: it must
 * then do no more than free its argument. The line is formatted; an empty one is not logged. */
CUresult stream_enqueue(struct stream *stream, void (*run)(void *argument, int broken), void *argument, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));
/* Waits until all that is on the stream so far has run. */
CUresult stream_wait(struct stream *stream);
void stream_end(struct stream *stream);
void stream_drop_reference(struct stream *stream);

/* memory.c */
enum memory { DEVICE_MEMORY, PINNED_MEMORY };
/* Lock held: the bytes are in one live allocation of that kind. */
bool memory_is(enum memory memory, const void *address, size_t bytes);
/* Without the lock, inside an operation: as fake_cuda_touch, for either kind. */
void *memory_touch(enum memory memory, uintptr_t address, size_t bytes, const char *who);
/* After an operation: lets go what it has touched. */
void memory_untouch(void);
/* At the end of a thread: frees its list of what was touched. */
void memory_thread_end(void);
/* Lock held: frees what a context still has. */
void memory_release(struct context *context);

/* log.c */
void log_line(const struct stream *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
