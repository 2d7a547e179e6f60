/* Loops over host arrays without the interpreter's lock: the index of cached rows, and copies past the caches. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
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

enum { AHEAD = 48, NEAR = 16 };  /* ids whose entries are on their way from memory: of their rows, of their slots */

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

typedef struct {
    int32_t *slots;  /* a ring of slots with the steps that used them, the oldest first */
    int64_t *steps;
    int64_t room;
} Log;

/* Drops entries whose slot was used again since; those that stay keep their order. */
static int64_t clean(const Log *log, const int64_t (*entry)[2], int64_t head, int64_t tail) {
    int64_t from = head % log->room, to = from, kept = head;
    for (int64_t h = head; h < tail; h++) {
        const int32_t slot = log->slots[from];
        const int64_t step = log->steps[from];
        log->slots[to] = slot;
        log->steps[to] = step;
        if (entry[slot][LAST] == step) {
            kept++;
            if (++to == log->room) to = 0;
        }
        if (++from == log->room) from = 0;
    }
    return kept;
}

/* lookup(ids, found, missing, used, evicted, counts, slot_of, entries, log, steps, state) -> whether there is room
 *
 * found[k]: the slot of ids[k]; -1 outside the table. missing: rows that were in no slot, each once, in the batch's
 * order. used: slots that the batch uses, each once: first the counts[HIT] that had their rows, then those of the
 * missing ones, the first counts[FRESH] of which were never used; the rest are the slots that were used longest ago,
 * whose rows are `evicted`. Where the batch has more rows than there are slots the index stays as it was. */
