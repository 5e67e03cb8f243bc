/* A CUDA driver on the CPU: initialization, versions, errors. README.md says what it imitates and what not. */
#include <unistd.h>

#include "driver.h"

pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t driver_changed = PTHREAD_COND_INITIALIZER;

/* The process that called cuInit. A forked child has none of its threads, and may not go on, as with the real driver. */
static pid_t initialized_by;

/* A child is to get an error, not a lock that nobody will release. */
static void lock(void)
{
    pthread_mutex_lock(&driver_lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&driver_lock);
}

CUresult cuInit(unsigned int flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    CUresult result = CUDA_SUCCESS;
    if (!initialized_by) {
        settings_read();
        result = settings.init_error ? settings.init_error : settings.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
        if (result == CUDA_SUCCESS) {
            pthread_atfork(lock, unlock, unlock);
            initialized_by = getpid();
        }
    } else if (initialized_by != getpid()) {
        result = CUDA_ERROR_NOT_INITIALIZED;
    }
    return leave(result);
}

CUresult enter_initialized(void)
{
    pthread_mutex_lock(&driver_lock);
    return initialized_by == getpid() ? CUDA_SUCCESS : leave(CUDA_ERROR_NOT_INITIALIZED);
}

CUresult leave(CUresult result)
{
    pthread_mutex_unlock(&driver_lock);
    return result;
}

/* The one call, besides those about errors, that needs no cuInit. */
CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    if (!initialized_by)
        settings_read();
    *version = settings.version;
    return leave(CUDA_SUCCESS);
}

struct result {
    CUresult number;
    const char *name, *text;
};
static const struct result results[] = {
#define X(name, number, text) {number, #name, text},
    FAKE_CUDA_RESULTS(X)
#undef X
};

static const struct result *result_of(CUresult number)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; ++i)
        if (results[i].number == number)
            return &results[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    const struct result *result = result_of(error);
    *name = result ? result->name : NULL;
    return result ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct result *result = result_of(error);
    *text = result ? result->text : NULL;
    return result ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
