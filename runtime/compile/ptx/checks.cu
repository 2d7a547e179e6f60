// What `--check` does at an access: bounds, alignment, read-only, races, uninitialised reads. An access that must not
// happen gets the sink's address instead, so that the process survives it.

enum { A_WRITE = 1, A_ATOMIC = 2, A_SHARED = 4, A_LOCAL = 8, A_CAS = 32, A_ALIGNMENT = 64, A_BLIND = 128 };
enum { C_BOUNDS = 1, C_RACE = 2, C_INIT = 4, C_BARRIER = 8 };

static __noinline__ __device__ Fault* new_fault(Launch* L, u32 kind, u32 site, u32 buffer) {
    Fault* all = (Fault*)L->faults;
    ONCE for (u32 n = 0; n < L->fault_count; n++)
        if (all[n].kind == kind && all[n].site == site && all[n].buffer == buffer) {
            all[n].count++;
            return 0;
        }
    if (L->fault_count == L->fault_capacity) return 0;
    Fault* f = all + L->fault_count++;
    f->kind = kind, f->site = site, f->buffer = buffer, f->count = 1;
    return f;
}

static __noinline__ __device__ void fault(Launch* L, Block* B, u32 kind, u32 t, u32 site, u64 address, u32 size, u32 buffer,
                             u32 other_site, u32 other_block, u32 other_thread) {
    Fault* f = new_fault(L, kind, site, buffer);
    if (!f) return;
    f->block = B->linear, f->thread = t, f->size = size, f->address = address;
    f->other_site = other_site, f->other_block = other_block, f->other_thread = other_thread;
}

static __noinline__ __device__ void kg_barrier_fault(Launch* L, Block* B, u32 kind, u32 t, int state, u32 other, int other_state) {
    fault(L, B, kind, t, state, 0, 0, ~0u, other_state, (u32)B->linear, other);
}

extern "C" __device__ void kg_trap(u64 launch, u64 block, u32 t, u32 site) {
    Launch* L = (Launch*)launch;
    fault(L, (Block*)block, F_trap, t, site, 0, 0, ~0u, ~0u, 0, 0);
    L->stop = 1;
}

extern "C" __device__ void kg_assert(u64 launch, u64 block, u32 t, u64 text, u64 file, u64 line, u32 site) {
    Launch* L = (Launch*)launch;
    fault(L, (Block*)block, F_assertion, t, site, text, (u32)line, ~0u, ~0u, 0, 0);
    L->stop = 1;
}

extern "C" __device__ void kg_host_print(u64 function, u64 format, u64 arguments, u64 block, u64 thread) {
    ((void (*)(u64, u64, u64, u64))function)(format, arguments, block, thread);
}

extern "C" __device__ int kg_vprintf(u64 launch, u64 block, u32 t, u64 format, u64 arguments) {
    Launch* L = (Launch*)launch;
    kg_host_print(L->print, format, arguments, ((Block*)block)->linear, t);
    return 1;
}

extern "C" __device__ void kg_begin_checks(Launch* L, Block* B) {
    if (!(L->checks & (C_RACE | C_INIT))) return;
    B->acquired = 0;
    ONCE for (u32 n = 0; n < 2 * L->threads; n++) ((u32*)B->synced)[n] = 0;
    if (L->checks & C_INIT)
        ONCE for (u64 n = 0; n < L->shared_bytes / 4; n++) ((u32*)B->shared)[n] = ~0u;
    B->epoch = 0;
}

extern "C" __device__ void kg_fence(u64 launch, u64 block, u32 t) {
    Launch* L = (Launch*)launch;
    Block* B = (Block*)block;
    if (!(L->checks & C_RACE)) return;
    L->time++;
    ((u32*)L->releases)[B->linear] = ((u32*)B->synced)[2 * t] = (u32)L->time;
}

