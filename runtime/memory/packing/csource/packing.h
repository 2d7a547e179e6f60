/* Shared declarations of the compiled packing code: int64 columns in and out, no allocation kept between calls. */
#ifndef KGRUN_PACKING_H
#define KGRUN_PACKING_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NONE ((int64_t)1 << 62)

typedef int64_t i64;
typedef struct { const i64 *at; Py_ssize_t n; Py_buffer view; } Column;  /* a read or written int64 column */

/* Alignments: one for all blocks (n == 1) or one each. */
static inline i64 align_of(const Column *align, Py_ssize_t k) { return align->at[align->n == 1 ? 0 : k]; }

/* Least aligned offset at or above `offset` where `size` bytes cross no multiple of `chunk` (0: none); see step_up
 * in arena.py. Alignments divide the chunk, so one raise is enough. */
static inline i64 step_up(i64 offset, i64 size, i64 align, i64 chunk) {
    i64 over = offset % align;
    if (over) offset += align - over;
    if (chunk && size && offset % chunk && offset / chunk != (offset + size - 1) / chunk)
        offset += chunk - offset % chunk;
    return offset;
}

int take(PyObject *object, Column *column, int writable);
void drop(Column *columns, int count);
void *grab(size_t count, size_t bytes);           /* zeroed memory, or NULL with MemoryError set */
void sort_pairs(uint64_t *key, i64 *item, uint64_t *key2, i64 *item2, Py_ssize_t n); /* stable, ascending by key */

PyObject *packing_skyline(PyObject *self, PyObject *args);
PyObject *packing_sections(PyObject *self, PyObject *args);
PyObject *packing_load(PyObject *self, PyObject *args);
PyObject *packing_loudest(PyObject *self, PyObject *args);
PyObject *packing_rank(PyObject *self, PyObject *args);
PyObject *packing_overlap(PyObject *self, PyObject *args);
PyObject *packing_graph(PyObject *self, PyObject *args);
PyObject *packing_fill(PyObject *self, PyObject *args);
PyObject *packing_outward(PyObject *self, PyObject *args);
PyObject *packing_search(PyObject *self, PyObject *args);
#endif
