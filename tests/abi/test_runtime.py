# SPDX-License-Identifier: Apache-2.0
"""The C++ runtime and unwinder of libmdlm.so are its own: no other in the process has a part in its errors."""

import os

from harness import CC, MPI_SHARED, ROOT, SHARED, STATIC_RUNTIME, STRICT, Skip, case, compile_text, run
from test_mpi import PROGRAM as MPI_PROGRAM, need_mpi
from test_install import flags, install

# What throwing and catching goes through. A program that exports these comes before every library in the search for
# them.
FOREIGN = "#include <stdio.h>\n#include <unistd.h>\n" + "".join(
    f'void {name}(void);\nvoid {name}(void) {{ fputs("foreign {name} called\\n", stderr); _exit(3); }}\n'
    for name in (
        "_Unwind_RaiseException",
        "_Unwind_Resume",
        "_Unwind_Resume_or_Rethrow",
        "_Unwind_GetLanguageSpecificData",
        "_Unwind_SetGR",
        "_Unwind_SetIP",
        "_Unwind_GetIPInfo",
        "_Unwind_GetRegionStart",
        "_Unwind_DeleteException",
        "__cxa_allocate_exception",
        "__cxa_throw",
        "__cxa_begin_catch",
        "__cxa_end_catch",
        "__cxa_rethrow",
        "__cxa_free_exception",
        "__gxx_personality_v0",
    )
)

# Errors from the first check and from deep inside, on the first thread and on others; each thread has its own last
# error, and a run on several workers goes well.
ERRORS = r"""
#include <mdlm/chain.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static float x[64 * 128], y[64 * 128];

static void *fail_with(void *key) {
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_status seen = mdlm_config_set(&config, key, "1");
    return seen != MDLM_OK && strstr(mdlm_last_error(), key) != NULL ? key : NULL;
}

int errors_and_a_run(void) {
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_batch batch = MDLM_BATCH_INIT;
    mdlm_context *context;
    mdlm_block *block;
    size_t length;
    pthread_t threads[2];
    char keys[3][8] = {"first", "second", "third"};
    void *seen;
    if (fail_with(keys[2]) == NULL) return 1;
    for (int i = 0; i < 2; i++) if (pthread_create(&threads[i], NULL, fail_with, keys[i]) != 0) return 2;
    for (int i = 0; i < 2; i++) if (pthread_join(threads[i], &seen) != 0 || seen != keys[i]) return 3;
    if (strstr(mdlm_last_error(), keys[2]) == NULL) return 4;
    if (mdlm_chain_solve("{\"a\": [1, 2", 11, 0, NULL, NULL, 0, &length) != MDLM_ERROR_FORMAT) return 5;
    mdlm_config_set(&config, "num_layers", "1");
    mdlm_config_set(&config, "hidden_size", "128");
    mdlm_config_set(&config, "num_attention_heads", "4");
    shape.seq_length = batch.seq_length = 64;
    shape.micro_batch_size = batch.micro_batch_size = 1;
    desc.num_threads = 3;
    if (mdlm_context_create(&desc, &context) != MDLM_OK) return 6;
    if (mdlm_block_create(context, &config, &block) != MDLM_OK) return 6;
    if (mdlm_block_forward(block, &batch, x, NULL, y) != MDLM_ERROR_STATE) return 7;
    shape.max_bytes = 1;
    if (mdlm_block_reserve(block, &shape, NULL) != MDLM_ERROR_BUDGET) return 8;
    shape.max_bytes = 0;
    if (mdlm_block_reserve(block, &shape, NULL) != MDLM_OK || mdlm_params_init(block, 1) != MDLM_OK) return 9;
    if (mdlm_block_forward(block, &batch, x, NULL, y) != MDLM_OK) return 10;
    mdlm_block_destroy(block);
    mdlm_context_destroy(context);
    return 0;
}
"""
MAIN = (
    'int main(void) { int wrong = errors_and_a_run(); if (wrong != 0) '
    'fprintf(stderr, "step %d went wrong\\n", wrong); return wrong; }\n'
)


