/* The module table and the helpers all compiled functions share. */
#include "packing.h"

int take(PyObject *object, Column *column, int writable) {
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    column->at = NULL;
    if (PyObject_GetBuffer(object, &column->view, flags) < 0) return -1;
    const char *format = column->view.format;
    if (column->view.itemsize != 8 || !format || !strchr("qld", format[0])) {
        PyBuffer_Release(&column->view);
        PyErr_SetString(PyExc_TypeError, "columns must hold 64-bit numbers");
        return -1;
    }
    column->at = column->view.buf;
    column->n = column->view.len / 8;
    return 0;
}

void drop(Column *columns, int count) {
    for (int k = 0; k < count; k++)
        if (columns[k].view.obj) PyBuffer_Release(&columns[k].view);
}

void *grab(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory) PyErr_NoMemory();
    return memory;
}

/* Radix sort, a byte a pass; passes in which all bytes agree are skipped. */
void sort_pairs(uint64_t *key, i64 *item, uint64_t *key2, i64 *item2, Py_ssize_t n) {
    uint64_t *k1 = key, *k2 = key2;
    i64 *i1 = item, *i2 = item2;
    for (int shift = 0; shift < 64; shift += 8) {
        Py_ssize_t count[257] = {0};
        for (Py_ssize_t k = 0; k < n; k++) count[((k1[k] >> shift) & 255) + 1]++;
        int agree = 0;
        for (int b = 1; b <= 256; b++) agree |= count[b] == n;
        if (agree) continue;
        for (int b = 0; b < 256; b++) count[b + 1] += count[b];
        for (Py_ssize_t k = 0; k < n; k++) {
            Py_ssize_t to = count[(k1[k] >> shift) & 255]++;
            k2[to] = k1[k];
            i2[to] = i1[k];
        }
        uint64_t *k = k1; k1 = k2; k2 = k;
        i64 *i = i1; i1 = i2; i2 = i;
    }
    if (k1 != key) {
        memcpy(key, k1, (size_t)n * 8);
        memcpy(item, i1, (size_t)n * 8);
    }
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
    {"skyline", packing_skyline, METH_VARARGS, "Skyline best-fit; see skyline.py."},
    {"sections", packing_sections, METH_VARARGS, "Reduce time to sections; see sections.py."},
    {"load", packing_load, METH_VARARGS, "Live bytes of every section."},
    {"loudest", packing_loudest, METH_VARARGS, "Largest load each life passes through."},
    {"rank", packing_rank, METH_VARARGS, "Positions after a stable descending sort by several columns."},
    {"overlap", packing_overlap, METH_VARARGS, "A pair of extents live together that overlap, or None."},
    {"graph", packing_graph, METH_VARARGS, "Conflict graph of pieces; see conflicts.py."},
    {"fill", packing_fill, METH_VARARGS, "First and best fit over the conflict graph; see gaps.py."},
    {"outward", packing_outward, METH_VARARGS, "Packing outward from the peak; see outward.py."},
    {"search", packing_search, METH_VARARGS, "Exact search; see exact.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Compiled twins of the packing algorithms.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
