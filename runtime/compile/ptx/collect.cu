// Warp-wide operations: reads what the lanes of a group left in their mailboxes and writes each lane's result.
// Words 0-2 are operands, word 3 the member mask, words from 24 on results; a word of all threads lies together.

static __noinline__ __device__ u32 reduce(u32 kind, u32 a, u32 b) {
    switch (kind) {
        case K_redux_add: return a + b;
        case K_redux_min: return (int)a < (int)b ? a : b;
        case K_redux_max: return (int)a > (int)b ? a : b;
        case K_redux_umin: return a < b ? a : b;
        case K_redux_umax: return a > b ? a : b;
        case K_redux_and: return a & b;
        case K_redux_or: return a | b;
    }
    return a ^ b;
}

static __noinline__ __device__ void shuffle(u32 kind, u32 T, u32* mail, u32 group) {
    ONCE for (u32 lane = 0; lane < 32; lane++) {
        if (!(group >> lane & 1)) continue;
        u32 amount = mail[T + lane] & 31, clamp = mail[2 * T + lane] & 31, segment = mail[2 * T + lane] >> 8 & 31;
        int low = lane & segment, high = low | (clamp & ~segment), from;
        bool valid;
        if (kind == K_shfl_up) {
            from = (int)lane - (int)amount;
            valid = from >= high;
        } else {
            from = kind == K_shfl_down ? lane + amount : kind == K_shfl_bfly ? lane ^ amount : low | (amount & ~segment);
            valid = from <= high;
        }
        if (!valid) from = lane;
        bool there = from >= 0 && from < 32 && (group >> from & 1);
        mail[24 * T + lane] = mail[there ? from : lane];
        mail[25 * T + lane] = valid;
    }
}

// The shuffles of all threads at once, where every lane of every warp is there. Its iterations are independent, and the
// translator tells LLVM so (emit.PARALLEL): the loop runs in vector registers.
extern "C" __device__ void kg_shuffle_all(u32 kind, u32 T, u64 words) {
    const u32 *values = (u32*)words, *amounts = values + T, *controls = amounts + T;
    u32 *results = (u32*)words + 24ull * T, *valids = results + T, *places = valids + T;
    ONCE for (u64 t = 0; t < T; t++) {
        int lane = t & 31, amount = amounts[t] & 31, control = controls[t], segment = control >> 8 & 31;
        int low = lane & segment, high = low | (control & 31 & ~segment);
        int up = lane - amount, down = lane + amount, cross = lane ^ amount, index = low | (amount & ~segment);
        int from = kind == K_shfl_up ? up : kind == K_shfl_down ? down : kind == K_shfl_bfly ? cross : index;
        int valid = kind == K_shfl_up ? from >= high : from <= high;
        u32 place = (u32)t - lane + (valid ? from : lane);
        places[t] = place < T ? place : (u32)t;
        valids[t] = valid;
    }
    ONCE for (u64 t = 0; t < T; t++) results[t] = values[places[t]];
}

// Whether every thread's member mask names its whole warp.
extern "C" __device__ u32 kg_masks_miss(u32 T, u64 words) {
    const u32* masks = (u32*)words + 3ull * T;
    u32 miss = 0;
    ONCE for (u64 t = 0; t < T; t++) {
        u32 rest = T - ((u32)t & ~31u), whole = rest >= 32 ? ~0u : (1u << (rest & 31)) - 1;
        miss |= ~masks[t] & whole;
    }
    return miss;
}

static __noinline__ __device__ void vote(u32 kind, u32 T, u32* mail, u32 group) {
    u32 ballot = 0;
    ONCE for (u32 lane = 0; lane < 32; lane++)
        if (group >> lane & 1 && mail[lane]) ballot |= 1u << lane;
    u32 result = ballot;
    if (kind == K_vote_all) result = ballot == group;
    if (kind == K_vote_any) result = ballot != 0;
    if (kind == K_vote_uni) result = ballot == group || ballot == 0;
    ONCE for (u32 lane = 0; lane < 32; lane++)
        if (group >> lane & 1) mail[24 * T + lane] = result;
}

static __noinline__ __device__ void match(u32 kind, u32 T, u32* mail, u32 group) {
    ONCE for (u32 lane = 0; lane < 32; lane++) {
        if (!(group >> lane & 1)) continue;
        u32 same = 0;
        ONCE for (u32 other = 0; other < 32; other++)
            if (group >> other & 1 && mail[other] == mail[lane] && mail[T + other] == mail[T + lane]) same |= 1u << other;
        bool all = same == group;
        mail[24 * T + lane] = kind == K_match_any || all ? same : 0;
        mail[25 * T + lane] = all;
    }
}

extern "C" __device__ void kg_collect(Launch* L, Block* B, u32 base, u32 group, u32 flagged) {
    u32 kind = flagged & 255, T = L->threads;
    u32* mail = (u32*)B->mail + base;
    if (kind == K_syncwarp) return;
    if (kind <= K_shfl_idx) {
        shuffle(kind, T, mail, group);
    } else if (kind <= K_vote_ballot) {
        vote(kind, T, mail, group);
    } else if (kind <= K_match_all) {
        match(kind, T, mail, group);
    } else if (kind <= K_redux_xor) {
        u32 total = 0;
        bool first = true;
        ONCE for (u32 lane = 0; lane < 32; lane++)
            if (group >> lane & 1) total = first ? mail[lane] : reduce(kind, total, mail[lane]), first = false;
        ONCE for (u32 lane = 0; lane < 32; lane++)
            if (group >> lane & 1) mail[24 * T + lane] = total;
    } else if (kind == K_activemask) {
        ONCE for (u32 lane = 0; lane < 32; lane++)
            if (group >> lane & 1) mail[24 * T + lane] = group;
    } else {
        ((void (*)(u32, u32, u32, u32, u64))L->matrix)(kind, flagged >> 8 & 15, flagged >> 12 & 15, T, (u64)mail);
    }
}
