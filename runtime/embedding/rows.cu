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
// eight rows, whose numbers it reads together, and each warp one of them. What leaves a slot is read before what enters
// it is written, by the same thread; no row that leaves is one that comes. ids may be null, words then 0.
extern "C" __global__ void kg_rows_exchange(unit* cache, unit* table, const long long* counts, const long long* missing,
                                            const long long* used, const long long* evicted, const unsigned int* found,
                                            unsigned int* ids, int units, int rows, int updated, int words) {
    __shared__ long long count[5], comes[8], place[8], leaves[8];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, first = blockIdx.x * 256 + t, threads = gridDim.x * 256;
    const unsigned int word = first < words ? found[first] : 0;  // on its way while the rows are looked at
    if (t < 5) count[t] = counts[t];
    __syncthreads();
    const long long missed = count[0], hit = count[1], fresh = count[2], outside = count[4];
    for (long long base = blockIdx.x * 8LL; base < missed; base += gridDim.x * 8LL) {
        const long long row = base + t % 8;
        if (t < 24 && row < missed) {
            if (t < 8) comes[t] = missing[row];
            else if (t < 16) place[t - 8] = used[hit + row];
            else leaves[t - 16] = updated && row >= fresh ? evicted[row - fresh] : -1;
        }
        __syncthreads();
        if (base + warp < missed) {
            unit* slot = cache + place[warp] * units;
            const unit* from = table + comes[warp] * units;
            unit* home = leaves[warp] < 0 ? 0 : table + leaves[warp] * units;
            for (int i = lane; i < units; i += 32) {
                const unit value = from[i];
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
