// A row of attention: scores of a row of queries with all keys, their softmax, the weighted sum of the values.
//
// Before this text: types E (queries, keys, result), V (values), M (mask), T (arithmetic); ROWS a block (8, or 1 whose
// keys the warps share out), SIZE and VALUE_SIZE of a head, SHOWN (which scores are stored besides, -1 for none), PAST
// (whether a cache comes first), CAPPED(x) a score after the soft cap, ADDED what the mask adds to the score of `key`.

struct Sizes {
    long long q[3], k[3], v[3], y[3], m[4];  // steps along batch, heads, sequence (the mask's: along keys too)
    long long heads, rep, queries, keys, past, masked, ahead, left, rows;
};
constexpr int WARPS = 8, PARTS = WARPS / ROWS, EACH = (SIZE + 31) / 32, OUT = (VALUE_SIZE + 31) / 32;

__device__ __forceinline__ T kg_sum(T x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

__device__ __forceinline__ T kg_top(T x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const T other = __shfl_xor_sync(0xffffffffu, x, offset);
        x = (x != x || x > other) ? x : other;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(256) kg_attention(
    const E* q, const E* k, const V* v, const M* mask, const E* past_k, const V* past_v, const long long* lengths, E* y,
    E* shown, const Sizes s, T scale) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % PARTS;
    __shared__ T tops[WARPS], totals[WARPS], sums[PARTS > 1 ? WARPS : 1][OUT * 32];
    const long long keys = s.keys, past = s.past, k_step = s.k[2], v_step = s.v[2], mask_step = s.m[3];
    const long long masked = s.masked, ahead = s.ahead, left = s.left;
    for (long long first = blockIdx.x * (long long)ROWS; first < s.rows; first += gridDim.x * (long long)ROWS) {
        const long long row = first + warp / PARTS;
        if (PARTS == 1 && row >= s.rows) continue;  // no barrier below
        const long long at = row % s.queries, head = row / s.queries % s.heads, batch = row / s.queries / s.heads;
        const long long shared = head / s.rep, length = lengths ? lengths[batch] : keys;
        const long long here = at + (lengths ? length - s.queries : past);  // where the query stands among the keys
        const E* own = q + batch * s.q[0] + head * s.q[1] + at * s.q[2];
        const long long mask_at = batch * s.m[0] + head * s.m[1] + at * s.m[2];
        const long long cache = (batch * (s.heads / s.rep) + shared) * past;
        const E* new_k = k + batch * s.k[0] + shared * s.k[1];
        const V* new_v = v + batch * s.v[0] + shared * s.v[1];
        auto key_at = [=](long long key) {
            if (PAST && key < past) return past_k + (cache + key) * SIZE;
            return new_k + (key - past) * k_step;
        };
        auto value_at = [=](long long key) {
            if (PAST && key < past) return past_v + (cache + key) * VALUE_SIZE;
            return new_v + (key - past) * v_step;
        };
        T query[EACH], sum[OUT] = {}, top = -INF, total = T(0);
#pragma unroll
        for (int e = 0; e < EACH; ++e)
            query[e] = lane + 32 * e < SIZE ? (T)own[lane + 32 * e] * scale : T(0);
        // The score of key `start + lane`, raw and with all that is added; -INF where the key is masked.
        auto scores = [&](long long start, T& raw, T& full) {
            raw = T(0);
            const long long stop = keys - start < 32 ? keys - start : 32;
            for (long long i = 0; i < stop; ++i) {
                const E* line = key_at(start + i);
                T product = T(0);
#pragma unroll
                for (int e = 0; e < EACH; ++e)
                    if (lane + 32 * e < SIZE) product += query[e] * (T)line[lane + 32 * e];
                product = kg_sum(product);
                if (lane == i) raw = product;
            }
            const long long key = start + lane;
            const bool refused = key >= keys || key >= length || (ahead >= 0 && key > here + ahead) ||
                                 (left >= 0 && key < here - left) || (mask && key >= masked);
            T added = -INF;
            if (!refused) added = ADDED;
            full = added == -INF ? -INF : CAPPED(raw) + added;
        };
        auto show = [&](long long key, T x) {
            if (key < keys) shown[row * keys + key] = kg_to<E>(x);
        };
        for (long long start = part * 32LL; start < keys; start += PARTS * 32LL) {
            T raw, full;
            scores(start, raw, full);
            if (SHOWN == 0) show(start + lane, raw);
            if (SHOWN == 1) show(start + lane, CAPPED(raw));
            if (SHOWN == 2) show(start + lane, full);
            const T higher = kg_top(full), next = (top != top || top > higher) ? top : higher;
            if (next == -INF) continue;
            const T keep = exp(top - next), weight = full == -INF ? T(0) : exp(full - next);
            top = next;
            total = total * keep + kg_sum(weight);
#pragma unroll
            for (int e = 0; e < OUT; ++e) sum[e] *= keep;
            const long long stop = keys - start < 32 ? keys - start : 32;
            for (long long i = 0; i < stop; ++i) {
                const T w = __shfl_sync(0xffffffffu, weight, (int)i);
                if (w == T(0)) continue;
                const V* line = value_at(start + i);
#pragma unroll
                for (int e = 0; e < OUT; ++e)
                    if (lane + 32 * e < VALUE_SIZE) sum[e] += w * (T)line[lane + 32 * e];
            }
        }
        if (PARTS > 1) {  // merge the parts of the row; every warp gets the whole maximum and total
            __syncthreads();
            if (lane == 0) { tops[warp] = top; totals[warp] = total; }
            for (int e = 0; e < OUT; ++e) sums[PARTS > 1 ? warp : 0][lane + 32 * e] = sum[e];
            __syncthreads();
            T most = -INF, all = T(0);
            for (int w = 0; w < WARPS; ++w) most = (most != most || most > tops[w]) ? most : tops[w];
            for (int e = 0; e < OUT; ++e) sum[e] = T(0);
            for (int w = 0; w < WARPS; ++w) {
                const T factor = tops[w] == -INF ? T(0) : exp(tops[w] - most);
                all += totals[w] * factor;
                for (int e = 0; e < OUT; ++e) sum[e] += sums[PARTS > 1 ? w : 0][lane + 32 * e] * factor;
            }
            top = most;
            total = all;
        }
        const T divisor = total == T(0) ? T(1) : total;
        if (part == 0) {
            E* out = y + batch * s.y[0] + head * s.y[1] + at * s.y[2];
#pragma unroll
            for (int e = 0; e < OUT; ++e)
                if (lane + 32 * e < VALUE_SIZE) out[lane + 32 * e] = kg_to<E>(sum[e] / divisor);
        }
        if (SHOWN == 3)
            for (long long start = part * 32LL; start < keys; start += PARTS * 32LL) {
                T raw, full;
                scores(start, raw, full);
                show(start + lane, full == -INF ? T(0) : exp(full - top) / divisor);
            }
    }
}
