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
// has them) and ids' new values lie in host memory. A warp takes a row: what leaves a slot is read before what enters
// it is written, by the same thread; no row that leaves is one that comes. ids may be null, words then 0.
extern "C" __global__ void kg_rows_exchange(unit* cache, unit* table, const long long* counts, const long long* missing,
                                            const long long* used, const long long* evicted, const unsigned int* found,
                                            unsigned int* ids, int units, int rows, int updated, int words) {
    const long long missed = counts[0], fresh = counts[2], outside = counts[4];
    const long long* places = used + counts[1];
    const int first = blockIdx.x * 256 + threadIdx.x, threads = gridDim.x * 256;
    for (int i = first; i < words; i += threads) ids[i] = found[i];
    for (long long row = first / 32; row < missed; row += threads / 32) {
        unit* slot = cache + places[row] * units;
        const unit* comes = table + missing[row] * units;
        unit* home = updated && row >= fresh ? table + evicted[row - fresh] * units : 0;
        for (int i = threadIdx.x % 32; i < units; i += 32) {
            const unit value = comes[i];
            if (home) home[i] = slot[i];
            slot[i] = value;
        }
    }
    // Ids outside the table find the row after the last slot; an update may have written to it.
    const unit zero = {};
    for (int i = first; updated && outside && i < units; i += threads) cache[(long long)rows * units + i] = zero;
}
