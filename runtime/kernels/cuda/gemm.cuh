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

#ifdef KG_TENSOR_CORES
// The same with 16×16×16 tensor-core products, for __half and __nv_bfloat16 with float accumulators: 4 warps, each a
// quarter of a BM×BN tile. Shared rows are padded by 8 elements against bank conflicts.
template <int BM, int BN, int BK, class Problem>
__device__ __forceinline__ void kg_gemm_warps(const Problem& g, long long m0, long long n0) {
    using namespace nvcuda;
    typedef typename Problem::S S;
    constexpr int FM = BM / 32, FN = BN / 32, LA = BK + 8, LB = BN + 8, LC = 20;
    __shared__ __align__(32) S a[BM * LA];
    __shared__ __align__(32) S b[BK * LB];
    __shared__ __align__(32) float results[4][16 * LC];
    const int t = threadIdx.x, wm = t / 32 / 2 * (BM / 2), wn = t / 32 % 2 * (BN / 2);
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[FM][FN];
#pragma unroll
    for (int i = 0; i < FM; ++i)
#pragma unroll
        for (int j = 0; j < FN; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
    for (long long k0 = 0; k0 < g.k; k0 += BK) {
#pragma unroll 4
        for (int i = t; i < BM * BK; i += 128) {
            const int kk = Problem::A_ALONG_K ? i % BK : i / BM, mm = Problem::A_ALONG_K ? i / BK : i % BM;
            const bool in = m0 + mm < g.m && k0 + kk < g.k;
            a[mm * LA + kk] = in ? g.load_a(m0 + mm, k0 + kk) : S(0.0f);
        }
#pragma unroll 4
        for (int i = t; i < BN * BK; i += 128) {
            const int kk = Problem::B_ALONG_K ? i % BK : i / BN, nn = Problem::B_ALONG_K ? i / BK : i % BN;
            const bool in = n0 + nn < g.n && k0 + kk < g.k;
            b[kk * LB + nn] = in ? g.load_b(k0 + kk, n0 + nn) : S(0.0f);
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < BK; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, S, wmma::row_major> x[FM];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, S, wmma::row_major> y[FN];
#pragma unroll
            for (int i = 0; i < FM; ++i) wmma::load_matrix_sync(x[i], a + (wm + i * 16) * LA + kk, LA);
#pragma unroll
            for (int j = 0; j < FN; ++j) wmma::load_matrix_sync(y[j], b + kk * LB + wn + j * 16, LB);
#pragma unroll
            for (int i = 0; i < FM; ++i)
#pragma unroll
                for (int j = 0; j < FN; ++j) wmma::mma_sync(sum[i][j], x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < FM; ++i)
#pragma unroll
        for (int j = 0; j < FN; ++j) {
            float* c = results[t / 32];
            wmma::store_matrix_sync(c, sum[i][j], LC, wmma::mem_row_major);
            __syncwarp();
            for (int e = t % 32; e < 256; e += 32) {
                const long long m = m0 + wm + i * 16 + e / 16, n = n0 + wn + j * 16 + e % 16;
                if (m < g.m && n < g.n) g.store(m, n, c[e / 16 * LC + e % 16]);
            }
            __syncwarp();
        }
}
#endif
