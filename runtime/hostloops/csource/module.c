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

enum { AHEAD = 48 };  /* ids whose entries are on their way from memory */

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

/* scan(ids, found, slot_of, last, step, missing, hit, before) -> missing rows, slots hit, ids that hit, ids outside
 *
 * found[k]: the slot of ids[k]; -1 outside the table; -2 - i for missing[i], which slot_of says too from now on.
 * hit: slots that the batch uses, each once, whose `last` was before[...] and is `step` now. */
static PyObject *scan(PyObject *self, PyObject *args) {
    PyObject *o[7];
    long long step;
    if (!PyArg_ParseTuple(args, "OOOOLOOO", &o[0], &o[1], &o[2], &o[3], &step, &o[4], &o[5], &o[6])) return NULL;
    Held h[7] = {{{0}}};
    PyObject *result = NULL;
    if (hold(o[0], &h[0], 0, 0, 0) < 0) goto out;
    const Py_ssize_t n = length(&h[0]);
    const int wide = h[0].view.itemsize == 8;
    if (!wide && h[0].view.itemsize != 4) {
        PyErr_SetString(PyExc_ValueError, "ids have 4 or 8 bytes");
        goto out;
    }
    if (hold(o[1], &h[1], wide ? 8 : 4, n, 1) < 0 || hold(o[2], &h[2], 4, 0, 1) < 0 || hold(o[3], &h[3], 8, 0, 1) < 0 ||
        hold(o[4], &h[4], 8, n, 1) < 0 || hold(o[5], &h[5], 8, n, 1) < 0 || hold(o[6], &h[6], 8, n, 1) < 0)
        goto out;
    const void *ids = h[0].view.buf;
    void *found = h[1].view.buf;
    int32_t *slot_of = h[2].view.buf;
    int64_t *last = h[3].view.buf, *missing = h[4].view.buf, *hit = h[5].view.buf, *before = h[6].view.buf;
    const uint64_t vocabulary = (uint64_t)length(&h[2]);
    Py_ssize_t misses = 0, slots = 0, hits = 0, outside = 0;
    int64_t nobody = 0;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; k < n; k++) {
        if (k + AHEAD < n) {
            const uint64_t next = (uint64_t)number(ids, k + AHEAD, wide);
            if (next < vocabulary) PREFETCH(slot_of + next);
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
        int64_t *use = cached ? last + slot : &nobody;
        hit[slots] = slot;
        before[slots] = *use;
        slots += cached & (*use != step);
        *use = step;
        hits += cached;
        put(found, k, wide, slot);
    }
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("nnnn", misses, slots, hits, outside);
out:
    release(h, 7);
    return result;
}

/* place(found, missing, used, hit, filled, fresh, evicted, slot_of, id_of, last, step, log, steps, head, tail)
 * -> head, tail
 *
 * used[hit + i]: the slot that missing[i] gets. The first `fresh` are those from `filled` on, the others the slots that
 * were used longest ago, whose rows leave and are put in `evicted`; what scan left in `found` becomes slots. The log's
 * entries head to tail are slots with the steps that used them, the oldest first; those of this step are added. */
static PyObject *place(PyObject *self, PyObject *args) {
    PyObject *o[9];
    long long step;
    Py_ssize_t hit, filled, fresh, head, tail;
    if (!PyArg_ParseTuple(args, "OOOnnnOOOOLOOnn", &o[0], &o[1], &o[2], &hit, &filled, &fresh, &o[3], &o[4], &o[5],
                          &o[6], &step, &o[7], &o[8], &head, &tail))
        return NULL;
    Held h[9] = {{{0}}};
    PyObject *result = NULL;
    if (hold(o[0], &h[0], 0, 0, 1) < 0 || hold(o[1], &h[1], 8, 0, 0) < 0) goto out;
    const int wide = h[0].view.itemsize == 8;
    const Py_ssize_t n = length(&h[0]), count = length(&h[1]);
    if (hold(o[2], &h[2], 8, hit + count, 1) < 0 || hold(o[3], &h[3], 8, count - fresh, 1) < 0 ||
        hold(o[4], &h[4], 4, 0, 1) < 0 || hold(o[5], &h[5], 8, 0, 1) < 0 || hold(o[6], &h[6], 8, 0, 1) < 0 ||
        hold(o[7], &h[7], 4, 0, 1) < 0 || hold(o[8], &h[8], 8, 0, 1) < 0)
        goto out;
    void *found = h[0].view.buf;
    const int64_t *missing = h[1].view.buf;
    int64_t *used = h[2].view.buf, *evicted = h[3].view.buf, *id_of = h[5].view.buf, *last = h[6].view.buf;
    int32_t *slot_of = h[4].view.buf, *log = h[7].view.buf;
    int64_t *steps = h[8].view.buf, *places = used + hit;
    const Py_ssize_t room = length(&h[7]);
    int good = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < fresh; i++) places[i] = filled + i;
    for (Py_ssize_t i = fresh; i < count; head++) {
        if (head >= tail) {
            good = 0;
            break;
        }
        if (head + AHEAD < tail) PREFETCH(last + log[head + AHEAD]);
        const int32_t slot = log[head];
        places[i] = slot;
        i += last[slot] == steps[head]; /* else it was used again since */
    }
    if (good) {
        for (Py_ssize_t i = fresh; i < count; i++) {
            evicted[i - fresh] = id_of[places[i]];
            PREFETCH(slot_of + evicted[i - fresh]);
        }
        for (Py_ssize_t i = fresh; i < count; i++) slot_of[evicted[i - fresh]] = -1;
        for (Py_ssize_t i = 0; i < count; i++) {
            slot_of[missing[i]] = (int32_t)places[i];
            id_of[places[i]] = missing[i];
            last[places[i]] = step;
        }
        for (Py_ssize_t k = 0; count && k < n; k++) {
            const int64_t slot = number(found, k, wide);
            const int open = slot < -1;
            const int64_t place = places[open ? -2 - slot : 0];
            put(found, k, wide, open ? place : slot);
        }
        if (tail + hit + count > room) {
            Py_ssize_t kept = 0;
            for (; head < tail; head++) {
                if (last[log[head]] != steps[head]) continue;
                log[kept] = log[head];
                steps[kept++] = steps[head];
            }
            head = 0, tail = kept;
        }
        good = tail + hit + count <= room;
        for (Py_ssize_t i = 0; good && i < hit + count; i++, tail++) log[tail] = (int32_t)used[i], steps[tail] = step;
    }
    Py_END_ALLOW_THREADS
    if (good) result = Py_BuildValue("nn", head, tail);
    else PyErr_SetString(PyExc_ValueError, "the log and the slots disagree");
out:
    release(h, 9);
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
#define INTERFACE 1

static PyObject *interface_of(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return PyLong_FromLong(INTERFACE);
}

static PyMethodDef methods[] = {
    {"interface", interface_of, METH_NOARGS, "The number of this interface."},
    {"scan", scan, METH_VARARGS, "Look up the rows of a batch; see embedding/index.py."},
    {"place", place, METH_VARARGS, "Give missing rows their slots; see embedding/index.py."},
    {"stream", stream_copy, METH_VARARGS, "Copy past the caches; see host_copies.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Loops over host memory.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
