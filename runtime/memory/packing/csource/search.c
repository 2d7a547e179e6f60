/* Exact search over canonical plans; the twin of exact.py, which explains it. Iterative: the stack is on the heap. */
#define _POSIX_C_SOURCE 200809L
#include "packing.h"
#include <time.h>

/* A part of the problem whose sections no unplaced block links to others. */
typedef struct {
    size_t list, options;      /* where its blocks (in order of lo) and its options lie in the store */
    int32_t blocks, count, turn;
    i64 section, slack;        /* the section branched on and its spare bytes */
    Py_ssize_t parent, next;   /* part whose choice made this one; part to solve after it */
    size_t trail, placed, store, parts;  /* heights of the stacks on entry */
} Part;

typedef struct { i64 where, value; } Change;  /* old floor of a section, or old least offset of block ~where */

typedef struct {
    Column c[7];               /* lo, up, size, align, pinned, rank, out */
    i64 cap, chunk;
    long rule;                 /* bits: count options, weigh sections by their failures, ties to the first */
    i64 *least;                /* a block: its least offset under the floors */
    i64 *rest, *floor, *weight;  /* a section: unplaced bytes, lowest place for them, failures */
    i64 *bottom, *many;        /* scratch a section */
    int32_t *store, *placed;
    Change *trail;
    Part *parts;
    size_t stored, store_room, trailed, trail_room, placed_n, part_n, part_room;
} Search;

static int reserve(void **memory, size_t *room, size_t need, size_t bytes) {
    if (need <= *room) return 0;
    size_t wanted = need + *room;
    void *grown = realloc(*memory, wanted * bytes);
    if (!grown) { PyErr_NoMemory(); return -1; }
    *memory = grown;
    *room = wanted;
    return 0;
}

static void undo(Search *s, const Part *to) {
    while (s->trailed > to->trail) {
        const Change *change = &s->trail[--s->trailed];
        if (change->where < 0) s->least[~change->where] = change->value;
        else s->floor[change->where] = change->value;
    }
    while (s->placed_n > to->placed) {
        int32_t j = s->placed[--s->placed_n];
        for (i64 t = s->c[0].at[j]; t < s->c[1].at[j]; t++) s->rest[t] += s->c[2].at[j];
    }
    s->stored = to->store;
    s->part_n = to->parts;
}

static int note(Search *s, i64 where, i64 value) {
    if (reserve((void **)&s->trail, &s->trail_room, s->trailed + 1, sizeof(Change)) < 0) return -1;
    s->trail[s->trailed++] = (Change){where, value};
    return 0;
}

static int raise_floor(Search *s, i64 t, i64 floor) {
    if (note(s, t, s->floor[t]) < 0) return -1;
    s->floor[t] = floor;
    return 0;
}

/* Update the least offsets of blocks that meet sections [*from, *to), where floors rose, and widen that range to all
 * sections of the blocks that moved: 1 done, 0 a pin is buried, -1 error. */
static int lowest(Search *s, const Part *part, i64 *from, i64 *to) {
    const i64 *lo = s->c[0].at, *up = s->c[1].at;
    const int32_t *list = s->store + part->list;
    i64 first = *from, last = *to;
    for (int32_t k = 0; k < part->blocks && lo[list[k]] < last; k++) {
        int32_t j = list[k];
        if (up[j] <= first) continue;
        i64 high = 0, pin = s->c[4].at[j];
        for (i64 t = lo[j]; t < up[j]; t++) high = s->floor[t] > high ? s->floor[t] : high;
        if (pin >= 0 && high > pin) return 0;
        i64 least = pin >= 0 ? pin : step_up(high, s->c[2].at[j], align_of(&s->c[3], j), s->chunk);
        if (least == s->least[j]) continue;
        if (note(s, ~(i64)j, s->least[j]) < 0) return -1;
        s->least[j] = least;
        if (lo[j] < *from) *from = lo[j];
        if (up[j] > *to) *to = up[j];
    }
    return 1;
}

