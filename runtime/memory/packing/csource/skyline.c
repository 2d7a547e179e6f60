/* Skyline best-fit with a segment tree; the twin of skyline.py. */
#include "packing.h"

typedef struct { i64 height, start; } Entry;

typedef struct {
    Py_ssize_t n, width;
    i64 *sorted, *ranks, *ends;        /* leaves in order of lo */
    i64 *first;                        /* number of leaves with lo < s, a section each */
    i64 *end, *height, *before;        /* segments by their first section; height -1: no segment starts here */
    Entry *heap;
    Py_ssize_t heaped, room;
    i64 visits, most_visits;           /* tree nodes looked at */
} Sky;

static int push(Sky *y, i64 height, i64 start) {
    if (y->heaped == y->room) {
        Py_ssize_t room = 2 * y->room + 64;
        Entry *heap = realloc(y->heap, (size_t)room * sizeof(Entry));
        if (!heap) { PyErr_NoMemory(); return -1; }
        y->heap = heap;
        y->room = room;
    }
    Py_ssize_t at = y->heaped++;
    while (at) {
        Py_ssize_t up = (at - 1) / 2;
        Entry *e = &y->heap[up];
        if (e->height < height || (e->height == height && e->start <= start)) break;
        y->heap[at] = *e;
        at = up;
    }
    y->heap[at] = (Entry){height, start};
    return 0;
}

static Entry pop(Sky *y) {
    Entry top = y->heap[0], last = y->heap[--y->heaped];
    Py_ssize_t at = 0;
    for (;;) {
        Py_ssize_t down = 2 * at + 1;
        if (down >= y->heaped) break;
        Entry *a = &y->heap[down];
        if (down + 1 < y->heaped) {
            Entry *b = a + 1;
            if (b->height < a->height || (b->height == a->height && b->start < a->start)) { a = b; down++; }
        }
        if (last.height < a->height || (last.height == a->height && last.start <= a->start)) break;
        y->heap[at] = *a;
        at = down;
    }
    y->heap[at] = last;
    return top;
}

static inline void pull(Sky *y, i64 node) {
    i64 a = 2 * node, b = a + 1;
    y->ranks[node] = y->ranks[a] < y->ranks[b] ? y->ranks[a] : y->ranks[b];
    y->ends[node] = y->ends[a] < y->ends[b] ? y->ends[a] : y->ends[b];
}

/* Leaf of the best-ranked unplaced block with left <= lo and up <= right, or -1. */
static i64 best_leaf(Sky *y, i64 left, i64 right) {
    i64 first = y->first[left], last = y->first[right], best = NONE, leaf = -1;
    struct { i64 node, begin, end; } stack[130];
    int depth = 0;
    if (first >= last) return -1;
    stack[depth].node = 1, stack[depth].begin = 0, stack[depth++].end = y->width;
    while (depth) {
        depth--;
        y->visits++;
        i64 node = stack[depth].node, begin = stack[depth].begin, end = stack[depth].end;
        if (begin >= last || end <= first || y->ends[node] > right || y->ranks[node] >= best) continue;
        if (node >= y->width) {
            best = y->ranks[node];
            leaf = node;
            continue;
        }
        i64 middle = (begin + end) / 2;
        int right_first = y->ranks[2 * node] > y->ranks[2 * node + 1];
        i64 near = 2 * node + right_first, far = 2 * node + !right_first;
        stack[depth].node = far;
        stack[depth].begin = right_first ? begin : middle;
        stack[depth++].end = right_first ? middle : end;
        stack[depth].node = near;
        stack[depth].begin = right_first ? middle : begin;
        stack[depth++].end = right_first ? end : middle;
    }
    return leaf;
}

static void absorb(Sky *y, i64 start, i64 other) {
    y->end[start] = y->end[other];
    y->height[other] = -1;
    y->before[y->end[start]] = start;
}

static int lift(Sky *y, i64 start, i64 count) {
    i64 previous = y->before[start], following = y->end[start];
    i64 left = previous >= 0 ? y->height[previous] : NONE, right = following < count ? y->height[following] : NONE;
    if (left <= right) {
        absorb(y, previous, start);
        return 0;
    }
    absorb(y, start, following);
    y->height[start] = right;
    return push(y, right, start);
}

