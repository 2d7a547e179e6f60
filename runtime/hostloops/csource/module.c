/* Loops over host arrays without the interpreter's lock: the index of cached rows, and copies past the caches. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define STREAMS 1
#endif
#if defined(__GNUC__)
#define PREFETCH(at) __builtin_prefetch(at, 1)
#else
#define PREFETCH(at) ((void)(at))
#endif

enum { FAR = 32, NEAR = 16 };  /* ids whose entries are on their way from memory: of their rows, of their slots */

typedef struct { Py_buffer view; } Held;

/* A contiguous buffer of numbers of `itemsize` bytes (0: any), at least `least` of them. */
static int hold(PyObject *object, Held *held, int itemsize, Py_ssize_t least, int writable) {
    if (PyObject_GetBuffer(object, &held->view, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        held->view.obj = NULL;
        return -1;
    }
    if ((itemsize && held->view.itemsize != itemsize) || held->view.len < least * held->view.itemsize) {
        PyErr_SetString(PyExc_ValueError, "an array of another type or length was expected");
        return -1;
    }
    return 0;
}

static void release(Held *held, int count) {
    for (int k = 0; k < count; k++)
        if (held[k].view.obj) PyBuffer_Release(&held[k].view);
}

static Py_ssize_t length(const Held *held) { return held->view.len / held->view.itemsize; }

static inline int64_t number(const void *at, Py_ssize_t k, int wide) {
    return wide ? ((const int64_t *)at)[k] : ((const int32_t *)at)[k];
}

static inline void put(void *at, Py_ssize_t k, int wide, int64_t value) {
    if (wide) ((int64_t *)at)[k] = value;
    else ((int32_t *)at)[k] = (int32_t)value;
}

/* What a lookup counts, in this order: the device reads them too. */
enum { MISSED, HIT, FRESH, HITS, OUTSIDE, COUNTS = 8 };
/* Where the index stands: entries that left the log and entered it since ever, slots that were used, steps. */
enum { HEAD, TAIL, FILLED, STEP, STATE };
enum { ID, LAST };  /* of a slot: its row, and the step that used it last */

/* slot_of[row] is a slot that holds the row only if the slot's entry says so too: a row that leaves is not written to,
 * which saves a lookup one line of memory for each. -1: in none; -2 - i, for the time of a lookup: the i-th missing. */
typedef struct {
    int32_t *slot_of;
    int32_t (*entry)[2];
    int32_t *slots, *steps;  /* the log, a ring of slots with the steps that used them, the oldest first */
    int64_t *state;
    uint64_t vocabulary, mask;  /* of numbers of the log's entries, which are a power of two */
    int64_t rows;
} Index;

typedef struct {
    const void *ids;
    void *found;
    int64_t *missing, *used, *evicted, *counts;
    /* Scratch, since what a device read is slow to come back: each id's slot, or the number of its missing row; where
     * in the batch rows are missing; the slots of those that are not. */
    int32_t *slots, *open, *cached;
    Py_ssize_t n, opened;
} Batch;

/* Where each row was last; nothing depends on anything, so that many lines are on their way at once. */
static inline void guess(const Index *x, const Batch *b, const int wide) {
    for (Py_ssize_t k = 0; k < b->n; k++) {
        if (k + FAR < b->n) {
            const uint64_t next = (uint64_t)number(b->ids, k + FAR, wide);
            if (next < x->vocabulary) PREFETCH(x->slot_of + next);
        }
        const uint64_t id = (uint64_t)number(b->ids, k, wide);
        b->slots[k] = id < x->vocabulary ? x->slot_of[id] : -1;
    }
}

/* Parts what is cached from what stays open. No branch would foretell which: all is written, and counted. */
static inline Py_ssize_t part(const Index *x, Batch *b, const int wide) {
    Py_ssize_t cached = 0, opened = 0;
    for (Py_ssize_t k = 0; k < b->n; k++) {
        if (k + NEAR < b->n) {
            const int32_t next = b->slots[k + NEAR];
            PREFETCH(x->entry[next < 0 ? 0 : next]);
        }
        const int32_t slot = b->slots[k];
        const int holds = (slot >= 0) & (x->entry[slot < 0 ? 0 : slot][ID] == number(b->ids, k, wide));
        b->open[opened] = (int32_t)k;
        b->cached[cached] = slot;
        opened += !holds;
        cached += holds;
    }
    b->opened = opened;
    return cached;
}

/* Signs the cached slots, and keeps each once; apart from the loop above, which no store is to hold up. evicted: who
 * used them before. */
static inline void hits(const Index *x, Batch *b, const Py_ssize_t cached, const int32_t step) {
    Py_ssize_t hit = 0;
    for (Py_ssize_t i = 0; i < cached; i++) {
        const int32_t slot = b->cached[i];
        const int32_t last = x->entry[slot][LAST];
        b->used[hit] = slot;
        b->evicted[hit] = last;
        hit += last != step;
        x->entry[slot][LAST] = step;
    }
    b->counts[HIT] = hit, b->counts[HITS] = cached;
}

/* Numbers the missing rows, each once; what is outside the table stays open no longer. */
static inline void misses(const Index *x, Batch *b, const int wide) {
    Py_ssize_t missed = 0, opened = 0;
    for (Py_ssize_t j = 0; j < b->opened; j++) {
        const int32_t k = b->open[j];
        const int64_t id = number(b->ids, k, wide);
        if ((uint64_t)id >= x->vocabulary) continue;  /* -1 it was, and stays */
        const int32_t slot = x->slot_of[id];
        const int isnew = slot >= -1;
        const int32_t mark = isnew ? (int32_t)(-2 - missed) : slot;
        b->missing[missed] = id;
        missed += isnew;
        x->slot_of[id] = mark;
        b->slots[k] = mark;
        b->open[opened++] = k;
    }
    b->counts[OUTSIDE] = b->opened - opened;
    b->counts[MISSED] = missed;
    b->opened = opened;
}

/* Takes so many of the slots that were used longest ago off the log, with their rows; -1 if there are not so many. */
static int64_t oldest(const Index *x, int64_t *places, int64_t *evicted, Py_ssize_t count) {
    int64_t head = x->state[HEAD];
    const int64_t tail = x->state[TAIL];
    for (Py_ssize_t i = 0; i < count; head++) {
        if (head >= tail) return -1;
        PREFETCH(x->entry[x->slots[(uint64_t)(head + FAR) & x->mask]]);
        const uint64_t at = (uint64_t)head & x->mask;
        const int32_t slot = x->slots[at];
        places[i] = slot;
        evicted[i] = x->entry[slot][ID];
        i += x->entry[slot][LAST] == x->steps[at];  /* else it was used again since */
    }
    return head;
}

/* Drops entries of the log whose slot was used again since; those that stay keep their order. Gives the new tail. */
static int64_t clean(const Index *x, int64_t head, int64_t tail) {
    int64_t kept = head;
    for (; head < tail; head++) {
        const uint64_t from = (uint64_t)head & x->mask, to = (uint64_t)kept & x->mask;
        const int32_t slot = x->slots[from];
        const int32_t step = x->steps[from];
        x->slots[to] = slot;
        x->steps[to] = step;
        kept += x->entry[slot][LAST] == step;
    }
    return kept;
}

static void append(const Index *x, uint64_t at, const int64_t *used, Py_ssize_t count, int32_t step) {
    for (Py_ssize_t i = 0; i < count; i++) x->slots[at + i] = (int32_t)used[i];
    for (Py_ssize_t i = 0; i < count; i++) x->steps[at + i] = step;
}

/* Signs the batch's slots in the log; 0 if it has no room. */
static int sign(const Index *x, int64_t head, const int64_t *used, Py_ssize_t count, int32_t step) {
    const int64_t room = (int64_t)x->mask + 1;
    int64_t tail = x->state[TAIL];
    if (tail - head + count > room) tail = clean(x, head, tail);
    if (tail - head + count > room) return 0;
    const uint64_t at = (uint64_t)tail & x->mask;
    const Py_ssize_t first = count < room - (int64_t)at ? count : (Py_ssize_t)(room - (int64_t)at);
    append(x, at, used, first, step);
    append(x, 0, used + first, count - first, step);
    x->state[HEAD] = head, x->state[TAIL] = tail + count;
    return 1;
}

static void forget(const Index *x, const Batch *b) {
    for (Py_ssize_t i = 0; i < b->counts[MISSED]; i++) x->slot_of[b->missing[i]] = -1;
    for (Py_ssize_t i = 0; i < b->counts[HIT]; i++) x->entry[b->used[i]][LAST] = (int32_t)b->evicted[i];
}

/* 1; 0 where the batch has more rows than there are slots; -1 where the log and the slots disagree. */
static inline int look_up(const Index *x, Batch *b, const int wide) {
    const int64_t filled = x->state[FILLED];
    const int32_t step = (int32_t)x->state[STEP] + 1;
    guess(x, b, wide);
    hits(x, b, part(x, b, wide), step);
    misses(x, b, wide);
    const Py_ssize_t missed = b->counts[MISSED], hit = b->counts[HIT];
    if (missed + hit > x->rows) {
        forget(x, b);
        return 0;
    }
    const Py_ssize_t fresh = missed < x->rows - filled ? missed : (Py_ssize_t)(x->rows - filled);
    int64_t *places = b->used + hit;
    for (Py_ssize_t i = 0; i < fresh; i++) places[i] = filled + i;
    const int64_t head = oldest(x, places + fresh, b->evicted, missed - fresh);
    if (head < 0) return -1;
    for (Py_ssize_t i = 0; i < missed; i++) {
        x->slot_of[b->missing[i]] = (int32_t)places[i];
        x->entry[places[i]][ID] = (int32_t)b->missing[i];
        x->entry[places[i]][LAST] = step;
    }
    for (Py_ssize_t j = 0; j < b->opened; j++) {
        int32_t *slot = b->slots + b->open[j];
        *slot = (int32_t)places[-2 - *slot];
    }
    for (Py_ssize_t k = 0; k < b->n; k++) put(b->found, k, wide, b->slots[k]);
    b->counts[FRESH] = fresh;
    x->state[FILLED] = filled + fresh, x->state[STEP] = step;
    return sign(x, head, b->used, hit + missed, step) ? 1 : -1;
}

/* lookup(ids, found, missing, used, evicted, counts, slot_of, entries, log, steps, state) -> whether there is room
 *
 * found[k]: the slot of ids[k]; -1 outside the table. missing: rows that were in no slot, each once, in the batch's
 * order. used: slots that the batch uses, each once: first the counts[HIT] that had their rows, then those of the
 * missing ones, the first counts[FRESH] of which were never used; the rest are the slots that were used longest ago,
 * whose rows are `evicted`. Where the batch has more rows than there are slots the index stays as it was. Rows, slots
 * and steps are below 2**31. */
static PyObject *lookup(PyObject *self, PyObject *args) {
    PyObject *o[11];
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOO", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &o[7], &o[8], &o[9],
                          &o[10]))
        return NULL;
    Held h[11] = {{{0}}};
    PyObject *result = NULL;
    int32_t *scratch = NULL;
    if (hold(o[0], &h[0], 0, 0, 0) < 0) goto out;
    const Py_ssize_t n = length(&h[0]);
    const int wide = h[0].view.itemsize == 8;
    if ((!wide && h[0].view.itemsize != 4) || n > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "ids have 4 or 8 bytes, and are fewer than 2**31");
        goto out;
    }
    if (hold(o[1], &h[1], wide ? 8 : 4, n, 1) < 0 || hold(o[2], &h[2], 8, n, 1) < 0 || hold(o[3], &h[3], 8, n, 1) < 0 ||
        hold(o[4], &h[4], 8, n, 1) < 0 || hold(o[5], &h[5], 8, COUNTS, 1) < 0 || hold(o[6], &h[6], 4, 0, 1) < 0 ||
        hold(o[7], &h[7], 4, 0, 1) < 0 || hold(o[8], &h[8], 4, 1, 1) < 0 ||
        hold(o[9], &h[9], 4, length(&h[8]), 1) < 0 || hold(o[10], &h[10], 8, STATE, 1) < 0)
        goto out;
    const int64_t *state = h[10].view.buf;
    if ((length(&h[8]) & (length(&h[8]) - 1)) || length(&h[6]) > INT32_MAX || state[STEP] >= INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the log's length is a power of two, rows and steps are below 2**31");
        goto out;
    }
    scratch = malloc((3 * (size_t)n + 1) * sizeof *scratch);
    if (!scratch) {
        PyErr_NoMemory();
        goto out;
    }
    const Index index = {h[6].view.buf, h[7].view.buf, h[8].view.buf, h[9].view.buf, h[10].view.buf,
                         (uint64_t)length(&h[6]), (uint64_t)length(&h[8]) - 1, length(&h[7]) / 2};
    Batch batch = {h[0].view.buf, h[1].view.buf, h[2].view.buf, h[3].view.buf, h[4].view.buf, h[5].view.buf,
                   scratch,       scratch + n,   scratch + 2 * n, n,            0};
    int room;
    Py_BEGIN_ALLOW_THREADS
    room = wide ? look_up(&index, &batch, 1) : look_up(&index, &batch, 0);
    Py_END_ALLOW_THREADS
    if (room >= 0) result = PyBool_FromLong(room);
    else PyErr_SetString(PyExc_ValueError, "the log and the slots disagree");
