/* Functions: between module.c, which finds their names, and launch.c, which runs them. */
#ifndef FAKE_CUDA_LAUNCH_H
#define FAKE_CUDA_LAUNCH_H

#include "driver.h"

struct function {
    struct context *context;
    char *name;
    const struct ronde_kernel *kernel; /* null: only its name is known */
};

/* Takes the name. */
struct function *function_new(struct context *context, char *name);
void function_free(struct function *function);

#endif