/* Floors rose in sections [from, to): raise floors to where a block can lie at all, until nothing moves.
 * 1 alive, 0 dead, -1 error. */
static int settle(Search *s, const Part *part, i64 first, i64 last, i64 from, i64 to) {
    const i64 *lo = s->c[0].at, *up = s->c[1].at;
    const int32_t *list = s->store + part->list;
    if (from < first) from = first;
    if (to > last) to = last;
    while (from < to) {
        int alive = lowest(s, part, &from, &to);
        if (alive <= 0) return alive;
        for (i64 t = from; t < to; t++) s->bottom[t] = NONE;
        for (int32_t k = 0; k < part->blocks && lo[list[k]] < to; k++) {
            int32_t j = list[k];
            i64 offset = s->least[j], begin = lo[j] > from ? lo[j] : from, end = up[j] < to ? up[j] : to;
            for (i64 t = begin; t < end; t++) s->bottom[t] = s->bottom[t] < offset ? s->bottom[t] : offset;
        }
        i64 low = NONE, high = -1;
        for (i64 t = from; t < to; t++) {
            if (s->bottom[t] == NONE) continue;
            if (s->bottom[t] + s->rest[t] > s->cap) { s->weight[t]++; return 0; }
            if (s->bottom[t] > s->floor[t]) {
                if (raise_floor(s, t, s->bottom[t]) < 0) return -1;
                if (low == NONE) low = t;
                high = t + 1;
            }
        }
        from = low, to = high;
    }
    return 1;
}

/* The section to branch on: in a valley of the floors (else something may still slip below a block placed there),
 * with the least to spare, times its options where the rule says so, over its failures where it says that. */
static void choose(Search *s, Part *part, i64 first, i64 last) {
    const int32_t *list = s->store + part->list;
    double best = 0, spare = s->rule & 2 ? (double)(s->cap / 256) : 0;
    i64 fewest = -1;
    for (i64 t = first; t < last; t++) s->many[t] = 0;
    for (int32_t k = 0; k < part->blocks; k++) {
        int32_t j = list[k];
        if (s->least[j] == s->floor[s->c[0].at[j]])
            for (i64 t = s->c[0].at[j]; t < s->c[1].at[j]; t++) s->many[t]++;
    }
    for (i64 t = first; t < last;) {
        i64 end = t + 1;
        if (!s->rest[t]) { t++; continue; }
        while (end < last && s->rest[end] && s->floor[end] == s->floor[t]) end++;
        int valley = (t == first || !s->rest[t - 1] || s->floor[t - 1] > s->floor[t])
                     && (end == last || !s->rest[end] || s->floor[end] > s->floor[t]);
        for (; valley && t < end; t++) {
            i64 slack = s->cap - s->rest[t] - s->floor[t];
            double score = (double)slack + spare;
            if (s->rule & 1) score *= (double)s->many[t];
            if (s->rule & 2) score /= (double)s->weight[t];
            if (fewest >= 0 && (score > best || (score == best && (s->rule & 4 || s->many[t] >= fewest)))) continue;
            best = score, fewest = s->many[t], part->section = t, part->slack = slack;
        }
        t = end;
    }
}

/* Bounds and options of a part: 1 alive, 0 dead, -1 error. */
static int examine(Search *s, Part *part, i64 from, i64 to) {
    const i64 *lo = s->c[0].at, *up = s->c[1].at, *rank = s->c[5].at;
    const int32_t *list = s->store + part->list;
    i64 first = lo[list[0]], last = 0;
    for (int32_t k = 0; k < part->blocks; k++) last = up[list[k]] > last ? up[list[k]] : last;
    int alive = settle(s, part, first, last, from, to);
    if (alive <= 0) return alive;
    choose(s, part, first, last);
    part->options = s->stored;
    part->count = part->turn = 0;
    if (reserve((void **)&s->store, &s->store_room, s->stored + (size_t)part->blocks + 1, 4) < 0) return -1;
    list = s->store + part->list;
    int32_t *out = s->store + part->options;
    i64 t = part->section;
    for (int32_t k = 0; k < part->blocks; k++) {
        int32_t j = list[k], at = part->count;
        if (lo[j] > t) break;
        if (up[j] <= t || s->least[j] != s->floor[t]) continue;
        for (; at > 0 && rank[j] < rank[out[at - 1]]; at--) out[at] = out[at - 1];
        out[at] = j;
        part->count++;
    }
    if (part->slack > 0) out[part->count++] = -1;
    s->stored += (size_t)part->count;
    return 1;
}

