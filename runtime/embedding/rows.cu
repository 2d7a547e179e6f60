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
// has them) and ids' new values lie in host memory, which is read once and by as few requests as may be: a block takes
// eight rows, whose numbers it reads together, and each warp one of them. Each answer of the bus is waited for once:
// the rows' numbers come with the counts (a block of the lookup has numbers, if old ones, for each block of threads),
// and what a row's slot and its former row are comes with the row. What leaves a slot is read before what enters it is
// written, by the same thread; no row that leaves is one that comes. ids may be null, words then 0.
extern "C" __global__ void kg_rows_exchange(unit* cache, unit* table, const long long* counts, const long long* missing,
                                            const long long* used, const long long* evicted, const unsigned int* found,
                                            unsigned int* ids, int units, int rows, int updated, int words) {
    __shared__ long long count[5], comes[8], place[8], leaves[8];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, first = blockIdx.x * 256 + t, threads = gridDim.x * 256;
    const unsigned int word = first < words ? found[first] : 0;  // on its way while the rows are looked at
    const long long start = blockIdx.x * 8LL;
    if (t < 8) comes[t] = missing[start + t];
    else if (t < 13) count[t - 8] = counts[t - 8];
    __syncthreads();
    const long long missed = count[0], hit = count[1], fresh = count[2], outside = count[4];
    for (long long base = start; base < missed; base += gridDim.x * 8LL) {
        const long long row = base + t % 8;
        if (base > start) {
            if (t < 8 && row < missed) comes[t] = missing[row];
            __syncthreads();
        }
        long long number = -1;
        if (t < 8 && row < missed) number = used[hit + row];
        else if (t >= 8 && t < 16 && updated && row < missed && row >= fresh) number = evicted[row - fresh];
        const int moves = base + warp < missed;
        const unit* from = table + (moves ? comes[warp] * units : 0);
        unit value = {};
        if (moves && lane < units) value = from[lane];
        if (t < 8) place[t] = number;
        else if (t < 16) leaves[t - 8] = number;
        __syncthreads();
        if (moves) {
            unit* slot = cache + place[warp] * units;
            unit* home = leaves[warp] < 0 ? 0 : table + leaves[warp] * units;
            for (int i = lane; i < units; i += 32) {
                if (i > lane) value = from[i];
                if (home) home[i] = slot[i];
                slot[i] = value;
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
