// Runs blocks on a CPU thread: warps from suspend point to suspend point, barriers, deadlocks. Included after layout's
// records. A launch's `region` and `step` are the kernel itself: code generated from it.

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
    words(B->warp_epochs)[w]++;
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
    if (moved) words(B->warp_epochs)[w]++;
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
    bool whole = L->schedule == 0 && L->checks == 0 && L->looped;
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

// Lets complete barriers go. True if any thread may run on.
static __noinline__ __device__ bool release_barriers(Launch* L, Block* B) {
    u32 waiting[16], wanted[16], votes[16], place[16];
    int* pend = (int*)B->pend;
    u32* mail = words(B->mail);
    u32* arrivals = words(B->arrivals);
    u32 T = L->threads;
    ONCE for (u32 id = 0; id < 16; id++) waiting[id] = wanted[id] = votes[id] = place[id] = 0;
    bool differ = false;
    u32 other_thread = 0, first_thread = 0;
    ONCE for (u32 w = 0; w < L->warps; w++) {
        int shared_state = ((int*)B->uniform)[w];
        u32 alive = words(B->alive)[w];
        if (shared_state >= 0 && kind_of(L, shared_state) == K_barrier) {
            waiting[0] += __popc(alive);
            u32 line = words(L->lines)[shared_state];
            if (place[0] && place[0] != line && !differ) differ = true, other_thread = w * 32;
            if (!place[0]) place[0] = line, first_thread = w * 32 + __ffs(alive) - 1;
            continue;
        }
        ONCE for (u32 lane = 0; lane < 32; lane++) {
            u32 t = w * 32 + lane;
            if (!(alive >> lane & 1) || (kind_of(L, pend[t]) & 255) != K_barrier) continue;
            bool dynamic = kind_of(L, pend[t]) & 256;
            u32 id = dynamic ? mail[t] & 15 : 0;
            waiting[id]++;
            if (dynamic && mail[T + t]) wanted[id] = mail[T + t];
            if (dynamic) votes[id] += mail[2 * T + t] != 0;
            u32 line = words(L->lines)[pend[t]];
            if (id == 0 && place[0] && place[0] != line && !differ) differ = true, other_thread = t;
            if (id == 0 && !place[0]) place[0] = line, first_thread = t;
        }
    }
    u32 released = 0;
    ONCE for (u32 id = 0; id < 16; id++) {
        if (!waiting[id]) continue;
        bool full = wanted[id] ? waiting[id] + arrivals[id] >= wanted[id] : waiting[id] == B->live;
        if (full) released |= 1u << id, arrivals[id] = 0;
    }
    if (!released) return false;
    if ((released & 1) && differ && (L->checks & 8))
        kg_barrier_fault(L, B, F_divergent_barrier, other_thread, pend[other_thread], first_thread, pend[first_thread]);
    B->epoch++;
    ONCE for (u32 w = 0; w < L->warps; w++) {
        int shared_state = ((int*)B->uniform)[w];
        u32 alive = words(B->alive)[w];
        if (shared_state >= 0 && kind_of(L, shared_state) == K_barrier) {
            if (released & 1) words(B->ready)[w] = alive;
            continue;
        }
        ONCE for (u32 lane = 0; lane < 32; lane++) {
            u32 t = w * 32 + lane;
            if (!(alive >> lane & 1) || (kind_of(L, pend[t]) & 255) != K_barrier) continue;
            bool dynamic = kind_of(L, pend[t]) & 256;
            u32 id = dynamic ? mail[t] & 15 : 0;
            if (!(released >> id & 1)) continue;
            words(B->ready)[w] |= 1u << lane;
            mail[24 * T + t] = votes[id];
            mail[25 * T + t] = votes[id] == waiting[id];
            mail[26 * T + t] = votes[id] != 0;
        }
    }
    return true;
}

static __noinline__ __device__ void report_deadlock(Launch* L, Block* B) {
    int* pend = (int*)B->pend;
    int first = -1;
    ONCE for (u32 t = 0; t < L->threads; t++) {
        if (pend[t] < 0) continue;
        if (first < 0) {
            first = t;
            continue;
        }
        if (pend[t] != pend[first]) {
            kg_barrier_fault(L, B, F_deadlock, first, pend[first], t, pend[t]);
            return;
        }
    }
    if (first >= 0) kg_barrier_fault(L, B, F_deadlock, first, pend[first], ~0u, 0);
}

static __noinline__ __device__ void begin_block(Launch* L, Block* B) {
    int* pend = (int*)B->pend;
    ONCE for (u32 t = 0; t < L->threads; t++) pend[t] = 0;
    ONCE for (u32 w = 0; w < L->warps; w++) {
        u32 count = min(32u, L->threads - w * 32);
        u32 mask = count == 32 ? ~0u : (1u << count) - 1;
        words(B->alive)[w] = words(B->ready)[w] = mask;
        ((int*)B->uniform)[w] = 0;
        words(B->warp_epochs)[w] = 0;
    }
    ONCE for (u32 id = 0; id < 16; id++) words(B->arrivals)[id] = 0;
    B->live = L->threads;
    B->epoch = B->idle = 0;
}

