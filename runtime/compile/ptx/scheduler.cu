// Runs blocks on a CPU thread: warps in turn, barriers, deadlocks, blocks that wait for each other.

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
    if (L->quick) quick_barrier(L, B);
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

// Rounds in which only spinning threads ran (a thread counts 1, a round 64) until a block counts as stuck: under a second.
enum { SPIN_LIMIT = 1 << 27 };

// Runs the block until it ends, or until all its live threads spin for long. True if it has ended.
static __noinline__ __device__ bool run_block(Launch* L, Block* B) {
    u32 *order = words(B->order), rounds = 0, live = B->live;
    while (!L->stop) {
        int together = common_state(L, B);
        if (together >= 0 && part_ways(L, B, run_together(L, B, together))) return true;
        bool moved = false;
        make_order(L, B, order, L->warps);
        ONCE for (u32 n = 0; n < L->warps; n++) moved |= run_warp(L, B, order[n]);
        if (B->live == 0) return true;
        if (B->live != live) B->idle = 0;
        live = B->live;
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
        B->idle += B->idle < SPIN_LIMIT ? B->live + 64 : 0;
        if (++rounds % 64 == 0) return false;
    }
    return true;
}

// Takes the next blocks of the launch. False if there are none.
static __device__ bool take_blocks(Launch* L, Block* first) {
    u64 number = atomicAdd((unsigned long long*)&L->next_block, (unsigned long long)L->chunk);
    if (number >= L->blocks) return false;
    first->taken = number, first->taken_end = min(number + L->chunk, L->blocks);
    return true;
}

static __noinline__ __device__ void place_block(Launch* L, Block* B, u64 number) {
    u64 b = (number * L->block_stride + L->block_first) % L->blocks;
    B->linear = b;
    B->cta_x = b % L->grid_x;
    B->cta_y = b / L->grid_x % L->grid_y;
    B->cta_z = b / ((u64)L->grid_x * L->grid_y);
    char here;  // functions are called from about as deep as this
    B->stack = (u64)&here + 4096;
}

static __noinline__ __device__ void run_straight(Launch* L, Block* B) {
    if (L->looped) {
        kg_region(L, B, 0, 0, L->threads);
        return;
    }
    u32* order = words(B->order);
    make_order(L, B, order, L->threads);
    ONCE for (u32 n = 0; n < L->threads && !L->stop; n++) kg_step(L, B, 0, order[n]);
}

// Counts this worker as stuck while all its blocks are. Where every worker is, nobody can end anybody's waiting.
static __noinline__ __device__ void note_stuck(Launch* L, Block* all, u32 slots, bool more, u32* counted) {
    Block* example = 0;
    u32 stuck = 1;
    ONCE for (u32 slot = 0; slot < slots; slot++) {
        if (all[slot].started ? all[slot].idle < SPIN_LIMIT : more) stuck = 0;
        if (all[slot].started) example = all + slot;
    }
    if (stuck != *counted) atomicAdd(&L->stuck, stuck - *counted);
    *counted = stuck;
    if (stuck && example && *(volatile u32*)&L->stuck == L->workers) {
        report_deadlock(L, example);
        L->stop = 1;
    }
}

// A worker: takes blocks until none is left. `slots` blocks can be in flight, for blocks that wait for each other.
extern "C" __device__ int kg_run(u64 launch, u64 blocks, u32 slots) {
    Launch* L = (Launch*)launch;
    Block* all = (Block*)blocks;
    u32 busy = 0, counted = 0;
    bool more = true;
    ONCE for (u32 slot = 0; !L->stop && (busy || more); slot = slot + 1 == slots ? 0 : slot + 1) {
        Block* B = all + slot;
        if (!B->started) {
            if (!more) continue;
            if (all->taken == all->taken_end && !take_blocks(L, all)) {
                more = false;
                continue;
            }
            place_block(L, B, all->taken++);
            if (L->quick) {
                quick_begin(L, B, busy);
            } else {
                kg_begin_checks(L, B);
            }
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
        } else {
            note_stuck(L, all, slots, more, &counted);
        }
    }
    if (!counted) atomicAdd(&L->stuck, 1);
    return 0;
}
