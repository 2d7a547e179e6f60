// Groups of L threads (1, 32 or 256) that work on one row each, and the reductions within a group.
// Every thread of a group gets the same result, in the same order at every run: no atomics.

template <class V> __device__ __forceinline__ V kg_xor(V v, int offset) {
    return (V)__shfl_xor_sync(0xffffffffu, v, offset);
}

template <class V> struct KgAt {
    V value;
    long long index;
};

template <class V> __device__ __forceinline__ KgAt<V> kg_xor(KgAt<V> v, int offset) {
    return {kg_xor(v.value, offset), kg_xor(v.index, offset)};
}

// f over the values of all threads of the group; f is associative and commutative.
template <int L, class V, class F> __device__ __forceinline__ V kg_all(V a, F f) {
#pragma unroll
    for (int offset = (L < 32 ? L : 32) / 2; offset > 0; offset /= 2) a = f(a, kg_xor(a, offset));
    if (L > 32) {
        __shared__ V part[8];
        __syncthreads();
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = a;
        __syncthreads();
        a = part[0];
#pragma unroll
        for (int warp = 1; warp < 8; ++warp) a = f(a, part[warp]);
    }
    return a;
}

template <class T> __device__ __forceinline__ T kg_larger(T a, T b) { return (a != a || a > b) ? a : b; }

// Whether b goes before a: a NaN before all, then the larger (or smaller) value, then the lower (or higher) index.
template <bool MIN, bool LAST, class V> __device__ __forceinline__ bool kg_before(KgAt<V> b, KgAt<V> a) {
    if (b.index < 0 || a.index < 0) return a.index < 0 && b.index >= 0;
    const bool bn = b.value != b.value, an = a.value != a.value;
    if (bn != an) return bn;
    if (!bn && b.value != a.value) return MIN ? b.value < a.value : b.value > a.value;
    return LAST ? b.index > a.index : b.index < a.index;
}

template <int L, bool MIN, bool LAST, class V> __device__ __forceinline__ KgAt<V> kg_first(KgAt<V> a) {
    return kg_all<L>(a, [](KgAt<V> x, KgAt<V> y) { return kg_before<MIN, LAST>(y, x) ? y : x; });
}
