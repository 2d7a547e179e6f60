// Tiled matrix products: D[m][n] = store(sum over k of A(m, k) * B(k, n)).
//
// A Problem has:
//   Problem::S      the type that operands have in shared memory, Problem::T the accumulator
//   m, n, k         the sizes
//   load_a(m, k)    one element as S, inside the matrix; load_b(k, n) likewise; store(m, n, sum)
//   A_ALONG_K, B_ALONG_K   whether neighbours along k are neighbours in memory: decides who loads what
// Elements outside the matrices count as zero.

template <int BM, int BN, int BK, int TM, int TN, class Problem>
__device__ __forceinline__ void kg_gemm_threads(const Problem& g, long long m0, long long n0) {
    typedef typename Problem::S S;
    typedef typename Problem::T T;
    constexpr int THREADS = (BM / TM) * (BN / TN);
    constexpr int PAD = sizeof(S) < 4 ? 2 : 1;  // against bank conflicts
    __shared__ S a[BK][BM + PAD];
    __shared__ S b[BK][BN + PAD];
    const int t = threadIdx.x, tm = t / (BN / TN), tn = t % (BN / TN);
    T sum[TM][TN] = {};
    for (long long k0 = 0; k0 < g.k; k0 += BK) {
#pragma unroll
        for (int i = t; i < BM * BK; i += THREADS) {
            const int kk = Problem::A_ALONG_K ? i % BK : i / BM, mm = Problem::A_ALONG_K ? i / BK : i % BM;
            const bool in = m0 + mm < g.m && k0 + kk < g.k;
            a[kk][mm] = in ? g.load_a(m0 + mm, k0 + kk) : S(0);
        }
#pragma unroll
        for (int i = t; i < BN * BK; i += THREADS) {
            const int kk = Problem::B_ALONG_K ? i % BK : i / BN, nn = Problem::B_ALONG_K ? i / BK : i % BN;
            const bool in = n0 + nn < g.n && k0 + kk < g.k;
            b[kk][nn] = in ? g.load_b(k0 + kk, n0 + nn) : S(0);
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            T x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) x[i] = (T)a[kk][tm + i * (BM / TM)];
#pragma unroll
            for (int j = 0; j < TN; ++j) y[j] = (T)b[kk][tn + j * (BN / TN)];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const long long m = m0 + tm + i * (BM / TM), n = n0 + tn + j * (BN / TN);
            if (m < g.m && n < g.n) g.store(m, n, sum[i][j]);
        }
}

#ifdef KG_TENSOR_CORES  // "f16" or "bf16"
__device__ __forceinline__ unsigned kg_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void kg_load_rows(unsigned (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(kg_shared(p)) : "memory");
}

__device__ __forceinline__ void kg_load_columns(unsigned (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(kg_shared(p)) : "memory");
}

// c += a (16×16) · b (16×8); fragments as the PTX ISA lays them out for mma.m16n8k16.
__device__ __forceinline__ void kg_mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." KG_TENSOR_CORES "." KG_TENSOR_CORES ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same with tensor cores, for halves with float accumulators: WM×WN warps share a BM×BN tile. The next slice is read
// into registers while this one is multiplied. Shared rows are padded by 8 elements against bank conflicts.
template <int BM, int BN, int BK, int WM, int WN, class Problem>
__device__ __forceinline__ void kg_gemm_warps(const Problem& g, long long m0, long long n0) {
    typedef typename Problem::S S;
    constexpr int THREADS = WM * WN * 32, FM = BM / WM / 16, FN = BN / WN / 8, LA = BK + 8, LB = BN + 8;
    constexpr int PA = BM * BK / THREADS, PB = BN * BK / THREADS;
    __shared__ __align__(16) S a[BM * LA];
    __shared__ __align__(16) S b[BK * LB];
    const int t = threadIdx.x, lane = t % 32, wm = t / 32 / WN * (BM / WM), wn = t / 32 % WN * (BN / WN);
    float sum[FM][FN][4] = {};
    S next_a[PA], next_b[PB];
    auto fetch = [&](long long k0) {
#pragma unroll
        for (int p = 0; p < PA; ++p) {
            const int i = t + p * THREADS;
            const int kk = Problem::A_ALONG_K ? i % BK : i / BM, mm = Problem::A_ALONG_K ? i / BK : i % BM;
            next_a[p] = m0 + mm < g.m && k0 + kk < g.k ? g.load_a(m0 + mm, k0 + kk) : S(0.0f);
        }
#pragma unroll
        for (int p = 0; p < PB; ++p) {
            const int i = t + p * THREADS;
            const int kk = Problem::B_ALONG_K ? i % BK : i / BN, nn = Problem::B_ALONG_K ? i / BK : i % BN;
            next_b[p] = n0 + nn < g.n && k0 + kk < g.k ? g.load_b(k0 + kk, n0 + nn) : S(0.0f);
        }
    };
    fetch(0);
    for (long long k0 = 0; k0 < g.k; k0 += BK) {
#pragma unroll
        for (int p = 0; p < PA; ++p) {
            const int i = t + p * THREADS;
            a[Problem::A_ALONG_K ? i / BK * LA + i % BK : i % BM * LA + i / BM] = next_a[p];
        }
#pragma unroll
        for (int p = 0; p < PB; ++p) {
            const int i = t + p * THREADS;
            b[Problem::B_ALONG_K ? i % BK * LB + i / BK : i / BN * LB + i % BN] = next_b[p];
        }
        __syncthreads();
        if (k0 + BK < g.k) fetch(k0 + BK);
#pragma unroll
        for (int kk = 0; kk < BK; kk += 16) {
            unsigned x[FM][4];
#pragma unroll
            for (int i = 0; i < FM; ++i) kg_load_rows(x[i], a + (wm + i * 16 + lane % 16) * LA + kk + lane / 16 * 8);
#pragma unroll
            for (int j = 0; j < FN; j += 2) {
                unsigned y[4];
                kg_load_columns(y, b + (kk + lane % 16) * LB + wn + j * 8 + lane / 16 * 8);
#pragma unroll
                for (int i = 0; i < FM; ++i) {
                    kg_mma(sum[i][j], x[i], y[0], y[1]);
                    kg_mma(sum[i][j + 1], x[i], y[2], y[3]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < FM; ++i)
#pragma unroll
        for (int j = 0; j < FN; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const long long m = m0 + wm + i * 16 + lane / 4 + e / 2 * 8, n = n0 + wn + j * 8 + lane % 4 * 2 + e % 2;
                if (m < g.m && n < g.n) g.store(m, n, sum[i][j][e]);
            }
}
#endif
