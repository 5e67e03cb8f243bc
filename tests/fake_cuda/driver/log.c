/* The log of operations, for tests of their order; and the settings. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

struct settings settings;

static unsigned long long number(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

void settings_read(void)
{
    unsigned long long devices = number("FAKE_CUDA_DEVICES", 1);
    settings.devices = devices > DEVICES_MAX ? DEVICES_MAX : (int)devices;
    settings.version = (int)number("FAKE_CUDA_VERSION", 12040);
    settings.init_error = (int)number("FAKE_CUDA_INIT_ERROR", 0);
    settings.memory_bytes = number("FAKE_CUDA_MEMORY_BYTES", 4ull << 30);
    settings.delay_us = (unsigned)number("FAKE_CUDA_DELAY_US", 0);
    free((char *)settings.log);
    const char *log = getenv("FAKE_CUDA_LOG");
    /* A copy: the environment may change later. */
    settings.log = log && *log ? strdup(log) : NULL;
}

/* One write to a file opened for appending is not torn, so that all processes may share it. */
void log_line(const struct stream *stream, const char *format, ...)
{
    if (!settings.log)
        return;
    char line[LINE_MAX_BYTES + 64], place[16] = "-";
    if (stream)
        snprintf(place, sizeof place, "s%u", stream->number);
    int length = snprintf(line, sizeof line, "%d %s ", (int)getpid(), place);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length++] = '\n';
    int file = open(settings.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return;
    if (write(file, line, (size_t)length) != length)
        fprintf(stderr, "fake_cuda: cannot write to %s\n", settings.log);
    close(file);
}

void fake_cuda_log(const char *line)
{
    log_line(running, "%s", line);
}