static PyObject *lookup(PyObject *self, PyObject *args) {
    PyObject *o[11];
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOO", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &o[7], &o[8], &o[9],
                          &o[10]))
        return NULL;
    Held h[11] = {{{0}}};
    PyObject *result = NULL;
    if (hold(o[0], &h[0], 0, 0, 0) < 0) goto out;
    const Py_ssize_t n = length(&h[0]);
    const int wide = h[0].view.itemsize == 8;
    if (!wide && h[0].view.itemsize != 4) {
        PyErr_SetString(PyExc_ValueError, "ids have 4 or 8 bytes");
        goto out;
    }
    if (hold(o[1], &h[1], wide ? 8 : 4, n, 1) < 0 || hold(o[2], &h[2], 8, n, 1) < 0 || hold(o[3], &h[3], 8, n, 1) < 0 ||
        hold(o[4], &h[4], 8, n, 1) < 0 || hold(o[5], &h[5], 8, COUNTS, 1) < 0 || hold(o[6], &h[6], 4, 0, 1) < 0 ||
        hold(o[7], &h[7], 8, 0, 1) < 0 || hold(o[8], &h[8], 4, 0, 1) < 0 ||
        hold(o[9], &h[9], 8, length(&h[8]), 1) < 0 || hold(o[10], &h[10], 8, STATE, 1) < 0)
        goto out;
    const void *ids = h[0].view.buf;
    void *found = h[1].view.buf;
    int64_t *missing = h[2].view.buf, *used = h[3].view.buf, *evicted = h[4].view.buf, *counts = h[5].view.buf;
    int32_t *slot_of = h[6].view.buf;
    int64_t (*entry)[2] = h[7].view.buf, *state = h[10].view.buf;
    const Log log = {h[8].view.buf, h[9].view.buf, length(&h[8])};
    const uint64_t vocabulary = (uint64_t)length(&h[6]);
    const int64_t rows = length(&h[7]) / 2, step = state[STEP] + 1;
    Py_ssize_t misses = 0, hit = 0, hits = 0, outside = 0;
    int64_t *before = evicted, nobody[2] = {0, 0};  /* who used the slots hit; nobody is evicted yet */
    int good = 1, room;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; k < n; k++) {
        if (k + AHEAD < n) {
            const uint64_t next = (uint64_t)number(ids, k + AHEAD, wide);
            if (next < vocabulary) PREFETCH(slot_of + next);
        }
        if (k + NEAR < n) {
            const uint64_t next = (uint64_t)number(ids, k + NEAR, wide);
            const int32_t slot = next < vocabulary ? slot_of[next] : -1;
            if (slot >= 0) PREFETCH(entry[slot]);
        }
        const int64_t id = number(ids, k, wide);
        if ((uint64_t)id >= vocabulary) {
            outside++;
            put(found, k, wide, -1);
            continue;
        }
        /* What comes next no branch would foretell: everything is written, and counted where it holds. */
        int32_t slot = slot_of[id];
        const int isnew = slot == -1, cached = slot >= 0;
        missing[misses] = id;
        slot = isnew ? (int32_t)(-2 - misses) : slot;
        misses += isnew;
        slot_of[id] = slot;
        int64_t *use = cached ? entry[slot] : nobody;
        used[hit] = slot;
        before[hit] = use[LAST];
        hit += cached & (use[LAST] != step);
        use[LAST] = step;
        hits += cached;
        put(found, k, wide, slot);
    }
    room = misses + hit <= rows;
    if (!room) {
        for (Py_ssize_t i = 0; i < misses; i++) slot_of[missing[i]] = -1;
        for (Py_ssize_t i = 0; i < hit; i++) entry[used[i]][LAST] = before[i];
    } else {
        const int64_t filled = state[FILLED];
        const Py_ssize_t fresh = misses < rows - filled ? misses : (Py_ssize_t)(rows - filled);
        int64_t *places = used + hit, head = state[HEAD], tail = state[TAIL], at = head % log.room;
        for (Py_ssize_t i = 0; i < fresh; i++) places[i] = filled + i;
        for (Py_ssize_t i = fresh; i < misses; head++) {
            if (head >= tail) {
                good = 0;
                break;
            }
            if (at + AHEAD < log.room) PREFETCH(entry[log.slots[at + AHEAD]]);
            const int32_t slot = log.slots[at];
            places[i] = slot;
            evicted[i - fresh] = entry[slot][ID];
            const int oldest = entry[slot][LAST] == log.steps[at]; /* else it was used again since */
            if (oldest) PREFETCH(slot_of + evicted[i - fresh]);
            i += oldest;
            if (++at == log.room) at = 0;
        }
        if (good) {
            for (Py_ssize_t i = fresh; i < misses; i++) slot_of[evicted[i - fresh]] = -1;
            for (Py_ssize_t i = 0; i < misses; i++) {
                slot_of[missing[i]] = (int32_t)places[i];
                entry[places[i]][ID] = missing[i];
                entry[places[i]][LAST] = step;
            }
            for (Py_ssize_t k = 0; misses && k < n; k++) {
                const int64_t slot = number(found, k, wide);
                const int open = slot < -1;
                const int64_t place = places[open ? -2 - slot : 0];
                put(found, k, wide, open ? place : slot);
            }
            if (tail - head + hit + misses > log.room) tail = clean(&log, (const int64_t (*)[2])entry, head, tail);
            good = tail - head + hit + misses <= log.room;
        }
        if (good) {
            int64_t to = tail % log.room;
            for (Py_ssize_t i = 0; i < hit + misses; i++) {
                log.slots[to] = (int32_t)used[i];
                log.steps[to] = step;
                if (++to == log.room) to = 0;
            }
            state[HEAD] = head, state[TAIL] = tail + hit + misses;
            state[FILLED] = filled + fresh, state[STEP] = step;
            counts[FRESH] = fresh;
        }
    }
    counts[MISSED] = misses, counts[HIT] = hit, counts[HITS] = hits, counts[OUTSIDE] = outside;
    Py_END_ALLOW_THREADS
    if (good) result = PyBool_FromLong(room);
    else PyErr_SetString(PyExc_ValueError, "the log and the slots disagree");
out:
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
#define INTERFACE 2

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
