/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 65536 }; /* bytes on their way between two ranks at a time */

typedef struct group {
    int rank, size;
    int sockets[MOST_RANKS];
    _Alignas(8) unsigned char received[MOST_RANKS][CHUNK];
} group;

/* The line that the library adds to its own. */
static mdlm_status failed(const char *text, int other) {
    char line[128];
    snprintf(line, sizeof line, "rank %d %s", other, text);
    mdlm_set_last_error(line);
    return MDLM_ERROR_COMM;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Sends `bytes` from[r] to every rank r and receives as many to[r] from it. In both directions at once: with every rank
   sending first, they would all wait for each other as soon as the data is larger than the sockets' buffers. Returns
   when all is done, the time is over, or a rank has gone; then nothing touches the buffers any more. */
static mdlm_status exchange(group *g, const void *const *from, void *const *to, size_t bytes, int64_t deadline) {
    size_t sent[MOST_RANKS] = {0}, got[MOST_RANKS] = {0};
    for (;;) {
        struct pollfd wait[MOST_RANKS];
        int open = 0, last = 0;
        for (int r = 0; r < g->size; r++) {
            const short events = (short)((sent[r] < bytes ? POLLOUT : 0) | (got[r] < bytes ? POLLIN : 0));
            wait[r] = (struct pollfd){r == g->rank || events == 0 ? -1 : g->sockets[r], events, 0};
            if (wait[r].fd >= 0) open = 1, last = r;
        }
        if (!open) return MDLM_OK;
        const int64_t left = deadline - now_ms();
        const int ready = left > 0 ? poll(wait, (nfds_t)g->size, left < 1000000 ? (int)left : 1000000) : 0;
        if (ready < 0 && errno != EINTR) return failed("could not be waited for", last);
        if (ready == 0 && now_ms() >= deadline) return failed("did not come in time", last);
        for (int r = 0; r < g->size && ready > 0; r++) {
            if (wait[r].fd < 0 || wait[r].revents == 0) continue;
            if (got[r] < bytes) {
                const ssize_t n = recv(g->sockets[r], (char *)to[r] + got[r], bytes - got[r], MSG_DONTWAIT);
                if (n > 0) got[r] += (size_t)n;
                else if (n == 0 || (errno != EAGAIN && errno != EINTR)) return failed("has left the group", r);
            }
            if (sent[r] < bytes) {
                const ssize_t n =
                    send(g->sockets[r], (const char *)from[r] + sent[r], bytes - sent[r], MSG_DONTWAIT | MSG_NOSIGNAL);
                if (n > 0) sent[r] += (size_t)n;
                else if (n < 0 && errno != EAGAIN && errno != EINTR) return failed("has left the group", r);
            }
        }
    }
}

/* Ranks that do not make the same call would read each other's data as something else. */
static mdlm_status same_call(group *g, int kind, int64_t count, mdlm_dtype dtype, int64_t deadline) {
    int64_t mine[3] = {kind, count, dtype}, theirs[MOST_RANKS][3];
    const void *from[MOST_RANKS];
    void *to[MOST_RANKS];
    for (int r = 0; r < g->size; r++) from[r] = mine, to[r] = theirs[r];
    const mdlm_status status = exchange(g, from, to, sizeof mine, deadline);
    for (int r = 0; r < g->size && status == MDLM_OK; r++) {
        if (r != g->rank && memcmp(mine, theirs[r], sizeof mine) != 0) return failed("makes another call", r);
    }
    return status;
}

static size_t size_of(mdlm_dtype dtype) { return dtype == MDLM_DTYPE_F64 ? 8 : dtype == MDLM_DTYPE_F32 ? 4 : 2; }

/* Element i of the ranks' arrays, as float32 or float64. */
static double load(const void *array, size_t i, mdlm_dtype dtype) {
    if (dtype == MDLM_DTYPE_F64) return ((const double *)array)[i];
    if (dtype == MDLM_DTYPE_F32) return ((const float *)array)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16; /* bfloat16 */
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(void *array, size_t i, mdlm_dtype dtype, double value) {
    if (dtype == MDLM_DTYPE_F64) {
        ((double *)array)[i] = value;
    } else if (dtype == MDLM_DTYPE_F32) {
        ((float *)array)[i] = (float)value;
    } else {
        const float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        ((uint16_t *)array)[i] =
            (uint16_t)(narrow != narrow ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* In the order of ranks, so that all of them get the same bits. */
static void reduce(const group *g, const void *const *parts, void *to, size_t count, mdlm_dtype dtype,
                   mdlm_reduce_op op) {
    for (size_t i = 0; i < count; i++) {
        double all = load(parts[0], i, dtype);
        for (int r = 1; r < g->size; r++) {
            const double next = load(parts[r], i, dtype);
            if (op == MDLM_REDUCE_MAX) all = next > all || next != next ? next : all;
            else if (dtype == MDLM_DTYPE_F64) all += next;
            else all = (float)all + (float)next;
        }
        store(to, i, dtype, all);
    }
}

/* What rank r gets of this rank is at send + r * stride; all that is for this rank is reduced into recv. Every rank
   sends to every other: for more than a few ranks, pass parts around a ring instead. */
static mdlm_status reduce_from_all(group *g, int kind, const void *send, size_t stride, void *recv, int64_t count,
                                   mdlm_dtype dtype, mdlm_reduce_op op, int64_t timeout_ms) {
    const int64_t deadline = now_ms() + timeout_ms;
    const size_t element = size_of(dtype), bytes = (size_t)count * element;
    if (dtype == MDLM_DTYPE_F16) {
        mdlm_set_last_error("float16 is not summed here");
        return MDLM_ERROR_UNSUPPORTED;
    }
    mdlm_status status = same_call(g, kind + op, count, dtype, deadline);
    for (size_t at = 0; at < bytes && status == MDLM_OK; at += CHUNK) {
        const size_t part = bytes - at < CHUNK ? bytes - at : CHUNK;
        const void *from[MOST_RANKS], *parts[MOST_RANKS];
        void *to[MOST_RANKS];
        for (int r = 0; r < g->size; r++) {
            from[r] = (const char *)send + (size_t)r * stride + at;
            to[r] = g->received[r];
            parts[r] = r == g->rank ? from[r] : to[r];
        }
        status = exchange(g, from, to, part, deadline);
        if (status == MDLM_OK) reduce(g, parts, (char *)recv + at, part / element, dtype, op);
    }
    return status;
}

static mdlm_status all_reduce(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype,
                              mdlm_reduce_op op, int64_t timeout_ms, void *stream) {
    (void)stream;
    return reduce_from_all(payload, 10, send, 0, recv, count, dtype, op, timeout_ms);
}

static mdlm_status reduce_scatter(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype,
                                  mdlm_reduce_op op, int64_t timeout_ms, void *stream) {
    (void)stream;
    return reduce_from_all(payload, 20, send, (size_t)count * size_of(dtype), recv, count, dtype, op, timeout_ms);
}

static mdlm_status all_gather(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype,
                              int64_t timeout_ms, void *stream) {
    (void)stream;
    group *g = payload;
    const int64_t deadline = now_ms() + timeout_ms;
    const size_t bytes = (size_t)count * size_of(dtype);
    const void *from[MOST_RANKS];
    void *to[MOST_RANKS];
    mdlm_status status = same_call(g, 30, count, dtype, deadline);
    for (int r = 0; r < g->size; r++) from[r] = send, to[r] = (char *)recv + (size_t)r * bytes;
    if (status == MDLM_OK && bytes > 0) memcpy(to[g->rank], send, bytes);
    return status == MDLM_OK ? exchange(g, from, to, bytes, deadline) : status;
}

/* Both ends of every socket see its end: this rank's running call, and the calls of all others. From any thread, for it
 * frees nothing. */
static void end_group(void *payload) {
    const group *g = payload;
    for (int r = 0; r < g->size; r++) {
        if (r != g->rank) shutdown(g->sockets[r], SHUT_RDWR);
    }
}

static void destroy(void *payload) {
    group *g = payload;
    for (int r = 0; r < g->size; r++) {
        if (r != g->rank) close(g->sockets[r]);
    }
    free(g);
}

mdlm_status sockets_comm(int rank, int size, const int *sockets, mdlm_comm **out) {
    if (size < 1 || size > MOST_RANKS) {
        mdlm_set_last_error("sockets_comm: expected 1 .. 8 ranks");
        return MDLM_ERROR_ARGUMENT;
    }
    group *g = malloc(sizeof *g);
    if (g == NULL) {
        mdlm_set_last_error("sockets_comm: out of memory");
        return MDLM_ERROR_MEMORY;
    }
    g->rank = rank;
    g->size = size;
    memcpy(g->sockets, sockets, (size_t)size * sizeof *sockets);

    mdlm_comm_table table = MDLM_COMM_TABLE_INIT;
    table.rank = rank;
    table.size = size;
    table.all_reduce = all_reduce;
    table.all_gather = all_gather;
    table.reduce_scatter = reduce_scatter;
    table.abort = end_group;
    table.destroy = destroy;
    table.payload = g;
    const mdlm_status status = mdlm_comm_create(&table, out);
    if (status != MDLM_OK) free(g);
    return status;
}
