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

// The same between a block and the whole table in host memory, by row number: over the bus, with no host in between.
extern "C" __global__ void kg_rows_fetch(const unit* table, unit* block, const long long* rows, const int* count,
                                         int units) {
    const long long all = (long long)*count * units;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < all; i += gridDim.x * 256LL) {
        const long long row = i / units;
        block[i] = table[rows[row] * units + (i - row * units)];
    }
}

extern "C" __global__ void kg_rows_home(unit* table, const unit* block, const long long* rows, const int* count,
                                        int units) {
    const long long all = (long long)*count * units;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < all; i += gridDim.x * 256LL) {
        const long long row = i / units;
        table[rows[row] * units + (i - row * units)] = block[i];
    }
}
