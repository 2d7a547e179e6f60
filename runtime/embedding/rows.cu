// Moves rows between an embedding cache and a block of rows side by side. UNIT: the widest type that divides a row.
// Row i of the block belongs to slot slots[i] of the cache; *count rows are moved, so that a launch never changes.
typedef UNIT unit;

extern "C" __global__ void kg_rows_in(unit* cache, const unit* block, const int* slots, const int* count, int units) {
    const long long all = (long long)*count * units;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < all; i += gridDim.x * 256LL) {
        const long long row = i / units;
        cache[(long long)slots[row] * units + (i - row * units)] = block[i];
    }
}

extern "C" __global__ void kg_rows_out(const unit* cache, unit* block, const int* slots, const int* count, int units) {
    const long long all = (long long)*count * units;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < all; i += gridDim.x * 256LL) {
        const long long row = i / units;
        block[i] = cache[(long long)slots[row] * units + (i - row * units)];
    }
}

// All that a lookup asks for, over the bus and with no host in between: table, lookup (counts to found, as index.Block
// has them) and ids' new values lie in host memory, which is read once. It runs beside the steps of a run, whose blocks
// may just fill the GPU: so there are few blocks of many warps, each with a row on its way while it stores the one
// before. The rows' numbers come with the counts, old ones where there are fewer; their slots and former rows come with
// the first rows. What leaves a slot is read before what enters it is written, by the same thread; no row that leaves
// is one that comes. ids may be null, words then 0; most is how many numbers a lookup has room for.
#define THREADS 1024

extern "C" __global__ void __launch_bounds__(THREADS, 2) kg_rows_exchange(
    unit* cache, unit* table, const long long* counts, const long long* missing, const long long* used,
    const long long* evicted, const unsigned int* found, unsigned int* ids, int units, int rows, int updated, int words,
    int most) {
    __shared__ long long comes[THREADS], place[THREADS], leaves[THREADS];
    __shared__ int count[5];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, first = blockIdx.x * THREADS + t;
    const int threads = gridDim.x * THREADS, stride = gridDim.x * 32;
    const unsigned int word = first < words ? found[first] : 0;
    if (t < 5) count[t] = (int)counts[t];
    int mine = blockIdx.x * 32 + warp * stride + lane;  // number `warp` of this block's groups of 32 rows
    if (mine < most) comes[t] = missing[mine];
    __syncthreads();
    const int missed = count[0], hit = count[1], fresh = count[2], outside = count[4];
    for (int base = blockIdx.x * 32; base < missed; base += threads, mine += threads) {
        if (base >= threads) {
            if (mine < missed) comes[t] = missing[mine];
            __syncthreads();
        }
        unit next = {};  // of the warp's row in the first group
        if (base + warp < missed && lane < units) next = table[comes[warp] * units + lane];
        long long slot = -1, home = -1;
        if (mine < missed) {
            slot = used[hit + mine];
            if (updated && mine >= fresh) home = evicted[mine - fresh];
        }
        place[t] = slot;
        leaves[t] = home;
        __syncthreads();
        for (int i = warp, row = base + warp; i < THREADS && row < missed; i += 32, row += stride) {
            unit value = next;
            const unit* from = table + comes[i] * units;
            if (i + 32 < THREADS && row + stride < missed && lane < units) next = table[comes[i + 32] * units + lane];
            unit* to = cache + place[i] * units;
            unit* back = leaves[i] < 0 ? 0 : table + leaves[i] * units;
            for (int k = lane; k < units; k += 32) {
                if (k > lane) value = from[k];
                if (back) back[k] = to[k];
                to[k] = value;
            }
        }
        __syncthreads();
    }
    if (first < words) ids[first] = word;
    for (int i = first + threads; i < words; i += threads) ids[i] = found[i];
    // Ids outside the table find the row after the last slot; an update may have written to it.
    const unit zero = {};
    for (int i = first; updated && outside && i < units; i += threads) cache[(long long)rows * units + i] = zero;
}