out:
    free(scratch);
    release(h, 11);
    return result;
}

/* Copies with stores that bypass the caches: a target that only a device reads next need not be read first. */
static void stream(char *target, const char *source, size_t nbytes) {
#ifdef STREAMS
    size_t head = (size_t)(-(uintptr_t)target & 15);
    if (head > nbytes) head = nbytes;
    memcpy(target, source, head);
    target += head, source += head, nbytes -= head;
    for (; nbytes >= 64; target += 64, source += 64, nbytes -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)source), b = _mm_loadu_si128((const __m128i *)(source + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(source + 32)), d = _mm_loadu_si128((const __m128i *)(source + 48));
        _mm_stream_si128((__m128i *)target, a);
        _mm_stream_si128((__m128i *)(target + 16), b);
        _mm_stream_si128((__m128i *)(target + 32), c);
        _mm_stream_si128((__m128i *)(target + 48), d);
    }
    memcpy(target, source, nbytes);
    _mm_sfence();
#else
    memcpy(target, source, nbytes);
#endif
}

/* stream(target, source): as many bytes as both have; they do not overlap. */
static PyObject *stream_copy(PyObject *self, PyObject *args) {
    PyObject *o[2];
    if (!PyArg_ParseTuple(args, "OO", &o[0], &o[1])) return NULL;
    Held h[2] = {{{0}}};
    PyObject *result = NULL;
    if (hold(o[0], &h[0], 0, 0, 1) < 0 || hold(o[1], &h[1], 0, 0, 0) < 0) goto out;
    if (h[0].view.len != h[1].view.len) {
        PyErr_SetString(PyExc_ValueError, "arrays of other lengths");
        goto out;
    }
    Py_BEGIN_ALLOW_THREADS
    stream(h[0].view.buf, h[1].view.buf, (size_t)h[0].view.len);
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
out:
    release(h, 2);
    return result;
}

// What native.py expects of this file: raise both when a function changes, so that an old build is not called.
#define INTERFACE 3

static PyObject *interface_of(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return PyLong_FromLong(INTERFACE);
}

static PyMethodDef methods[] = {
    {"interface", interface_of, METH_NOARGS, "The number of this interface."},
    {"lookup", lookup, METH_VARARGS, "Look a batch up; see embedding/index.py."},
    {"stream", stream_copy, METH_VARARGS, "Copy past the caches; see host_copies.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Loops over host memory.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
