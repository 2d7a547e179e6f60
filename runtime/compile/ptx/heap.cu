// Memory that kernels take by malloc where accesses are checked: a heap of its own, with a byte for each 16 bytes that says
// how many of them are in use. What was freed is used again only once nothing is in use, so that it stays known as freed.

enum { GRANULE = 16, GAP = 64, FREED = 255 };  // before each block a gap that nobody may touch; it ends with the size

static __noinline__ __device__ void fault(Launch* L, Block* B, u32 kind, u32 t, u32 site, u64 address, u32 size, u32 buffer,
                             u32 other_site, u32 other_block, u32 other_thread);

static __device__ bool in_heap(Launch* L, u64 address) {
    Heap* heap = (Heap*)L->heap;
    return address - heap->begin < heap->bytes;
}

static __device__ unsigned char* granule_of(Launch* L, u64 address) {
    Heap* heap = (Heap*)L->heap;
    return (unsigned char*)heap->granules + (address - heap->begin) / GRANULE;
}

extern "C" __device__ u64 kg_malloc(u64 launch, u64 size) {
    Launch* L = (Launch*)launch;
    Heap* heap = (Heap*)L->heap;
    if (!size || size > heap->bytes) return 0;
    u64 whole = GAP + (size + GRANULE - 1) / GRANULE * GRANULE, used = heap->used;
    u64 others = atomicAdd(&heap->live, 1ull);
    if (used + whole > heap->bytes && !others) atomicCAS(&heap->used, used, 0ull);
    u64 start = atomicAdd(&heap->used, whole);
    if (start + whole > heap->bytes) {
        atomicAdd(&heap->used, -whole);
        atomicAdd(&heap->live, ~0ull);
        return 0;
    }
    u64 address = heap->begin + start + GAP;
    *(u64*)(address - GRANULE) = size;
    unsigned char* held = granule_of(L, address);
    ONCE for (int n = 1; n <= GAP / GRANULE; n++) held[-n] = 0;
    ONCE for (u64 n = 0; n < size; n += GRANULE) *held++ = min(size - n, (u64)GRANULE);
    return address;
}

extern "C" __device__ void kg_free(u64 launch, u64 block, u32 t, u64 address, u32 site) {
    Launch* L = (Launch*)launch;
    if (!address) return;
    unsigned char* held = in_heap(L, address) && address % GRANULE == 0 ? granule_of(L, address) : 0;
    if (!held || !*held || *held == FREED || held[-1]) {
        fault(L, (Block*)block, F_bad_free, t, site, address, 0, ~0u, ~0u, 0, 0);
        return;
    }
    u64 size = *(u64*)(address - GRANULE);
    ONCE for (u64 n = 0; n < size; n += GRANULE) *held++ = FREED;
    atomicAdd(&((Heap*)L->heap)->live, ~0ull);
}

// Whether an aligned access to the heap is one to memory in use; any other is a fault.
static __noinline__ __device__ bool check_heap(Launch* L, Block* B, u32 t, u64 address, u32 size, u32 site) {
    u32 held = *granule_of(L, address);
    if (held != FREED && address % GRANULE + size <= held) return true;
    fault(L, B, held == FREED ? F_use_after_free : F_out_of_bounds, t, site, address, size, ~3u, ~0u, 0, 0);
    return false;
}
