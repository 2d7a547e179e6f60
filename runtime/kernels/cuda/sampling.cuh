// Points between elements: taps beside a coordinate x and their weights, borders treated as GridSample says.
// V is the type of coordinates and weights.

enum { KG_ZEROS, KG_BORDER, KG_REFLECTION };

template <class V> __device__ __forceinline__ V kg_reflected(V x, V low, V high) {
    if (x >= low && x <= high) return x;
    if (high <= low) return low;
    const bool below = x < low;
    const V away = below ? low - x : x - high, turns = floor(away / (high - low));
    const V rest = away - turns * (high - low);
    return (fmod(turns, V(2)) == V(0)) == below ? low + rest : high - rest;
}

// The places of N taps (1 nearest, 2 linear, 4 cubic) around x on an axis of `size`, and their weights.
template <int N, int PADDING, class V>
__device__ __forceinline__ void kg_taps(V x, long long size, bool corners, long long* at, V* weight) {
    const V low = corners ? V(0) : V(-0.5), high = V(size) - (corners ? V(1) : V(0.5));
    if (N == 1) x = rint(x);
    // The taps of a cubic are held within the borders one by one, as PyTorch and ONNX Runtime do.
    if (PADDING == KG_BORDER && N != 4 && (x < low || x > high)) x = x < V(0) ? V(0) : x > V(size - 1) ? V(size - 1) : x;
    if (PADDING == KG_REFLECTION) x = kg_reflected(x, low, high);
    const V first = N == 1 ? trunc(x) : floor(x), part = x - first;
    if (N == 1) weight[0] = 1;
    if (N == 2) {
        weight[0] = 1 - part;
        weight[1] = part;
    }
    if (N == 4) {
        const V a = V(-0.75), t = 1 - part, p = 1 + part, r = 2 - part;
        weight[0] = ((p - 5) * p + 8) * p * a - 4 * a;
        weight[1] = ((a + 2) * part - (a + 3)) * part * part + 1;
        weight[2] = ((a + 2) * t - (a + 3)) * t * t + 1;
        weight[N - 1] = ((r - 5) * r + 8) * r * a - 4 * a;
    }
#pragma unroll
    for (int tap = 0; tap < N; ++tap) {
        V place = first + V(tap - (N == 4 ? 1 : 0));
        if (PADDING == KG_REFLECTION) place = trunc(kg_reflected(place, low, high));
        if (PADDING == KG_ZEROS && !(place >= V(0) && place < V(size))) weight[tap] = 0;
        at[tap] = place > V(0) ? place > V(size - 1) ? size - 1 : (long long)place : 0;
    }
}