/* Nothing lies on the floor of the section: raise it to the next place something can. 1, 0 dead, -1 error. */
static int skip(Search *s, const Part *part) {
    const i64 *lo = s->c[0].at, *up = s->c[1].at, *size = s->c[2].at;
    const int32_t *list = s->store + part->list;
    i64 t = part->section, next = NONE, first = t, last = t;
    for (int32_t k = 0; k < part->blocks && lo[list[k]] <= t; k++) {
        int32_t j = list[k];
        if (up[j] <= t) continue;
        if (s->least[j] > s->floor[t]) {
            if (s->least[j] < next) next = s->least[j];
        } else {
            if (lo[j] < first) first = lo[j];
            if (up[j] > last) last = up[j];
        }
    }
    for (int32_t k = 0; k < part->blocks && lo[list[k]] < last; k++) {
        int32_t j = list[k];
        if (up[j] <= first || (lo[j] <= t && up[j] > t)) continue;
        if (s->least[j] + size[j] < next) next = s->least[j] + size[j];
    }
    if (next + s->rest[t] > s->cap) { s->weight[t]++; return 0; }
    return raise_floor(s, t, next) < 0 ? -1 : 1;
}

static int place(Search *s, const Part *part, int32_t chosen) {
    const i64 *lo = s->c[0].at, *up = s->c[1].at, *size = s->c[2].at;
    i64 offset = s->floor[part->section];
    ((i64 *)s->c[6].at)[chosen] = offset;
    s->placed[s->placed_n++] = chosen;
    for (i64 t = lo[chosen]; t < up[chosen]; t++) {
        s->rest[t] -= size[chosen];
        if (raise_floor(s, t, offset + size[chosen]) < 0) return -1;
    }
    return 1;
}

/* Parts that are left after placing `chosen`, tightest first, linked: the first of them, `next` if none, -2 dead, -3 error. */
static Py_ssize_t split(Search *s, Py_ssize_t parent, int32_t chosen) {
    const i64 *lo = s->c[0].at, *up = s->c[1].at;
    const Part *whole = &s->parts[parent];
    i64 raised = chosen < 0 ? whole->section : lo[chosen], end = chosen < 0 ? raised + 1 : up[chosen];
    size_t base = s->part_n, from = whole->list;
    int32_t blocks = whole->blocks;
    i64 reach = -1;
    if (reserve((void **)&s->store, &s->store_room, s->stored + (size_t)blocks, 4) < 0) return -3;
    for (int32_t k = 0; k < blocks; k++) {
        int32_t j = s->store[from + (size_t)k];
        if (j == chosen) continue;
        if (s->part_n == base || lo[j] >= reach) {
            if (reserve((void **)&s->parts, &s->part_room, s->part_n + 1, sizeof(Part)) < 0) return -3;
            s->parts[s->part_n++] =
                (Part){.list = s->stored, .parent = parent};
        }
        s->store[s->stored++] = j;
        s->parts[s->part_n - 1].blocks++;
        if (up[j] > reach) reach = up[j];
    }
    for (size_t k = base; k < s->part_n; k++) {
        int alive = examine(s, &s->parts[k], raised, end);
        if (alive <= 0) return alive < 0 ? -3 : -2;
    }
    Py_ssize_t head = s->parts[parent].next;
    Py_ssize_t tail = head;
    for (size_t k = base; k < s->part_n; k++) {  /* insertion into the chain by slack */
        Py_ssize_t *link = &head;
        while (*link != tail && s->parts[*link].slack <= s->parts[k].slack) link = &s->parts[*link].next;
        s->parts[k].next = *link;
        *link = (Py_ssize_t)k;
    }
    return head;
}

