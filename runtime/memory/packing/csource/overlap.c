/* The verifier's sweep: live extents in a set ordered by offset, kept as a tree of 64-bit words. */
#include "packing.h"

enum { LEVELS = 8 };

typedef struct { uint64_t *word[LEVELS]; int levels; } Set;

static int open_set(Set *s, size_t n) {
    s->levels = 0;
    do {
        n = (n + 63) / 64;
        if (!(s->word[s->levels++] = grab(n, 8))) return -1;
    } while (n > 1 && s->levels < LEVELS);
    return 0;
}

static void insert(Set *s, i64 k) {
    for (int level = 0; level < s->levels; level++, k >>= 6) s->word[level][k >> 6] |= (uint64_t)1 << (k & 63);
}

static void erase(Set *s, i64 k) {
    for (int level = 0; level < s->levels; level++, k >>= 6)
        if (s->word[level][k >> 6] &= ~((uint64_t)1 << (k & 63))) return;
}

/* Largest member below k, or -1. */
static i64 previous(const Set *s, i64 k) {
    for (int level = 0; level < s->levels; level++, k >>= 6) {
        uint64_t low = s->word[level][k >> 6] & (((uint64_t)1 << (k & 63)) - 1);
        if (!low) continue;
        k = (k & ~(i64)63) | (63 - __builtin_clzll(low));
        while (level--) k = (k << 6) | (63 - __builtin_clzll(s->word[level][k]));
        return k;
    }
    return -1;
}

/* Least member above k, or -1. */
static i64 following(const Set *s, i64 k) {
    for (int level = 0; level < s->levels; level++, k >>= 6) {
        uint64_t high = (k & 63) == 63 ? 0 : s->word[level][k >> 6] & (~(uint64_t)0 << ((k & 63) + 1));
        if (!high) continue;
        k = (k & ~(i64)63) | __builtin_ctzll(high);
        while (level--) k = (k << 6) | __builtin_ctzll(s->word[level][k]);
        return k;
    }
    return -1;
}

/* c: lower, upper, offset, size. A pair in a and b: 1; none: 0; error: -1. */
static int sweep(const Column *c, uint64_t *key, i64 *item, i64 *place, i64 *at, Set *live, i64 *a, i64 *b) {
    Py_ssize_t n = c[0].n;
    for (Py_ssize_t k = 0; k < n; k++) {
        key[k] = (uint64_t)c[2].at[k] ^ ((uint64_t)1 << 63);
        item[k] = k;
    }
    sort_pairs(key, item, key + 2 * n, item + 2 * n, n);
    for (Py_ssize_t k = 0; k < n; k++) {
        at[k] = item[k];
        place[item[k]] = k;
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        key[k] = (uint64_t)c[1].at[k] ^ ((uint64_t)1 << 63);
        item[k] = ~(i64)k;
        key[n + k] = (uint64_t)c[0].at[k] ^ ((uint64_t)1 << 63);
        item[n + k] = k;
    }
    sort_pairs(key, item, key + 2 * n, item + 2 * n, 2 * n);
    for (Py_ssize_t e = 0; e < 2 * n; e++) {
        i64 k = item[e] < 0 ? ~item[e] : item[e];
        if (!c[3].at[k] || c[0].at[k] >= c[1].at[k]) continue;
        if (item[e] < 0) {
            erase(live, place[k]);
            continue;
        }
        i64 below = previous(live, place[k]), above = following(live, place[k]);
        *a = k;
        if (below >= 0 && c[2].at[at[below]] + c[3].at[at[below]] > c[2].at[k]) { *b = at[below]; return 1; }
        if (above >= 0 && c[2].at[k] + c[3].at[k] > c[2].at[at[above]]) { *b = at[above]; return 1; }
        insert(live, place[k]);
    }
    return 0;
}

/* overlap(lower, upper, offset, size) -> (a, b) or None */
PyObject *packing_overlap(PyObject *self, PyObject *args) {
    PyObject *o[4], *result = NULL;
    Column c[4] = {0};
    Set live = {0};
    uint64_t *key = NULL;
    i64 *item = NULL, *place = NULL, *at = NULL, a = 0, b = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &o[0], &o[1], &o[2], &o[3])) return NULL;
    for (int k = 0; k < 4; k++)
        if (take(o[k], &c[k], 0) < 0) goto done;
    size_t n = (size_t)c[0].n;
    if (!(key = grab(4 * n, 8)) || !(item = grab(4 * n, 8)) || !(place = grab(n, 8)) || !(at = grab(n, 8))) goto done;
    if (open_set(&live, n + 1) < 0) goto done;
    int hit = sweep(c, key, item, place, at, &live, &a, &b);
    if (hit > 0) result = Py_BuildValue("(LL)", (long long)a, (long long)b);
    else if (hit == 0) result = Py_NewRef(Py_None);
done:
    free(key), free(item), free(place), free(at);
    for (int level = 0; level < live.levels; level++) free(live.word[level]);
    drop(c, 4);
    return result;
}
