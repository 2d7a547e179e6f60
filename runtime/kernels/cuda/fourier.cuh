// One stage of a fast Fourier transform: some of its passes, on groups of RADIX numbers in shared memory.
//
// A transform of N = BEFORE * RADIX * AFTER numbers takes the factors of N one after the other (J. W. Cooley and J. W.
// Tukey, 1965), each pass putting its results where the next expects them (T. G. Stockham's order: no bit reversal).
// The passes of one stage mix only numbers AFTER apart, so a block does them for LANES such groups of RADIX.
// The source before this file defines
//   KgComplex, T, E, Index    complex numbers, their parts, elements of the tensors, indices
//   N, BEFORE, RADIX, AFTER    the length and its parts
//   INNER, LANES, THREADS      columns side by side, each a transform of its own; groups and threads of a block
//   LOAD_LANES, STORE_LANES    whether neighbouring threads take neighbouring groups, or numbers of one group
// and behind it kg_load and kg_store, number `at` of a transform in and out, and a kernel that calls the passes.
// All transforms go forward, by e^(-2πi jk/N); an inverse one swaps the parts of its numbers on the way in and out.
// Compile without contraction to fused operations: each product is to be rounded as on the host.

// Where a transform finds its numbers: the operator's tensors, then scratch.
struct KgSignal {
    const E *signal, *weights;
    E* result;
    const KgComplex *from, *roots, *chirp, *spectrum;
    KgComplex* to;
    Index frames, size, step, count, bins;
};
__device__ KgComplex kg_load(const KgSignal& g, Index row, Index at, Index column);
__device__ void kg_store(const KgSignal& g, Index row, Index at, Index column, KgComplex v);

__device__ __forceinline__ KgComplex operator+(KgComplex a, KgComplex b) { return {a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ KgComplex operator-(KgComplex a, KgComplex b) { return {a.re - b.re, a.im - b.im}; }
__device__ __forceinline__ KgComplex operator*(KgComplex a, KgComplex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __forceinline__ KgComplex operator*(T a, KgComplex b) { return {a * b.re, a * b.im}; }
__device__ __forceinline__ KgComplex kg_swapped(KgComplex a) { return {a.im, a.re}; }
__device__ __forceinline__ KgComplex kg_over_i(KgComplex a) { return {a.im, -a.re}; }
__device__ __forceinline__ KgComplex kg_times_i(KgComplex a) { return {-a.im, a.re}; }

// Transforms of F numbers in registers. `roots` has the N roots of unity.
template <int F> __device__ __forceinline__ void kg_butterfly(KgComplex (&v)[F], const KgComplex* roots) {
    constexpr int HALF = F / 2;  // odd F: v[m] and v[F - m] meet the same root or its conjugate (R. C. Singleton, 1969)
    KgComplex sum[HALF + 1], difference[HALF + 1], root[F], total = v[0];
#pragma unroll
    for (int m = 1; m <= HALF; ++m) {
        sum[m] = v[m] + v[F - m];
        difference[m] = v[m] - v[F - m];
        total = total + sum[m];
    }
#pragma unroll
    for (int m = 1; m < F; ++m) root[m] = roots[m * (N / F)];
#pragma unroll
    for (int j = 1; j <= HALF; ++j) {
        KgComplex a = v[0] + root[j].re * sum[1], b = root[j].im * difference[1];
#pragma unroll
        for (int m = 2; m <= HALF; ++m) {
            a = a + root[j * m % F].re * sum[m];
            b = b + root[j * m % F].im * difference[m];
        }
        v[j] = a + kg_times_i(b);
        v[F - j] = a - kg_times_i(b);
    }
    v[0] = total;
}

template <> __device__ __forceinline__ void kg_butterfly<2>(KgComplex (&v)[2], const KgComplex*) {
    const KgComplex a = v[0];
    v[0] = a + v[1];
    v[1] = a - v[1];
}

__device__ __forceinline__ void kg_four(KgComplex& a, KgComplex& b, KgComplex& c, KgComplex& d) {
    const KgComplex even = a + c, odd = b + d, first = a - c, second = kg_over_i(b - d);
    a = even + odd;
    b = first + second;
    c = even - odd;
    d = first - second;
}

template <> __device__ __forceinline__ void kg_butterfly<4>(KgComplex (&v)[4], const KgComplex*) {
    kg_four(v[0], v[1], v[2], v[3]);
}

template <> __device__ __forceinline__ void kg_butterfly<8>(KgComplex (&v)[8], const KgComplex*) {
    constexpr T DIAGONAL = T(0.70710678118654752440);
    kg_four(v[0], v[2], v[4], v[6]);
    kg_four(v[1], v[3], v[5], v[7]);
    const KgComplex even[4] = {v[0], v[2], v[4], v[6]}, third = v[3], last = v[7];
    const KgComplex odd[4] = {
        v[1],
        DIAGONAL * KgComplex{third.re + third.im, third.im - third.re},
        kg_over_i(v[5]),
        DIAGONAL * KgComplex{last.im - last.re, -last.re - last.im},
    };
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        v[j] = even[j] + odd[j];
        v[j + 4] = even[j] - odd[j];
    }
}

// A gap after every 16 numbers, against bank conflicts of passes that step by powers of two.
__device__ __forceinline__ int kg_padded(int at) { return at + at / 16; }

// The block's groups: `s` counts groups by column, then place within AFTER, then within BEFORE, then row.
struct KgGroups {
    const KgSignal& g;
    KgComplex* tile;
    Index first, total;

    __device__ __forceinline__ KgComplex& at(int place, int lane) const { return tile[kg_padded(place * LANES + lane)]; }

    __device__ __forceinline__ int within(int lane) const { return (int)((first + lane) % (AFTER * INNER) / INNER); }

    __device__ __forceinline__ KgComplex load(int place, int lane) const {
        const Index s = first + lane, line = s / (AFTER * INNER);
        if (s >= total) return {T(0), T(0)};
        const Index at = (line % BEFORE * RADIX + place) * AFTER + within(lane);
        return kg_load(g, line / BEFORE, at, s % INNER);
    }

    __device__ __forceinline__ void store(int place, int lane, KgComplex v) const {
        const Index s = first + lane, line = s / (AFTER * INNER);
        if (s >= total) return;
        const Index at = (line % BEFORE + (Index)BEFORE * place) * AFTER + within(lane);
        kg_store(g, line / BEFORE, at, s % INNER, v);
    }
};

// Which butterfly a thread takes in a pass whose factor leaves `SPAN` of them a group.
template <int SPAN, bool LANES_FIRST> struct KgTurn {
    int lane, at;
    __device__ __forceinline__ explicit KgTurn(int b)
        : lane(LANES_FIRST ? b % LANES : b / SPAN), at(LANES_FIRST ? b / LANES : b % SPAN) {}
};

// A pass by factor F behind factors of product DONE in this stage. The first reads the input, the last writes results.
template <int F, int DONE, bool FIRST, bool LAST> __device__ __forceinline__ void kg_pass(const KgGroups& s) {
    constexpr int SPAN = RADIX / F, LEFT = SPAN / DONE, COUNT = SPAN * LANES, EACH = (COUNT + THREADS - 1) / THREADS;
    typedef KgTurn<SPAN, FIRST ? LOAD_LANES : LAST ? STORE_LANES : true> Turn;
    KgComplex v[EACH][F];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int b = threadIdx.x + e * THREADS;
        if (COUNT % THREADS && b >= COUNT) break;
        const Turn t(b);
        const int i = t.at % LEFT, k = t.at / LEFT;
#pragma unroll
        for (int j = 0; j < F; ++j) {
            const int place = i + LEFT * (j + F * k);
            v[e][j] = FIRST ? s.load(place, t.lane) : s.at(place, t.lane);
        }
        kg_butterfly<F>(v[e], s.g.roots);
        const Index turn = LEFT * AFTER == 1 ? 0 : (Index)BEFORE * DONE * (i * AFTER + s.within(t.lane));
        if (turn == 0) continue;  // and infinite numbers stay what they are
#pragma unroll
        for (int j = 1; j < F; ++j) v[e][j] = v[e][j] * s.g.roots[j * turn];
    }
    if (!LAST) __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int b = threadIdx.x + e * THREADS;
        if (COUNT % THREADS && b >= COUNT) break;
        const Turn t(b);
#pragma unroll
        for (int j = 0; j < F; ++j) {
            const int place = t.at + SPAN * j;
            if (LAST) s.store(place, t.lane, v[e][j]);
            else s.at(place, t.lane) = v[e][j];
        }
    }
    if (!LAST) __syncthreads();
}

