// One warp on a CPU thread: from suspend point to suspend point, by rows of lanes or lane by lane. A launch's `region` and
// `step` are the kernel itself: code generated from it.

static __device__ int kg_region(Launch* L, Block* B, int state, int first, int end) {
    return ((int (*)(u64, u64, int, int, int))L->region)((u64)L, (u64)B, state, first, end);
}
static __device__ int kg_step(Launch* L, Block* B, int state, int thread) {
    return ((int (*)(u64, u64, int, int))L->step)((u64)L, (u64)B, state, thread);
}

static __device__ u32* words(u64 address) { return (u32*)address; }

static __device__ u32 kind_of(Launch* L, int state) { return words(L->kinds)[state]; }

static __noinline__ __device__ u32 random_below(Block* B, u32 limit) {  // splitmix64
    u64 z = (B->random += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (u32)((z ^ (z >> 31)) % limit);
}

// `count` numbers from 0 in the launch's order of threads.
static __noinline__ __device__ void make_order(Launch* L, Block* B, u32* order, u32 count) {
    ONCE for (u32 i = 0; i < count; i++) order[i] = L->schedule == 1 ? count - 1 - i : i;
    if (L->schedule == 2)
        ONCE for (u32 i = count; i > 1; i--) {
            u32 j = random_below(B, i), kept = order[i - 1];
            order[i - 1] = order[j];
            order[j] = kept;
        }
}

// After lanes of warp w have moved: the state they share, and which of them still live.
static __noinline__ __device__ void settle(Launch* L, Block* B, u32 w) {
    u32 first = w * 32, end = min(first + 32, L->threads), alive = 0;
    int* pend = (int*)B->pend;
    int low = 0x7fffffff, high = -0x7fffffff;
    ONCE for (u32 t = first; t < end; t++) {
        int state = pend[t];
        if (state < 0) continue;
        alive |= 1u << (t - first);
        low = min(low, state);
        high = max(high, state);
    }
    B->live -= __popc(words(B->alive)[w] & ~alive);
    words(B->alive)[w] = alive;
    ((int*)B->uniform)[w] = low == high ? low : -2;
}

// Warp w has synchronised.
static __device__ void note_warp(Launch* L, Block* B, u32 w) {
    words(B->warp_epochs)[w]++;
    if (L->quick) quick_warp(L, B, w);
}

static __noinline__ __device__ void run_lanes(Launch* L, Block* B, u32 w) {
    u32 ready = words(B->ready)[w], order[32];
    int* pend = (int*)B->pend;
    make_order(L, B, order, 32);
    ONCE for (u32 i = 0; i < 32; i++)
        if (ready >> order[i] & 1) {
            u32 t = w * 32 + order[i];
            pend[t] = kg_step(L, B, pend[t], t);
        }
    words(B->ready)[w] = 0;
    settle(L, B, w);
}

// The common case of release_warp: all live lanes wait in one state for each other.
static __noinline__ __device__ bool release_uniform_warp(Launch* L, Block* B, u32 w) {
    int state = ((int*)B->uniform)[w];
    u32 alive = words(B->alive)[w], base = w * 32;
    if (state < 0 || !alive || words(B->ready)[w]) return false;
    u32 kind = kind_of(L, state);
    if ((kind & 255) < K_syncwarp) return false;
    u32* masks = words(B->mail) + 3 * L->threads + base;
    if ((kind & 255) != K_activemask)
        ONCE for (u32 lane = 0; lane < 32; lane++)
            if (alive >> lane & 1 && (alive & ~masks[lane])) return false;
    kg_collect(L, B, base, alive, kind);
    words(B->ready)[w] = alive;
    note_warp(L, B, w);
    return true;
}

// Lets warp w's warp-wide operations go whose lanes are all there. True if a lane may run on.
static __noinline__ __device__ bool release_warp(Launch* L, Block* B, u32 w) {
    if (release_uniform_warp(L, B, w)) return true;
    u32 alive = words(B->alive)[w], ready = words(B->ready)[w];
    int* pend = (int*)B->pend;
    u32 base = w * 32, handled = ready;
    bool moved = false;
    ONCE for (u32 lane = 0; lane < 32; lane++) {
        if (!(alive >> lane & 1) || (handled >> lane & 1)) continue;
        int state = pend[base + lane];
        u32 kind = kind_of(L, state);
        if ((kind & 255) < K_syncwarp) continue;
        bool by_mask = (kind & 255) != K_activemask;
        u32 mask = by_mask ? words(B->mail)[3 * L->threads + base + lane] : ~0u;
        u32 there = 0;
        ONCE for (u32 other = 0; other < 32; other++) {
            if (!(alive >> other & 1) || (handled >> other & 1)) continue;
            int others = pend[base + other];
            bool same = by_mask ? kind_of(L, others) == kind && words(B->mail)[3 * L->threads + base + other] == mask
                                : others == state;
            if (same) there |= 1u << other;
        }
        if (by_mask && (mask & alive & ~there)) continue;  // somebody is still missing
        if (!by_mask && ready) continue;                   // wait until the warp stands still
        u32 group = by_mask ? there & (mask | 1u << lane) : there;
        kg_collect(L, B, base, group, kind);
        handled |= group;
        ready |= group;
        moved = true;
    }
    words(B->ready)[w] = ready;
    if (moved) note_warp(L, B, w);
    return moved;
}

// Lets warp w's spinning lanes go on. True if there were any.
static __noinline__ __device__ bool release_spinning(Launch* L, Block* B, u32 w) {
    u32 alive = words(B->alive)[w];
    int* pend = (int*)B->pend;
    u32 found = 0;
    ONCE for (u32 lane = 0; lane < 32; lane++)
        if (alive >> lane & 1 && (kind_of(L, pend[w * 32 + lane]) & 255) == K_yield) found |= 1u << lane;
    words(B->ready)[w] |= found;
    return found != 0;
}

// Runs warp w until its lanes all wait for something outside the warp. True if any lane moved.
static __noinline__ __device__ bool run_warp(Launch* L, Block* B, u32 w) {
    bool moved = false;
    u32 first = w * 32, end = min(first + 32, L->threads);
    bool whole = L->looped && !L->quick;  // whose rows of threads are of whole blocks
    while (words(B->ready)[w] && !L->stop) {
        moved = true;
        u32 alive = words(B->alive)[w];
        int state = ((int*)B->uniform)[w];
        if (whole && state >= 0 && words(B->ready)[w] == alive && __popc(alive) == end - first) {
            int next = kg_region(L, B, state, first, end);
            words(B->ready)[w] = 0;
            if (next < 0)
                settle(L, B, w);
            else
                ((int*)B->uniform)[w] = next;
        } else {
            run_lanes(L, B, w);
        }
        int now = ((int*)B->uniform)[w];
        if (now >= 0 && (kind_of(L, now) & 255) < K_syncwarp) break;
        release_warp(L, B, w);
    }
    return moved;
}
