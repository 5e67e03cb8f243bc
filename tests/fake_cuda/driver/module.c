/* Modules: the names of the kernels in a PTX text. What they do is not in there but in launch.c. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

struct module {
    size_t count;
    CUfunction functions[];
};

static const char ENTRY[] = ".visible .entry";

/* The driver's version with which a version of PTX came; 0 if there was none. */
static int driver_of_ptx(int major, int minor)
{
    switch (major) {
    case 7: return 11000 + 10 * minor;
    case 8: return 12000 + 10 * (minor < 6 ? minor : minor + 1);
    case 9: return 13000 + 10 * minor;
    default: return major < 7 ? 10000 : 0;
    }
}

static CUresult check(const char *text)
{
    const char *version = strstr(text, ".version");
    int major, minor;
    if (!version || sscanf(version, ".version %d.%d", &major, &minor) != 2 || !strstr(text, ".target") ||
        !strstr(text, ENTRY))
        return CUDA_ERROR_INVALID_PTX;
    int needed = driver_of_ptx(major, minor);
    return needed && needed <= settings.version ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

/* The next entry's name, copied; `*text` is left behind it. */
static char *next_name(const char **text)
{
    const char *at = strstr(*text, ENTRY);
    if (!at)
        return NULL;
    at += strlen(ENTRY);
    while (isspace((unsigned char)*at))
        at++;
    const char *end = at;
    while (isalnum((unsigned char)*end) || *end == '_' || *end == '$')
        end++;
    *text = end;
    return strndup(at, (size_t)(end - at));
}

CUresult cuModuleLoadData(CUmodule *handle, const void *image)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    const char *text = image;
    if ((result = check(text)))
        return leave(result);
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, ENTRY)); at += strlen(ENTRY))
        count++;
    struct module *module = malloc(sizeof *module + count * sizeof *module->functions);
    if (!module)
        abort();
    module->count = count;
    for (size_t i = 0; i < count; ++i)
        module->functions[i] = handle_new(FUNCTION, function_new(context, next_name(&text)));
    *handle = handle_new(MODULE, module);
    return leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction *handle, CUmodule module_handle, const char *name)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    struct module *module = handle_object(MODULE, module_handle);
    if (!module)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    for (size_t i = 0; i < module->count; ++i) {
        struct function *function = handle_object(FUNCTION, module->functions[i]);
        if (strcmp(function->name, name) == 0) {
            *handle = module->functions[i];
            return leave(CUDA_SUCCESS);
        }
    }
    return leave(CUDA_ERROR_NOT_FOUND);
}

CUresult cuModuleUnload(CUmodule handle)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    struct module *module = handle_object(MODULE, handle);
    if (!module)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    for (size_t i = 0; i < module->count; ++i) {
        function_free(handle_object(FUNCTION, module->functions[i]));
        handle_drop(module->functions[i]);
    }
    handle_drop(handle);
    free(module);
    return leave(CUDA_SUCCESS);
}