static void enter(Search *s, Py_ssize_t part) {
    Part *p = &s->parts[part];
    p->trail = s->trailed, p->placed = s->placed_n, p->store = s->stored, p->parts = s->part_n;
}

/* 1 found, 0 proven impossible, 2 out of nodes or time, -1 error */
static int run(Search *s, i64 limit, double deadline, i64 *nodes) {
    Py_ssize_t at = 0;
    enter(s, 0);
    for (;;) {
        Part *part = &s->parts[at];
        undo(s, part);
        if (part->turn == part->count) {
            if (part->parent < 0) return 0;
            at = part->parent;
            continue;
        }
        if (*nodes >= limit) return 2;
        if ((++*nodes & 1023) == 0) {
            struct timespec now;
            if (PyErr_CheckSignals() < 0) return -1;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
            if ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec >= deadline) return 2;
        }
        int32_t chosen = s->store[part->options + (size_t)part->turn++];
        int fits = chosen < 0 ? skip(s, part) : place(s, part, chosen);
        if (fits < 0) return -1;
        if (!fits) continue;
        Py_ssize_t next = split(s, at, chosen);
        if (next == -3) return -1;
        if (next == -2) continue;
        if (next == -1) return 1;
        at = next;
        enter(s, at);
    }
}

static int begin(Search *s, i64 count) {
    Py_ssize_t n = s->c[0].n;
    const i64 *lo = s->c[0].at;
    if (!(s->least = grab((size_t)n, 8)) || !(s->rest = grab((size_t)count, 8)) || !(s->bottom = grab((size_t)count, 8))
        || !(s->placed = grab((size_t)n, 4)) || !(s->floor = grab((size_t)count, 8)) || !(s->many = grab((size_t)count, 8)) || !(s->weight = grab((size_t)count, 8)))
        return -1;
    if (reserve((void **)&s->parts, &s->part_room, 64, sizeof(Part)) < 0) return -1;
    if (reserve((void **)&s->store, &s->store_room, 4 * (size_t)n + 64, 4) < 0) return -1;
    for (i64 t = 0; t < count; t++) s->weight[t] = 1;
    for (Py_ssize_t j = 0; j < n; j++) {
        for (i64 t = lo[j]; t < s->c[1].at[j]; t++) s->rest[t] += s->c[2].at[j];
        s->least[j] = -1;
        s->store[j] = (int32_t)j;  /* the caller hands the blocks over in order of lo */
    }
    s->stored = (size_t)n;
    s->parts[0] = (Part){.blocks = (int32_t)n, .parent = -1, .next = -1};
    s->part_n = 1;
    return examine(s, &s->parts[0], 0, count);
}

/* search(lo, up, size, align, pinned, rank, out, count, cap, chunk, rule, limit, deadline) -> (status, nodes) */
PyObject *packing_search(PyObject *self, PyObject *args) {
    PyObject *o[7], *result = NULL;
    Search s;
    long long count, cap, chunk, limit;
    double deadline;
    i64 nodes = 0;
    (void)self;
    memset(&s, 0, sizeof s);
    if (!PyArg_ParseTuple(args, "OOOOOOOLLLlLd", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &count, &cap,
                          &chunk, &s.rule, &limit, &deadline))
        return NULL;
    for (int k = 0; k < 7; k++)
        if (take(o[k], &s.c[k], k == 6) < 0) goto done;
    s.cap = cap;
    s.chunk = chunk;
    int status = begin(&s, count);
    if (status > 0) status = run(&s, limit, deadline, &nodes);
    if (status >= 0) result = Py_BuildValue("(iL)", status, (long long)nodes);
done:
    free(s.least), free(s.rest), free(s.bottom), free(s.placed), free(s.store), free(s.trail), free(s.floor), free(s.many), free(s.weight), free(s.parts);
    drop(s.c, 7);
    return result;
}
