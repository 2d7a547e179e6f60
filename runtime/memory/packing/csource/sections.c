/* Time sections, loads, range maxima and orderings. */
#include "packing.h"

static inline uint64_t sortable(i64 value) { return (uint64_t)value ^ ((uint64_t)1 << 63); }

/* sections(lower, upper, out_lo, out_up) -> count */
PyObject *packing_sections(PyObject *self, PyObject *args) {
    PyObject *o[4], *result = NULL;
    Column c[4] = {0};
    uint64_t *key = NULL;
    i64 *item = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &o[0], &o[1], &o[2], &o[3])) return NULL;
    for (int k = 0; k < 4; k++)
        if (take(o[k], &c[k], k >= 2) < 0) goto done;
    Py_ssize_t n = c[0].n;
    if (c[1].n != n || c[2].n != n || c[3].n != n) {
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
        goto done;
    }
    i64 *lo = (i64 *)c[2].at, *up = (i64 *)c[3].at;
    key = grab(4 * (size_t)n, 8);
    item = key ? grab(4 * (size_t)n, 8) : NULL;
    if (!item) goto done;
    for (Py_ssize_t k = 0; k < n; k++) {  /* ends come first among equal times, as the sort is stable */
        key[k] = sortable(c[1].at[k]);
        item[k] = ~(i64)k;
        key[n + k] = sortable(c[0].at[k]);
        item[n + k] = k;
    }
    sort_pairs(key, item, key + 2 * n, item + 2 * n, 2 * n);
    i64 opened = 0;
    int ended = 1;
    for (Py_ssize_t k = 0; k < 2 * n; k++) {
        if (item[k] < 0) {
            up[~item[k]] = opened;
            ended = 1;
        } else {
            opened += ended;
            ended = 0;
            lo[item[k]] = opened - 1;
        }
    }
    result = PyLong_FromLongLong(opened);
done:
    free(key);
    free(item);
    drop(c, 4);
    return result;
}

/* load(lo, up, size, out[count]) */
PyObject *packing_load(PyObject *self, PyObject *args) {
    PyObject *o[4], *result = NULL;
    Column c[4] = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &o[0], &o[1], &o[2], &o[3])) return NULL;
    for (int k = 0; k < 4; k++)
        if (take(o[k], &c[k], k == 3) < 0) goto done;
    i64 *out = (i64 *)c[3].at;
    Py_ssize_t count = c[3].n;
    memset(out, 0, (size_t)count * 8);
    for (Py_ssize_t k = 0; k < c[0].n; k++) {
        out[c[0].at[k]] += c[2].at[k];
        if (c[1].at[k] < count) out[c[1].at[k]] -= c[2].at[k];
    }
    for (Py_ssize_t s = 1; s < count; s++) out[s] += out[s - 1];
    result = Py_NewRef(Py_None);
done:
    drop(c, 4);
    return result;
}

/* loudest(lo, up, loads, out): a bottom-up segment tree of maxima */
PyObject *packing_loudest(PyObject *self, PyObject *args) {
    PyObject *o[4], *result = NULL;
    Column c[4] = {0};
    i64 *tree = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &o[0], &o[1], &o[2], &o[3])) return NULL;
    for (int k = 0; k < 4; k++)
        if (take(o[k], &c[k], k == 3) < 0) goto done;
    Py_ssize_t count = c[2].n;
    i64 *out = (i64 *)c[3].at;
    tree = grab(2 * (size_t)count + 2, 8);
    if (!tree) goto done;
    memcpy(tree + count, c[2].at, (size_t)count * 8);
    for (Py_ssize_t k = count - 1; k > 0; k--) tree[k] = tree[2 * k] > tree[2 * k + 1] ? tree[2 * k] : tree[2 * k + 1];
    for (Py_ssize_t k = 0; k < c[0].n; k++) {
        i64 best = -NONE;
        i64 left = c[0].at[k] + count, right = c[1].at[k] + count;
        for (; left < right; left /= 2, right /= 2) {
            if (left & 1) { if (tree[left] > best) best = tree[left]; left++; }
            if (right & 1) { right--; if (tree[right] > best) best = tree[right]; }
        }
        out[k] = best;
    }
    result = Py_NewRef(Py_None);
done:
    free(tree);
    drop(c, 4);
    return result;
}

/* rank(columns, out): out[k] = position of k, largest first by columns[0], then columns[1], ...; ties by position */
PyObject *packing_rank(PyObject *self, PyObject *args) {
    PyObject *columns, *out_object, *result = NULL;
    Column out = {0}, column = {0};
    uint64_t *key = NULL;
    i64 *item = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &columns, &out_object)) return NULL;
    if (take(out_object, &out, 1) < 0) return NULL;
    Py_ssize_t n = out.n;
    key = grab(2 * (size_t)n, 8);
    item = key ? grab(2 * (size_t)n, 8) : NULL;
    if (!item) goto done;
    for (Py_ssize_t k = 0; k < n; k++) item[k] = k;
    for (Py_ssize_t c = PyTuple_Size(columns) - 1; c >= 0; c--) {  /* least significant first */
        if (take(PyTuple_GetItem(columns, c), &column, 0) < 0) goto done;
        int real = column.view.format[0] == 'd';
        for (Py_ssize_t k = 0; k < n; k++) {
            uint64_t bits = (uint64_t)column.at[item[k]];
            if (real) bits = bits >> 63 ? ~bits : bits ^ ((uint64_t)1 << 63);
            else bits ^= (uint64_t)1 << 63;
            key[k] = ~bits;
        }
        drop(&column, 1);
        column.view.obj = NULL;
        sort_pairs(key, item, key + n, item + n, n);
    }
    for (Py_ssize_t k = 0; k < n; k++) ((i64 *)out.at)[item[k]] = k;
    result = Py_NewRef(Py_None);
done:
    free(key);
    free(item);
    drop(&out, 1);
    return result;
}