// Runs the block on from a released state while all its threads go the same way, all of them at once. Returns the
// state at which that ended: one that the general scheduler must release, -1 where the block ended, -2 where threads
// differ.
static __noinline__ __device__ int run_together(Launch* L, Block* B, int state) {
    u32 T = L->threads;
    ONCE while (!L->stop) {
        state = kg_region(L, B, state, 0, T);
        if (state < 0) return state;
        u32 kind = kind_of(L, state), plain = kind & 255;
        if (kind == K_barrier) {
            B->epoch++;
            continue;
        }
        if (plain < K_syncwarp || (plain != K_activemask && kg_masks_miss(T, B->mail))) return state;
        if (plain >= K_shfl_up && plain <= K_shfl_idx)
            kg_shuffle_all(plain, T, B->mail);
        else
            ONCE for (u32 w = 0; w < L->warps; w++) kg_collect(L, B, w * 32, words(B->alive)[w], kind);
    }
    return -1;
}

// The state that all threads share, if the block has kept together and its kind of launch allows to go on so; else -1.
static __noinline__ __device__ int common_state(Launch* L, Block* B) {
    if (L->schedule || L->checks || !L->looped || B->live != L->threads) return -1;
    int state = ((int*)B->uniform)[0];
    ONCE for (u32 w = 0; w < L->warps; w++)
        if (((int*)B->uniform)[w] != state || words(B->ready)[w] != words(B->alive)[w]) return -1;
    return state;
}

// Takes over from run_together: each warp's own state. True if the block has ended.
static __noinline__ __device__ bool part_ways(Launch* L, Block* B, int state) {
    if (state == -1) {
        B->live = 0;
        return true;
    }
    ONCE for (u32 w = 0; w < L->warps; w++) {
        words(B->ready)[w] = 0;
        if (state >= 0)
            ((int*)B->uniform)[w] = state;
        else
            settle(L, B, w);
    }
    return B->live == 0;
}

// Runs the block until it ends, or until all its live threads spin for long. True if it has ended.
static __noinline__ __device__ bool run_block(Launch* L, Block* B) {
    u32* order = words(B->order);
    while (!L->stop) {
        int together = common_state(L, B);
        if (together >= 0 && part_ways(L, B, run_together(L, B, together))) return true;
        bool moved = false;
        make_order(L, B, order, L->warps);
        ONCE for (u32 n = 0; n < L->warps; n++) moved |= run_warp(L, B, order[n]);
        if (B->live == 0) return true;
        if (release_barriers(L, B)) {
            B->idle = 0;
            continue;
        }
        bool spinning = false, released = false;
        ONCE for (u32 w = 0; w < L->warps; w++) {
            released |= release_warp(L, B, w);
            spinning |= release_spinning(L, B, w);
        }
        if (released) continue;
        if (!spinning) {
            report_deadlock(L, B);
            return true;
        }
        if (++B->idle % 64 == 0) return false;
    }
    return true;
}

static __noinline__ __device__ void place_block(Launch* L, Block* B, u64 number) {
    u64 b = (number * L->block_stride + L->block_first) % L->blocks;
    B->linear = b;
    B->cta_x = b % L->grid_x;
    B->cta_y = b / L->grid_x % L->grid_y;
    B->cta_z = b / ((u64)L->grid_x * L->grid_y);
}

static __noinline__ __device__ void run_straight(Launch* L, Block* B) {
    if (L->schedule == 0 && L->checks == 0 && L->looped) {
        kg_region(L, B, 0, 0, L->threads);
        return;
    }
    u32* order = words(B->order);
    make_order(L, B, order, L->threads);
    ONCE for (u32 n = 0; n < L->threads && !L->stop; n++) kg_step(L, B, 0, order[n]);
}

// A worker: takes blocks until none is left. `slots` blocks can be in flight, for blocks that wait for each other.
extern "C" __device__ int kg_run(u64 launch, u64 blocks, u32 slots) {
    Launch* L = (Launch*)launch;
    Block* all = (Block*)blocks;
    u32 busy = 0;
    bool more = true;
    ONCE for (u32 slot = 0; !L->stop && (busy || more); slot = slot + 1 == slots ? 0 : slot + 1) {
        Block* B = all + slot;
        if (!B->started) {
            if (!more) continue;
            u64 number = atomicAdd((unsigned long long*)&L->next_block, 1ull);
            if (number >= L->blocks) {
                more = false;
                continue;
            }
            place_block(L, B, number);
            kg_begin_checks(L, B);
            if (!L->waits) {
                run_straight(L, B);
                slot = slots - 1;
                continue;
            }
            begin_block(L, B);
            B->started = 1;
            busy++;
        }
        if (run_block(L, B)) {
            B->started = 0;
            busy--;
            slot = slot == 0 ? slots - 1 : slot - 1;
        }
    }
    return 0;
}