// The same by a larger prime: a thread makes results j and F - j of a butterfly, from numbers that stay in memory.
template <int F, int DONE, bool FIRST, bool LAST> __device__ __forceinline__ void kg_prime_pass(const KgGroups& s) {
    constexpr int SPAN = RADIX / F, LEFT = SPAN / DONE, UNITS = SPAN * LANES, COUNT = UNITS * (F / 2 + 1);
    constexpr int EACH = (COUNT + THREADS - 1) / THREADS;
    typedef KgTurn<RADIX, LOAD_LANES> Number;
    typedef KgTurn<SPAN, LAST ? STORE_LANES : true> Turn;
    if (FIRST) {
        __syncthreads();  // the block's groups before these may still be read
        for (int b = threadIdx.x; b < RADIX * LANES; b += THREADS) {
            const Number t(b);
            s.at(t.at, t.lane) = s.load(t.at, t.lane);
        }
        __syncthreads();
    }
    KgComplex low[EACH], high[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int b = threadIdx.x + e * THREADS;
        if (COUNT % THREADS && b >= COUNT) break;
        const Turn t(b % UNITS);
        const int j = b / UNITS, i = t.at % LEFT, first = i + LEFT * F * (t.at / LEFT);
        KgComplex a = s.at(first, t.lane), c = {T(0), T(0)};
        int root = 0;
#pragma unroll 1
        for (int m = 1; m <= F / 2; ++m) {
            root += root + j >= F ? j - F : j;
            const KgComplex x = s.at(first + LEFT * m, t.lane), y = s.at(first + LEFT * (F - m), t.lane);
            const KgComplex w = s.g.roots[root * (N / F)];
            a = a + w.re * (x + y);
            c = c + w.im * (x - y);
        }
        low[e] = a + kg_times_i(c);
        high[e] = a - kg_times_i(c);
        const Index turn = LEFT * AFTER == 1 ? 0 : (Index)BEFORE * DONE * (i * AFTER + s.within(t.lane));
        if (turn == 0 || j == 0) continue;
        low[e] = low[e] * s.g.roots[j * turn];
        high[e] = high[e] * s.g.roots[(F - j) * turn];
    }
    if (!LAST) __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int b = threadIdx.x + e * THREADS;
        if (COUNT % THREADS && b >= COUNT) break;
        const Turn t(b % UNITS);
        const int j = b / UNITS;
        if (LAST) {
            s.store(t.at + SPAN * j, t.lane, low[e]);
            if (j) s.store(t.at + SPAN * (F - j), t.lane, high[e]);
        } else {
            s.at(t.at + SPAN * j, t.lane) = low[e];
            if (j) s.at(t.at + SPAN * (F - j), t.lane) = high[e];
        }
    }
    if (!LAST) __syncthreads();
}
