// The quick pass of a checked launch: it only finds out whether there may be a fault; where there may, the launch is run
// again by the exact pass (checks.cu), which names it. For each granule of memory there are two stamps: of the last write
// and of the last read. A stamp is a moment of the worker's own time, which goes on at every barrier and synchronisation of
// a warp, and above its low bits it is that; in them it has who was there. So "ordered before" is mostly one comparison.

enum { WHO = 2047, MANY_OF_WARP = 1024, BY_ATOMIC = 1057, BY_CAS = 1058, MANY = WHO, WHO_BITS = 11 };
enum { A_UNCOMPARED = 0x100 };  // in a size: the value to write is not known
enum { LAST_TICK = (1 << (32 - WHO_BITS)) - 2 };

extern "C" __device__ void kg_suspect(u64 launch) {
    Launch* L = (Launch*)launch;
    L->suspect = 1;
    *(volatile u32*)&L->stop = 1;
}

static __device__ u32 next_moment(Launch* L, Block* B) {
    Block* worker = (Block*)B->worker;
    if (worker->ticks >= LAST_TICK) {
        kg_suspect((u64)L);  // time is over: let the exact pass look
        return B->now;
    }
    return B->now = ++worker->ticks << WHO_BITS;
}

static __noinline__ __device__ void quick_barrier(Launch* L, Block* B) { B->barrier_low = B->sync_low = next_moment(L, B); }

static __noinline__ __device__ void quick_warp(Launch* L, Block* B, u32 w) { ((u32*)B->warp_lows)[w] = next_moment(L, B); }

// All warps have synchronised, each on its own.
static __noinline__ __device__ void quick_warps(Launch* L, Block* B) {
    B->sync_low = next_moment(L, B);
    if (L->warps == 1) B->barrier_low = B->sync_low;
}

// Makes stamps of this launch its oldest ones, so that time can begin anew.
static __noinline__ __device__ void age(u32* stamps, u64 count, u32 low) {
    ONCE for (u64 n = 0; n < count; n++)
        if (stamps[n] >= low) stamps[n] = low | (stamps[n] & WHO);
        else stamps[n] = 0;
}

static __noinline__ __device__ void quick_begin(Launch* L, Block* B, u32 others) {
    Block* worker = (Block*)B->worker;
    if (others) kg_suspect((u64)L);  // blocks in turns on one worker have no common time
    if (worker->ticks > LAST_TICK / 4 * 3) {
        age((u32*)B->area, 2 * B->area_bytes / 4, B->low);
        ONCE for (u64 n = 0; n < 2 * B->shared_reads / 4; n++) ((u32*)B->shadow)[n] = 0;
        worker->ticks = B->low >> WHO_BITS;
    }
    B->block_low = B->barrier_low = B->sync_low = next_moment(L, B);
    B->complete = 0;
    ONCE for (u32 w = 0; w < L->warps; w++) ((u32*)B->warp_lows)[w] = 0;
}

// Whether a stamp of this launch is of an access that nothing orders before one by thread t now.
static __device__ bool unordered(Block* B, u32 t, u32 stamp, bool shared) {
    if (stamp < (shared ? B->barrier_low : B->low)) return false;
    if (stamp < B->block_low) return true;
    if (stamp < B->barrier_low) return false;
    u32 who = stamp & WHO;
    if (who == t) return false;
    u32 synced = max(((u32*)B->warp_lows)[t / 32], B->sync_low);
    return !(stamp < synced && (who < 1024 ? who : (who - MANY_OF_WARP) * 32) / 32 == t / 32 && who < BY_ATOMIC - 1);
}

