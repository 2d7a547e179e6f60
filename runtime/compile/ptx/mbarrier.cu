// mbarrier: phase in bits 40-63, expected arrivals in 20-39, those still missing in 0-19. All threads of a block run on one
// CPU thread, so plain loads and stores do.

extern "C" __device__ void kg_mbarrier_init(u64 address, u32 count) {
    *(u64*)address = (u64)count << 20 | count;
}

extern "C" __device__ u64 kg_mbarrier_arrive(u64 address, u32 count, u32 drop) {
    u64 state = *(u64*)address, token = state >> 40;
    u64 expected = (state >> 20 & 0xfffff) - (drop ? count : 0), missing = (state & 0xfffff) - count;
    *(u64*)address = missing == 0 ? (token + 1) << 40 | expected << 20 | expected
                                  : token << 40 | expected << 20 | missing;
    return token;
}

extern "C" __device__ u32 kg_mbarrier_test(u64 address, u64 token, u32 by_parity) {
    u64 phase = *(u64*)address >> 40;
    return by_parity ? (phase & 1) != (token & 1) : phase != token;
}
