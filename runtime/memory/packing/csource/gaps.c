/* Conflict graph of pieces, and first and best fit over it; the twins of conflicts.py and gaps.py. */
#include "packing.h"

typedef struct { i64 *at; size_t n, room; } Vector;

static int append(Vector *v, i64 a, i64 b) {
    if (v->n + 2 > v->room) {
        size_t room = 2 * v->room + 1024;
        i64 *at = realloc(v->at, room * 8);
        if (!at) { PyErr_NoMemory(); return -1; }
        v->at = at;
        v->room = room;
    }
    v->at[v->n++] = a;
    v->at[v->n++] = b;
    return 0;
}

/* Edges between spans that overlap: 1 done, 0 more than limit, -1 error. */
static int overlaps(const Column *c, Vector *edges, i64 limit) {
    Py_ssize_t n = c[0].n, live = 0;
    int status = -1;
    uint64_t *key = grab(4 * (size_t)n, 8);
    i64 *item = key ? grab(4 * (size_t)n, 8) : NULL, *list = item ? grab((size_t)n, 8) : NULL;
    i64 *where = list ? grab((size_t)n, 8) : NULL;
    if (!where) goto done;
    for (Py_ssize_t k = 0; k < n; k++) {
        key[k] = (uint64_t)c[1].at[k] ^ ((uint64_t)1 << 63);
        item[k] = ~(i64)k;
        key[n + k] = (uint64_t)c[0].at[k] ^ ((uint64_t)1 << 63);
        item[n + k] = k;
    }
    sort_pairs(key, item, key + 2 * n, item + 2 * n, 2 * n);
    for (Py_ssize_t e = 0; e < 2 * n; e++) {
        if (item[e] < 0) {
            i64 gone = ~item[e], last = list[--live];
            list[where[gone]] = last;
            where[last] = where[gone];
            continue;
        }
        i64 k = item[e];
        if (limit >= 0 && (i64)(edges->n / 2) + live > limit) { status = 0; goto done; }
        for (Py_ssize_t j = 0; j < live; j++)
            if (append(edges, c[2].at[k], c[2].at[list[j]]) < 0) goto done;
        where[k] = live;
        list[live++] = k;
        if ((e & 1023) == 0 && PyErr_CheckSignals() < 0) goto done;
    }
    status = 1;
done:
    free(key), free(item), free(list), free(where);
    return status;
}

/* Compressed rows, ascending and without doubles or same-block pairs: bucket by neighbour, then by piece. */
static PyObject *rows(const Vector *edges, const Column *block) {
    Py_ssize_t n = block->n;
    size_t m = edges->n;
    PyObject *result = NULL;
    i64 *count = grab((size_t)n + 1, 8), *from = count ? grab(m, 8) : NULL, *to = from ? grab(m, 8) : NULL;
    i64 *first = to ? grab((size_t)n + 1, 8) : NULL;
    if (!first) goto done;
    for (size_t k = 0; k < m; k++) count[edges->at[k] + 1]++;
    for (Py_ssize_t k = 0; k < n; k++) count[k + 1] += count[k];
    memcpy(first, count, ((size_t)n + 1) * 8);
    for (size_t k = 0; k < m; k++) {          /* from: every edge seen from its end k ^ 1, bucketed by neighbour */
        i64 slot = first[edges->at[k]]++;
        from[slot] = edges->at[k ^ 1];
    }
    memcpy(first, count, ((size_t)n + 1) * 8);
    for (Py_ssize_t near = 0; near < n; near++)
        for (i64 k = count[near]; k < count[near + 1]; k++) to[first[from[k]]++] = near;
    i64 kept = 0;
    for (Py_ssize_t k = 0; k < n; k++) {
        i64 begin = count[k], stop = count[k + 1], previous = -1;
        first[k] = kept;
        for (i64 e = begin; e < stop; e++)
            if (to[e] != previous && block->at[to[e]] != block->at[k]) to[kept++] = previous = to[e];
    }
    first[n] = kept;
    result = Py_BuildValue("(y#y#)", (char *)first, (Py_ssize_t)(n + 1) * 8, (char *)to, (Py_ssize_t)kept * 8);
done:
    free(count), free(from), free(to), free(first);
    return result;
}