static __device__ bool quick_read(Block* B, u32 t, u32* writer, u32* reader, u32 flags, u32 floor) {
    bool shared = flags & A_SHARED;
    u32 w = *writer, r = *reader, who = w & WHO, mine = B->now | t;
    if (w < (shared ? B->block_low : B->low)) {
        if (w >= floor) return true;  // nobody wrote what holds no data at first
    } else if (unordered(B, t, w, shared)) {
        if (!(who == BY_CAS || ((flags & A_ATOMIC) && who == BY_ATOMIC))) return true;
    }
    if (flags & A_ATOMIC) return false;
    if (r < (shared ? B->barrier_low : B->low) || (r >= B->block_low && r < B->barrier_low)) {
        *reader = mine;
    } else if (r < B->block_low) {
        *reader = B->low | MANY;  // several blocks
    } else {
        u32 other = r & WHO, warp = MANY_OF_WARP + t / 32;
        if (other == t)
            *reader = mine;
        else if (other == warp || (other < 1024 && other / 32 == t / 32))
            *reader = B->now | warp;
        else
            *reader = B->now | MANY;
    }
    return false;
}

static __device__ bool quick_write(Block* B, u32 t, u32* writer, u32* reader, u32 flags, u32 floor, bool unchanged) {
    bool shared = flags & A_SHARED, atomic = flags & A_ATOMIC;
    u32 w = *writer, low = shared ? B->block_low : B->low, who = w & WHO;
    if (atomic && !(flags & A_BLIND) && w < low && w >= floor) return true;  // an atomic reads
    if (unchanged) {
        if (w < low) *writer = B->now | t;
        return false;
    }
    if (unordered(B, t, w, shared) && !(atomic && (who == BY_ATOMIC || who == BY_CAS))) return true;
    if (!(flags & A_CAS) && unordered(B, t, *reader, shared)) return true;
    *writer = B->now | (flags & A_CAS ? (u32)BY_CAS : atomic ? (u32)BY_ATOMIC : t);
    return false;
}

// What the inlined code could not settle about `count` granules from `writer` on. True where there may be a fault.
extern "C" __device__ u32 kg_quick_words(u64 launch, u64 block, u32 t, u64 writer, u64 distance, u32 count, u32 floor,
                                         u64 address, u32 size, u32 flags, u64 value) {
    Block* B = (Block*)block;
    u32 *w = (u32*)writer, *r = (u32*)(writer + distance);
    bool unchanged = (flags & A_WRITE) && !(flags & A_ATOMIC) && size && same_value(address, size, value);
    bool bad = false;
    if (!(flags & A_WRITE)) B->noted = 1;
    ONCE for (u32 n = 0; n < count; n++)
        bad |= flags & A_WRITE ? quick_write(B, t, w + n, r + n, flags, floor, unchanged) : quick_read(B, t, w + n, r + n, flags, floor);
    if (bad) kg_suspect(launch);
    return bad;
}

// An access through an address of unknown origin. True where it must not happen.
extern "C" __device__ u32 kg_quick_access(u64 launch, u64 block, u32 t, u64 address, u32 size, u32 flags, u64 value) {
    Launch* L = (Launch*)launch;
    Block* B = (Block*)block;
    u32 whole = size & ~A_UNCOMPARED, compared = size & A_UNCOMPARED ? 0 : whole, floor, shift;
    u64 stamps, distance, offset;
    if (address & (whole - 1)) return kg_suspect(launch), 1;
    if ((flags & A_SHARED) || address - B->shared < L->shared_bytes) {
        offset = address - B->shared;
        if (!in_ranges(L, offset, whole)) return kg_suspect(launch), 1;
        flags |= A_SHARED, stamps = B->shadow, distance = B->shared_reads, shift = L->shared_shift;
        floor = L->checks & C_INIT ? 0 : ~0u;
    } else if (on_stack(B, address)) {
        return 0;
    } else if ((flags & A_LOCAL) || address - B->local < L->local_bytes * L->threads) {
        offset = address - (B->local + t * L->local_bytes);
        if (offset < L->local_bytes && offset + whole <= L->local_bytes) return 0;
        return kg_suspect(launch), 1;
    } else {
        Buffer* found = buffer_of(L, B, address);
        if (!found || address + whole > found->end || ((flags & A_WRITE) && (found->flags & 1))) return kg_suspect(launch), 1;
        if (!found->shadow) {  // which only memory that nobody is known to write lacks
            if (!(L->checks & (C_RACE | C_INIT)) || !(flags & A_WRITE)) return 0;
            return kg_suspect(launch), 1;
        }
        stamps = B->area + (found->shadow - 1), distance = B->area_bytes, shift = L->shift, offset = address - found->begin;
        floor = (found->flags & 2) && (L->checks & C_INIT) ? 0 : B->low;
    }
    if (!(L->checks & (C_RACE | C_INIT))) return 0;
    u32 count = max(1u, whole >> shift);
    return kg_quick_words(launch, block, t, stamps + (offset << (2 - shift)), distance, count, floor, address, compared, flags, value);
}

