// The fast way through a block: while all its threads go the same way, whole states are run at once.

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
            if (L->quick) quick_barrier(L, B);
            continue;
        }
        if (plain < K_syncwarp || (plain != K_activemask && kg_masks_miss(T, B->mail))) return state;
        if (plain >= K_shfl_up && plain <= K_shfl_idx)
            kg_shuffle_all(plain, T, B->mail);
        else
            ONCE for (u32 w = 0; w < L->warps; w++) kg_collect(L, B, w * 32, words(B->alive)[w], kind);
        if (L->quick) quick_warps(L, B);
    }
    return -1;
}

// The state that all threads share, if the block has kept together and its kind of launch allows to go on so; else -1.
static __noinline__ __device__ int common_state(Launch* L, Block* B) {
    if (!L->looped || B->live != L->threads) return -1;
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