def need_own_runtime():
    if not STATIC_RUNTIME:
        raise Skip("because this build shares the C++ runtime (static_runtime=false)")


def named(command):
    return {line.split()[-1].split("@")[0] for line in run(command).splitlines()}


@case("errors of libmdlm.so stay its own in a process with another unwinder and C++ runtime")
def _(folder):
    need_own_runtime()
    made = compile_text(
        folder,
        FOREIGN + ERRORS + MAIN,
        CC,
        ["-std=c11", *STRICT, "-pthread", "-rdynamic", "-I", ROOT + "/include"],
        libraries=[SHARED],
    )
    exported = named(["nm", "-D", "--defined-only", made])
    assert {"_Unwind_RaiseException", "__cxa_throw"} <= exported, exported
    run([made], env={**os.environ, "LD_LIBRARY_PATH": os.path.dirname(SHARED)})


@case("libmdlm.so takes neither throwing nor unwinding from another library, libmdlm-mpi.so neither")
def _(_folder):
    need_own_runtime()
    for library in [SHARED] + ([MPI_SHARED] if os.path.exists(MPI_SHARED) else []):
        taken = {
            line.split()[-1].split("@")[0]
            for line in run(["nm", "-D", "--undefined-only", library]).splitlines()
            if line.split()[-2] == "U"
        }
        # The C library's own, by which destructors run at exit.
        strange = [
            name
            for name in taken
            if name.startswith(("_Unwind", "__cxa", "__gxx", "_ZS", "_ZNS", "_ZNKS", "_Zn", "_Zd", "_ZT"))
            and name not in ("__cxa_atexit", "__cxa_finalize", "__cxa_thread_atexit_impl")
        ]
        assert not strange, (library, strange)
        needed = run(["readelf", "-d", library])
        assert "libstdc++" not in needed and "libgcc_s" not in needed, needed


@case("libmdlm.so can be loaded, fail, run, be unloaded and be loaded again")
def _(folder):
    shared = compile_text(
        folder,
        "#include <stdio.h>\n" + ERRORS,
        CC,
        ["-std=c11", "-shared", "-fPIC", "-pthread", "-I", ROOT + "/include"],
        source="plugin.c",
        libraries=[SHARED, "-Wl,-rpath," + os.path.dirname(SHARED)],
        output="plugin.so",
    )
    host = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int mapped(void) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) found |= strstr(line, "libmdlm.so") != NULL;
    if (maps != NULL) fclose(maps);
    return found;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 3; i++) {
        void *plugin = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
        int (*run)(void) = NULL;
        if (plugin == NULL) return printf("%s\n", dlerror()), 1;
        *(void **)&run = dlsym(plugin, "errors_and_a_run");
        int wrong = run();
        if (wrong != 0) return printf("step %d went wrong\n", wrong), 1;
        if (!mapped()) return puts("libmdlm.so is not where it was looked for"), 1;
        if (dlclose(plugin) != 0 || mapped()) return puts("libmdlm.so stays loaded"), 1;
    }
    return 0;
}
"""
    run([compile_text(folder, host, CC, ["-std=c11", "-pthread"], libraries=["-ldl"]), shared])


@case("errors of libmdlm-mpi.so stay its own, too")
def _(folder):
    need_mpi()
    need_own_runtime()
    _, environment = install(os.path.join(folder, "root"), "mdlm-mpi.pc")
    made = compile_text(
        folder,
        FOREIGN + MPI_PROGRAM,
        CC,
        ["-std=c11", *STRICT, "-rdynamic", *flags(environment, "--cflags", name="mdlm-mpi")],
        libraries=flags(environment, "--libs", name="mdlm-mpi"),
    )
    out = run([made], env={**environment, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    assert out == "MDLM_ERROR_STATE, then MDLM_OK, a sum of 1 over 1 ranks\n", out