/* graph(lower, upper, owner, block, left, right, limit) -> (first, near) as bytes, or None above limit */
PyObject *packing_graph(PyObject *self, PyObject *args) {
    PyObject *o[6], *result = NULL;
    Column c[6] = {0};
    Vector edges = {0};
    long long limit;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOOL", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &limit)) return NULL;
    for (int k = 0; k < 6; k++)
        if (take(o[k], &c[k], 0) < 0) goto done;
    int whole = overlaps(c, &edges, limit);
    for (Py_ssize_t k = 0; whole > 0 && k < c[4].n; k++)
        if (append(&edges, c[4].at[k], c[5].at[k]) < 0) whole = -1;
    if (whole > 0) result = rows(&edges, &c[3]);
    else if (whole == 0) result = Py_NewRef(Py_None);
done:
    free(edges.at);
    drop(c, 6);
    return result;
}

typedef struct { i64 low, high; } Taken;

static int by_low(const void *a, const void *b) {
    const Taken *x = a, *y = b;
    if (x->low != y->low) return x->low < y->low ? -1 : 1;
    return x->high < y->high ? -1 : x->high > y->high;
}

enum { LOWEST, TIGHTEST, BELOW_TOP };

static i64 choose(const Taken *taken, size_t n, i64 size, i64 align, i64 chunk, long fit, i64 top) {
    i64 at = 0, best = -1, slack = NONE;
    for (size_t k = 0; k < n; k++) {
        if (taken[k].low >= at) {
            i64 origin = step_up(at, size, align, chunk);
            if (origin <= taken[k].low) {
                if (fit != TIGHTEST) return origin;
                if (taken[k].low - at < slack) best = origin, slack = taken[k].low - at;
            }
        }
        if (taken[k].high > at) at = taken[k].high;
    }
    if (best >= 0) return best;
    i64 origin = step_up(at, size, align, chunk);
    if (fit == BELOW_TOP && origin + size > top) origin = step_up(at > top ? at : top, size, align, chunk);
    return origin;
}

/* c: order, size, align, pinned, first, flat, block, rel, piece size, near first, near, out */
static int fill(const Column *c, Taken *taken, long fit, i64 chunk, i64 limit, i64 *origin) {
    i64 top = 0;
    for (Py_ssize_t b = 0; b < c[3].n; b++) {
        origin[b] = c[3].at[b];
        if (origin[b] >= 0 && origin[b] + c[1].at[b] > top) top = origin[b] + c[1].at[b];
    }
    for (Py_ssize_t turn = 0; turn < c[0].n; turn++) {
        i64 b = c[0].at[turn];
        size_t n = 0;
        if ((turn & 255) == 255 && PyErr_CheckSignals() < 0) return -1;
        if (origin[b] >= 0) continue;
        for (i64 f = c[4].at[b]; f < c[4].at[b + 1]; f++) {
            i64 k = c[5].at[f], above = c[7].at[k], below = above + c[8].at[k];
            for (i64 e = c[9].at[k]; e < c[9].at[k + 1]; e++) {
                i64 j = c[10].at[e], there = origin[c[6].at[j]];
                if (there < 0) continue;
                there += c[7].at[j];
                taken[n++] = (Taken){there - below, there + c[8].at[j] - above};
            }
        }
        qsort(taken, n, sizeof(Taken), by_low);
        origin[b] = choose(taken, n, c[1].at[b], align_of(&c[2], b), chunk, fit, top);
        i64 end = origin[b] + c[1].at[b];
        if (end > top) top = end;
        if (end >= limit) return 0;
    }
    return 1;
}

/* fill(order, size, align, pinned, first, flat, block, rel, piece_size, near_first, near, out, fit, chunk, stop) */
PyObject *packing_fill(PyObject *self, PyObject *args) {
    PyObject *o[12], *result = NULL;
    Column c[12] = {0};
    long fit;
    long long chunk, limit;
    Taken *taken = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOlLL", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &o[7], &o[8],
                          &o[9], &o[10], &o[11], &fit, &chunk, &limit))
        return NULL;
    for (int k = 0; k < 12; k++)
        if (take(o[k], &c[k], k == 11) < 0) goto done;
    size_t most = 0;  /* the largest degree of a block */
    for (Py_ssize_t b = 0; b + 1 < c[4].n; b++) {
        size_t degree = 0;
        for (i64 f = c[4].at[b]; f < c[4].at[b + 1]; f++)
            degree += (size_t)(c[9].at[c[5].at[f] + 1] - c[9].at[c[5].at[f]]);
        if (degree > most) most = degree;
    }
    if (!(taken = grab(most, sizeof(Taken)))) goto done;
    int whole = fill(c, taken, fit, chunk, limit, (i64 *)c[11].at);
    if (whole >= 0) result = PyBool_FromLong(whole);
done:
    free(taken);
    drop(c, 12);
    return result;
}
