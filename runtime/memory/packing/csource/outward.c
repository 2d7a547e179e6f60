/* Packing outward from the peak; the twin of outward.py. Holes are kept in order in pages of bounded size. */
#include "packing.h"

enum { LOWEST, TIGHTEST, PAGE = 256 };
#define END ((i64)1 << 61)

typedef struct { i64 start, end; int free; Py_ssize_t below, above; } Range;  /* linked in order of address */
typedef struct { i64 key, start; Py_ssize_t range; } Hole;
typedef struct { int n; i64 largest; Hole hole[PAGE]; } Page;

typedef struct {
    Range *range;
    Py_ssize_t ranges;
    Page **page;
    Py_ssize_t pages, room;
    Page *spare;
    long fit;
} Memory;

static inline int before(const Hole *a, i64 key, i64 start) {
    return a->key < key || (a->key == key && a->start < start);
}

/* Page that holds, or would hold, the first hole not before (key, start). */
static Py_ssize_t page_for(const Memory *m, i64 key, i64 start) {
    Py_ssize_t low = 0, high = m->pages - 1;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        const Page *p = m->page[middle];
        if (before(&p->hole[p->n - 1], key, start)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int slot_for(const Page *p, i64 key, i64 start) {
    int low = 0, high = p->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (before(&p->hole[middle], key, start)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void measure(Page *p, const Memory *m) {
    p->largest = 0;
    for (int k = 0; k < p->n; k++) {
        const Range *r = &m->range[p->hole[k].range];
        if (r->end - r->start > p->largest) p->largest = r->end - r->start;
    }
}

static Page *new_page(Memory *m, Py_ssize_t at) {
    if (m->pages == m->room) {
        Py_ssize_t room = 2 * m->room + 16;
        Page **grown = realloc(m->page, (size_t)room * sizeof(Page *));
        if (!grown) { PyErr_NoMemory(); return NULL; }
        m->page = grown;
        m->room = room;
    }
    Page *p = m->spare ? m->spare : malloc(sizeof(Page));
    m->spare = NULL;
    if (!p) { PyErr_NoMemory(); return NULL; }
    p->n = 0, p->largest = 0;
    memmove(m->page + at + 1, m->page + at, (size_t)(m->pages - at) * sizeof(Page *));
    m->page[at] = p;
    m->pages++;
    return p;
}

static int add_hole(Memory *m, Py_ssize_t range) {
    Range *r = &m->range[range];
    i64 key = m->fit == TIGHTEST ? r->end - r->start : r->start;
    r->free = 1;
    if (!m->pages && !new_page(m, 0)) return -1;
    Py_ssize_t at = page_for(m, key, r->start);
    Page *p = m->page[at];
    if (p->n == PAGE) {
        Page *upper = new_page(m, at + 1);
        if (!upper) return -1;
        p = m->page[at];
        upper->n = PAGE / 2;
        p->n -= PAGE / 2;
        memcpy(upper->hole, p->hole + p->n, sizeof(Hole) * PAGE / 2);
        measure(upper, m), measure(p, m);
        if (before(&p->hole[p->n - 1], key, r->start)) p = upper;
    }
    int slot = slot_for(p, key, r->start);
    memmove(p->hole + slot + 1, p->hole + slot, sizeof(Hole) * (size_t)(p->n - slot));
    p->hole[slot] = (Hole){key, r->start, range};
    p->n++;
    if (r->end - r->start > p->largest) p->largest = r->end - r->start;
    return 0;
}

static void remove_hole(Memory *m, Py_ssize_t range) {
    Range *r = &m->range[range];
    i64 key = m->fit == TIGHTEST ? r->end - r->start : r->start;
    Py_ssize_t at = page_for(m, key, r->start);
    Page *p = m->page[at];
    int slot = slot_for(p, key, r->start);
    p->n--;
    memmove(p->hole + slot, p->hole + slot + 1, sizeof(Hole) * (size_t)(p->n - slot));
    r->free = 0;
    if (!p->n) {
        if (m->spare) free(p);
        else m->spare = p;
        m->pages--;
        memmove(m->page + at, m->page + at + 1, (size_t)(m->pages - at) * sizeof(Page *));
    } else if (p->largest == r->end - r->start) {
        measure(p, m);
    }
}

static int give(Memory *m, Py_ssize_t range) {
    Range *r = &m->range[range];
    Py_ssize_t below = r->below, above = r->above;
    if (below >= 0 && m->range[below].free) {
        remove_hole(m, below);
        r->start = m->range[below].start;
        r->below = m->range[below].below;
        if (r->below >= 0) m->range[r->below].above = range;
    }
    if (above >= 0 && m->range[above].free) {
        remove_hole(m, above);
        r->end = m->range[above].end;
        r->above = m->range[above].above;
        if (r->above >= 0) m->range[r->above].below = range;
    }
    return add_hole(m, range);
}

/* The range a block of `size` bytes gets, now in use, or -1. */
static Py_ssize_t claim(Memory *m, i64 size) {
    Py_ssize_t at = 0;
    int slot = 0;
    if (m->fit == TIGHTEST) {
        at = page_for(m, size, -1);
        slot = slot_for(m->page[at], size, -1);
    } else {
        while (m->page[at]->largest < size) at++;
        for (;; slot++) {
            const Range *r = &m->range[m->page[at]->hole[slot].range];
            if (r->end - r->start >= size) break;
        }
    }
    Py_ssize_t range = m->page[at]->hole[slot].range;
    Range *r = &m->range[range];
    remove_hole(m, range);
    if (r->start + size < r->end) {
        Py_ssize_t rest = m->ranges++;
        m->range[rest] = (Range){r->start + size, r->end, 0, range, r->above};
        if (r->above >= 0) m->range[r->above].below = rest;
        r->above = rest;
        r->end = r->start + size;
        if (add_hole(m, rest) < 0) return -1;
    }
    return range;
}

/* One side of the peak; forward time has sign 1. 1 done, 0 stop reached, -1 error. */
static int side(Memory *m, const Column *c, i64 peak, int sign, i64 limit, i64 *out, Py_ssize_t *held) {
    Py_ssize_t n = c[0].n, last = -1, gone = 0;
    const i64 *lo = c[0].at, *up = c[1].at, *size = c[2].at;
    const i64 *starts = sign > 0 ? c[4].at : c[5].at, *ends = sign > 0 ? c[5].at : c[4].at;
    for (Py_ssize_t k = 0; k < m->pages; k++) free(m->page[k]);
    m->pages = m->ranges = 0;
    i64 top = 0;
    for (Py_ssize_t k = 0; k < n; k++) {
        i64 j = c[3].at[k];
        if (lo[j] > peak || up[j] <= peak) continue;
        held[j] = m->ranges++;
        m->range[held[j]] = (Range){top, top + size[j], 0, last, -1};
        if (last >= 0) m->range[last].above = held[j];
        last = held[j];
        out[j] = top;
        top += size[j];
    }
    if (top >= limit) return 0;
    Py_ssize_t open = m->ranges++;
    m->range[open] = (Range){top, END, 0, last, -1};
    if (last >= 0) m->range[last].above = open;
    if (add_hole(m, open) < 0) return -1;
    for (Py_ssize_t k = 0; k < n; k++) {
        i64 j = starts[k];
        if (sign > 0 ? lo[j] <= peak : up[j] > peak) continue;
        for (; gone < n; gone++) {
            i64 e = ends[n - 1 - gone];
            if (sign > 0 ? up[e] <= peak : lo[e] > peak) continue;
            if (sign > 0 ? up[e] > lo[j] : lo[e] < up[j]) break;
            if (give(m, held[e]) < 0) return -1;
        }
        if ((held[j] = claim(m, size[j])) < 0) return -1;
        out[j] = m->range[held[j]].start;
        if (out[j] + size[j] >= limit) return 0;
        if ((k & 0x3fff) == 0x3fff && PyErr_CheckSignals() < 0) return -1;
    }
    return 1;
}

/* outward(lo, up, size, order, by_lo, by_up, peak, fit, stop, out) -> bool */
PyObject *packing_outward(PyObject *self, PyObject *args) {
    PyObject *o[7], *result = NULL;
    Column c[7] = {0};
    Memory m = {0};
    Py_ssize_t *held = NULL;
    long long peak, limit;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOOLlLO", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &peak, &m.fit, &limit, &o[6]))
        return NULL;
    for (int k = 0; k < 7; k++)
        if (take(o[k], &c[k], k == 6) < 0) goto done;
    if (!(m.range = grab(2 * (size_t)c[0].n + 2, sizeof(Range)))) goto done;
    if (!(held = grab((size_t)c[0].n, sizeof(Py_ssize_t)))) goto done;
    int whole = side(&m, c, peak, 1, limit, (i64 *)c[6].at, held);
    if (whole > 0) whole = side(&m, c, peak, -1, limit, (i64 *)c[6].at, held);
    if (whole >= 0) result = PyBool_FromLong(whole);
done:
    for (Py_ssize_t k = 0; k < m.pages; k++) free(m.page[k]);
    free(m.page), free(m.spare), free(m.range), free(held);
    drop(c, 7);
    return result;
}
