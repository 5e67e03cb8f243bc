/* What went wrong last, and what results mean. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "communicator.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[1024];

ncclResult_t fail(ncclResult_t result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    vsnprintf(last, sizeof last, format, arguments);
    pthread_mutex_unlock(&lock);
    va_end(arguments);
    return result;
}

/* The text stands until this thread asks again. */
const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    static _Thread_local char copy[sizeof last];
    pthread_mutex_lock(&lock);
    memcpy(copy, last, sizeof copy);
    pthread_mutex_unlock(&lock);
    return copy;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "operation in progress";
    default: return "unknown result";
    }
}