static int place(Sky *y, i64 start, i64 lo, i64 up, i64 h, i64 top) {
    i64 stop = y->end[start];
    if (up < stop) {
        y->end[up] = stop, y->height[up] = h, y->before[stop] = up;
        if (push(y, h, up) < 0) return -1;
    }
    if (lo > start) {
        y->end[start] = lo, y->before[lo] = start;
        if (push(y, h, start) < 0) return -1;
    }
    y->end[lo] = up, y->height[lo] = top, y->before[up] = lo;
    return push(y, top, lo);
}

static int prepare(Sky *y, const Column *c, i64 count) {
    Py_ssize_t n = c[0].n;
    y->n = n;
    for (y->width = 1; y->width < n;) y->width *= 2;
    if (!(y->sorted = grab((size_t)n, 8)) || !(y->ranks = grab(2 * (size_t)y->width, 8))
        || !(y->ends = grab(2 * (size_t)y->width, 8)) || !(y->first = grab((size_t)count + 2, 8))
        || !(y->end = grab((size_t)count + 1, 8)) || !(y->height = grab((size_t)count + 1, 8))
        || !(y->before = grab((size_t)count + 1, 8)))
        return -1;
    for (Py_ssize_t k = 0; k < n; k++) y->first[c[0].at[k] + 1]++;  /* counting sort by lo, stable */
    for (i64 s = 0; s <= count; s++) y->first[s + 1] += y->first[s];
    for (Py_ssize_t k = 0; k < n; k++) y->sorted[y->first[c[0].at[k]]++] = k;
    for (i64 s = count; s > 0; s--) y->first[s] = y->first[s - 1];
    y->first[0] = 0;
    for (i64 k = 0; k < 2 * y->width; k++) y->ranks[k] = y->ends[k] = NONE;
    for (Py_ssize_t k = 0; k < n; k++) {
        y->ranks[y->width + k] = c[4].at[y->sorted[k]];
        y->ends[y->width + k] = c[1].at[y->sorted[k]];
    }
    for (i64 node = y->width - 1; node > 0; node--) pull(y, node);
    for (i64 s = 0; s <= count; s++) y->height[s] = -1;
    y->end[0] = count, y->height[0] = 0, y->before[0] = -1, y->before[count] = 0;
    return push(y, 0, 0);
}

static int run(Sky *y, const Column *c, i64 count, i64 chunk, i64 limit, i64 *out) {
    Py_ssize_t left = y->n;
    for (i64 turn = 0; left; turn++) {
        if ((turn & 0xffff) == 0xffff && PyErr_CheckSignals() < 0) return -1;
        Entry e = pop(y);
        if (y->height[e.start] != e.height) continue;
        while (y->end[e.start] < count && y->height[y->end[e.start]] == e.height) absorb(y, e.start, y->end[e.start]);
        i64 leaf = best_leaf(y, e.start, y->end[e.start]);
        if (y->visits > y->most_visits) return 0;
        if (leaf < 0) {
            if (lift(y, e.start, count) < 0) return -1;
            continue;
        }
        i64 i = y->sorted[leaf - y->width];
        y->ranks[leaf] = y->ends[leaf] = NONE;
        for (i64 node = leaf / 2; node; node /= 2) pull(y, node);
        left--;
        out[i] = step_up(e.height, c[2].at[i], align_of(&c[3], i), chunk);
        i64 top = out[i] + c[2].at[i];
        if (top >= limit) return 0;
        if (place(y, e.start, c[0].at[i], c[1].at[i], e.height, top) < 0) return -1;
    }
    return 1;
}

/* skyline(lo, up, size, align, rank, count, chunk, stop, visits, out) -> bool */
PyObject *packing_skyline(PyObject *self, PyObject *args) {
    PyObject *o[6], *result = NULL;
    Column c[6] = {0};
    long long count, chunk, limit, visits;
    Sky y = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOLLLLO", &o[0], &o[1], &o[2], &o[3], &o[4], &count, &chunk, &limit, &visits,
                          &o[5]))
        return NULL;
    for (int k = 0; k < 6; k++)
        if (take(o[k], &c[k], k == 5) < 0) goto done;
    y.most_visits = visits;
    if (prepare(&y, c, count) < 0) goto done;
    int whole = run(&y, c, count, chunk, limit, (i64 *)c[5].at);
    if (whole >= 0) result = PyBool_FromLong(whole);
done:
    free(y.sorted), free(y.ranks), free(y.ends), free(y.first), free(y.end), free(y.height), free(y.before);
    free(y.heap);
    drop(c, 6);
    return result;
}