static __device__ Buffer* buffer_of(Launch* L, Block* B, u64 address) {
    Buffer* all = (Buffer*)L->buffers;
    u32 last = B->last_buffer;
    if (last < L->buffer_count && address >= all[last].begin && address < all[last].end) return all + last;
    u32 low = 0, high = L->buffer_count;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (all[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == L->buffer_count || address < all[low].begin) return 0;
    B->last_buffer = low;
    return all + low;
}

// Whether an address is a variable of a function that is not inlined, or of one that called it.
static __device__ bool on_stack(Block* B, u64 address) {
    char here;
    return address - (u64)&here < B->stack - (u64)&here;
}

static __device__ bool in_ranges(Launch* L, u64 offset, u32 size) {
    u32* ranges = (u32*)L->shared_ranges;
    ONCE for (u32 n = 0; n < L->shared_range_count; n++)
        if (offset >= ranges[2 * n] && offset + size <= ranges[2 * n + 1]) return true;
    return false;
}

// Whether an earlier access by (block, thread) is ordered before one by thread t of B now.
static __noinline__ __device__ bool ordered(Launch* L, Block* B, u32 t, u32 block, u32 thread, u32 epoch, u32 warp_epoch, u32 time) {
    u32 released, acquired;
    if (block == (u32)B->linear + 1) {
        if (thread == t || epoch != B->epoch) return true;
        if (thread / 32 == t / 32 && L->waits && warp_epoch != (((u32*)B->warp_epochs)[t / 32] & 0xffff)) return true;
        released = ((u32*)B->synced)[2 * thread];
        acquired = ((u32*)B->synced)[2 * t + 1];
    } else {
        released = ((u32*)L->releases)[block - 1];
        acquired = B->acquired;
    }
    return released > time && acquired > time;
}

struct Access {
    u32 t, site, size, buffer, is_write, is_atomic, is_cas, is_blind;
    u64 address;
};

static __noinline__ __device__ void race(Launch* L, Block* B, const Access& a, u32 block, u32 thread, u32 site) {
    u32 kind = block == (u32)B->linear + 1 ? F_race : F_block_race;
    fault(L, B, kind, a.t, a.site, a.address, a.size, a.buffer, site & 0xffff, block - 1, thread);
}

// A thread's field in a record: the thread, the bytes of the word that it touched, and whether by an atomic. A plain
// read before a compare-and-swap is the usual way to begin its loop, so those two do not race.
static __device__ u32 who(u32 t, u32 bytes, u32 is_atomic, u32 is_cas) {
    return t | bytes << 16 | is_cas << 30 | is_atomic << 31;
}

static __noinline__ __device__ void check_race(Launch* L, Block* B, Shadow* s, const Access& a, u32 bytes, bool unchanged) {
    u32 warp_epoch = L->waits ? ((u32*)B->warp_epochs)[a.t / 32] & 0xffff : 0, me = (u32)B->linear + 1;
    u32 time = (u32)L->time, site = (a.site & 0xffff) | warp_epoch << 16, mine = who(a.t, bytes, a.is_atomic, a.is_cas);
    if (s->writer_block && (s->writer_thread >> 16 & bytes) && !(unchanged && a.is_write)) {
        bool both_atomic = (a.is_atomic && s->writer_thread >> 31) || (!a.is_write && (s->writer_thread >> 30 & 1));
        u32 thread = s->writer_thread & 0xffff;
        if (!both_atomic && !ordered(L, B, a.t, s->writer_block, thread, s->writer_epoch, s->writer_site >> 16, s->writer_time))
            race(L, B, a, s->writer_block, thread, s->writer_site);
    }
    if (!a.is_write) {
        if (a.is_atomic) return;
        bool first_is_mine = s->reader_block == me && (s->reader_thread & 0xffff) == a.t;
        if (!s->reader_block || first_is_mine || (s->reader_block == me && s->reader_epoch != B->epoch)) {
            if (first_is_mine && s->reader_epoch == B->epoch) mine |= s->reader_thread;
            s->reader_block = me, s->reader_thread = mine, s->reader_site = site, s->reader_time = time;
            s->reader_epoch = B->epoch;
            return;
        }
        bool second_is_mine = s->second_block == me && (s->second_thread & 0xffff) == a.t;
        if (!s->second_block || s->second_block != me || second_is_mine || s->second_epoch != B->epoch) {
            if (second_is_mine && s->second_epoch == B->epoch) mine |= s->second_thread;
            s->second_block = me, s->second_thread = mine, s->second_site = site, s->second_time = time;
            s->second_epoch = B->epoch;
        }
        return;
    }
    if (unchanged && s->writer_block) return;
    if (!unchanged && !a.is_cas) {
        u32 first = s->reader_thread & 0xffff, second = s->second_thread & 0xffff;
        if (s->reader_block && (s->reader_thread >> 16 & bytes) &&
            !ordered(L, B, a.t, s->reader_block, first, s->reader_epoch, s->reader_site >> 16, s->reader_time))
            race(L, B, a, s->reader_block, first, s->reader_site);
        else if (s->second_block && (s->second_thread >> 16 & bytes) &&
                 !ordered(L, B, a.t, s->second_block, second, s->second_epoch, s->second_site >> 16, s->second_time))
            race(L, B, a, s->second_block, second, s->second_site);
    }
    if (s->writer_block == me && (s->writer_thread & 0xffff) == a.t && s->writer_epoch == B->epoch)
        mine |= s->writer_thread & 0xf0000;
    s->writer_block = me, s->writer_thread = mine, s->writer_epoch = B->epoch;
    s->writer_site = site, s->writer_time = time;
    if (bytes == 15) s->reader_block = s->second_block = 0;
}

static __device__ bool same_value(u64 address, u32 size, u64 value) {
    switch (size) {
        case 1: return *(unsigned char*)address == (unsigned char)value;
        case 2: return *(unsigned short*)address == (unsigned short)value;
        case 4: return *(u32*)address == (u32)value;
        case 8: return *(u64*)address == value;
    }
    return false;
}

// Whether an earlier access of this block is ordered before one by thread t for the plainest of reasons.
static __device__ bool plainly_ordered(Block* B, u32 block, u32 thread, u32 epoch, u32 t) {
    return !block || (block == (u32)B->linear + 1 && (epoch != B->epoch || (thread & 0xffff) == t));
}

// The common cases of check_race, whole words and no atomics, without a call. True if they were enough.
static __device__ bool quick_race(Launch* L, Block* B, Shadow* s, u32 t, u32 site, bool is_write) {
    u32 me = (u32)B->linear + 1, epoch = B->epoch;
    if (!plainly_ordered(B, s->writer_block, s->writer_thread, s->writer_epoch, t)) return false;
    if (!is_write) {
        if (s->reader_block != me || s->reader_epoch != epoch) return false;
        return (s->reader_thread & 0xffff) == t || (s->second_block == me && s->second_epoch == epoch);
    }
    if (!plainly_ordered(B, s->reader_block, s->reader_thread, s->reader_epoch, t)) return false;
    if (!plainly_ordered(B, s->second_block, s->second_thread, s->second_epoch, t)) return false;
    u32 warp_epoch = L->waits ? ((u32*)B->warp_epochs)[t / 32] & 0xffff : 0;
    s->writer_block = me, s->writer_thread = t | 15 << 16, s->writer_epoch = epoch;
    s->writer_site = (site & 0xffff) | warp_epoch << 16, s->writer_time = (u32)L->time;
    s->reader_block = s->second_block = 0;
    return true;
}

struct Target {
    Shadow* shadow;
    u64 offset;
    bool shared, holds_data;
};

static __noinline__ __device__ void check_words(Launch* L, Block* B, const Target& target, const Access& a, u64 value) {
    bool unchanged = a.is_write && !a.is_atomic && same_value(a.address, a.size, value);
    u64 offset = target.offset;
    u32 stamp = target.shared ? (u32)(B->linear + 1) << 4 : 0;
    ONCE for (u64 word = offset / 4; word <= (offset + a.size - 1) / 4; word++) {
        Shadow* s = target.shadow + word;
        if (target.shared && (s->valid & ~15u) != stamp) {
            s->writer_block = s->reader_block = s->second_block = 0;
            s->valid = stamp;
        }
        u32 low = word * 4 >= offset ? 0 : offset - word * 4;
        u32 high = min(offset + a.size - word * 4, (u64)4);
        u32 bytes = (1u << high) - (1u << low);
        bool reads = !a.is_write || (a.is_atomic && !a.is_blind);
        if ((L->checks & C_INIT) && reads && !target.holds_data && (s->valid & bytes) != bytes)
            fault(L, B, F_uninitialised, a.t, a.site, a.address, a.size, a.buffer, ~0u, 0, 0);
        if (L->checks & C_RACE) check_race(L, B, s, a, bytes, unchanged);
        if (a.is_write) s->valid |= bytes;
    }
}

// check_words for one whole word, where nothing unusual is found. True if that was enough.
static __device__ bool quick_word(Launch* L, Block* B, const Target& target, u32 t, u32 site, bool is_write) {
    Shadow* s = target.shadow + target.offset / 4;
    u32 valid = s->valid;
    if (target.shared && (valid & ~15u) != (u32)(B->linear + 1) << 4) return false;
    if (!is_write && !target.holds_data && (L->checks & C_INIT) && (valid & 15) != 15) return false;
    if ((L->checks & C_RACE) && !quick_race(L, B, s, t, site, is_write)) return false;
    if (is_write) s->valid = valid | 15;
    return true;
}

static __device__ void note_atomic(Launch* L, Block* B, u32 t) {
    L->time++;
    ((u32*)B->synced)[2 * t] = ((u32*)B->synced)[2 * t + 1] = B->acquired = ((u32*)L->releases)[B->linear] = (u32)L->time;
}

extern "C" __device__ u64 kg_access(u64 launch, u64 block, u32 t, u64 address, u32 size, u32 flags, u32 site, u64 value) {
    Launch* L = (Launch*)launch;
    Block* B = (Block*)block;
    bool is_write = flags & A_WRITE, is_shared = (flags & A_SHARED) || address - B->shared < L->shared_bytes;
    Target target;
    u32 buffer;
    target.shared = is_shared, target.holds_data = false;
    if (address & (size - 1)) {
        Buffer* near = is_shared ? 0 : buffer_of(L, B, address);
        fault(L, B, F_misaligned, t, site, address, size, near ? near->index : is_shared ? ~1u : ~0u, ~0u, 0, 0);
        return B->sink;
    }
    if (flags & A_ALIGNMENT) return address;
    if (is_shared) {
        target.offset = address - B->shared, target.shadow = (Shadow*)B->shadow, buffer = ~1u;
        if (!in_ranges(L, target.offset, size)) {
            fault(L, B, F_out_of_bounds, t, site, address, size, buffer, ~0u, 0, 0);
            return B->sink;
        }
    } else if (on_stack(B, address)) {
        return address;
    } else if ((flags & A_LOCAL) || address - B->local < L->local_bytes * L->threads) {
        u64 offset = address - (B->local + t * L->local_bytes);
        if (offset < L->local_bytes && offset + size <= L->local_bytes) return address;
        fault(L, B, F_out_of_bounds, t, site, address, size, ~2u, ~0u, 0, 0);
        return B->sink;
    } else {
        Buffer* found = buffer_of(L, B, address);
        if (!found && in_heap(L, address)) {
            if (!check_heap(L, B, t, address, size, site)) return B->sink;
            if ((flags & A_ATOMIC) && (L->checks & (C_RACE | C_INIT))) note_atomic(L, B, t);
            return address;
        }
        if (!found || address + size > found->end) {
            fault(L, B, F_out_of_bounds, t, site, address, size, ~0u, ~0u, 0, 0);
            return B->sink;
        }
        buffer = found->index, target.offset = address - found->begin, target.shadow = (Shadow*)found->shadow;
        target.holds_data = !(found->flags & 2);
        if (is_write && (found->flags & 1)) {
            fault(L, B, F_read_only_write, t, site, address, size, buffer, ~0u, 0, 0);
            return B->sink;
        }
    }
    if (!(L->checks & (C_RACE | C_INIT))) return address;
    if (flags & A_ATOMIC) note_atomic(L, B, t);
    if (!target.shadow) return address;
    if (size == 4 && !(flags & A_ATOMIC) && quick_word(L, B, target, t, site, is_write)) return address;
    Access a = {t, site, size, buffer, is_write, (flags & A_ATOMIC) ? 1u : 0u, (flags & A_CAS) ? 1u : 0u,
                (flags & A_BLIND) ? 1u : 0u, address};
    check_words(L, B, target, a, value);
    return address;
}

extern "C" __device__ void kg_copy_async(u64 launch, u64 block, u32 t, u64 to, u64 from, u32 size, u32 given, u32 site) {
    Launch* L = (Launch*)launch;
    if (L->checks && given) {
        u32 whole = given & (given - 1) ? 1 : given;
        ONCE for (u32 n = 0; n < given; n += whole) kg_access(launch, block, t, from + n, whole, 0, site, 0);
    }
    ONCE for (u32 n = 0; n < size; n++) ((char*)to)[n] = n < given ? ((char*)from)[n] : 0;
}
