// Prefix of a value over a group of L threads (1, 32 or 256), in the same order at every run.

// Inclusive: f over this thread's and all earlier threads' values; `total` gets that of the whole group.
template <int L, class V, class F> __device__ __forceinline__ V kg_prefix(V a, F f, V& total) {
    const int lane = threadIdx.x % 32;
    if (L >= 32) {
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const V before = (V)__shfl_up_sync(0xffffffffu, a, offset);
            if (lane >= offset) a = f(before, a);
        }
        total = (V)__shfl_sync(0xffffffffu, a, 31);
    } else {
        total = a;
    }
    if (L > 32) {
        __shared__ V part[8];
        __syncthreads();
        if (lane == 31) part[threadIdx.x / 32] = a;
        __syncthreads();
        V before = part[0];
        total = part[0];
#pragma unroll
        for (int warp = 1; warp < 8; ++warp) {
            if (warp < threadIdx.x / 32) before = f(before, part[warp]);
            total = f(total, part[warp]);
        }
        if (threadIdx.x >= 32) a = f(before, a);
    }
    return a;
}