extern "C" __device__ void kg_quick_copy(u64 launch, u64 block, u32 t, u64 to, u64 from, u32 size, u32 given) {
    u32 whole = given & (given - 1) ? 1 : given;
    bool bad = false;
    if (given)
        ONCE for (u32 n = 0; n < given; n += whole) bad |= kg_quick_access(launch, block, t, from + n, whole, 0, 0);
    if (bad) return;
    ONCE for (u32 n = 0; n < size; n++) ((char*)to)[n] = n < given ? ((char*)from)[n] : 0;
}

// Whether all of shared memory has been written by this block by now.
extern "C" __device__ void kg_look_complete(u64 launch, u64 block) {
    Launch* L = (Launch*)launch;
    Block* B = (Block*)block;
    u32 *ranges = (u32*)L->shared_ranges, *stamps = (u32*)B->shadow, low = B->block_low;
    ONCE for (u32 n = 0; n < L->shared_range_count; n++) {
        u32 end = (ranges[2 * n + 1] + (1u << L->shared_shift) - 1) >> L->shared_shift;
        ONCE for (u32 at = ranges[2 * n] >> L->shared_shift; at < end; at++)
            if (stamps[at] < low) return;
    }
    B->complete = 1;
}

// Whether one of `count` stamps is `low` or younger. Its iterations are independent, so that it runs in vector registers.
extern "C" __device__ u32 kg_any_since(u64 stamps, u32 count, u32 low) {
    const u32* all = (const u32*)stamps;
    u32 found = 0;
    ONCE for (u64 n = 0; n < count; n++) found |= all[n] >= low;
    return found;
}

struct Merge {
    u64 areas, lows, distance;
    u32 workers, found;
};

// Whether workers touched the same granules, `count` from `from` on, in a way that nothing may order.
extern "C" __device__ int kg_merge(u64 request, u64 from, u32 count) {
    Merge* m = (Merge*)request;
    const u64* areas = (const u64*)m->areas;
    const u32* lows = (const u32*)m->lows;
    ONCE for (u32 start = 0; start < count && !m->found; start += 1024) {
        u32 some = min(count - start, 1024u), touched = 0;
        ONCE for (u32 n = 0; n < m->workers; n++) {
            u64 first = areas[n] + 4 * (from + start);
            touched += kg_any_since(first, some, lows[n]) || kg_any_since(first + m->distance, some, lows[n]);
        }
        if (touched < 2) continue;
        ONCE for (u64 at = from + start; at < from + start + some; at++) {
            u64 plain = 0, atomic = 0, reads = 0;
            ONCE for (u32 n = 0; n < m->workers; n++) {
                u32 w = ((const u32*)areas[n])[at], r = ((const u32*)(areas[n] + m->distance))[at];
                if (w >= lows[n]) *((w & WHO) == BY_ATOMIC || (w & WHO) == BY_CAS ? &atomic : &plain) |= 1ull << (n & 63);
                if (r >= lows[n]) reads |= 1ull << (n & 63);
            }
            u64 all = plain | atomic | reads;
            if ((plain || (atomic && reads)) && (all & (all - 1))) m->found = 1;
        }
    }
    return 0;
}
