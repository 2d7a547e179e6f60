// ldmatrix and mma.sync: fragments of 8x8 tiles spread over a warp's 32 lanes, as PTX lays them out (PTX ISA,
// "Matrix Fragments for mma.m16n8k16" and the like). Results accumulate in f32, one product after the other.

static __device__ u32* word_of(u32* mail, u32 T, u32 word, u32 lane) {
    return mail + (word >= 3 ? word + 1 : word) * T + lane;  // word 3 is the member mask
}

static __noinline__ __device__ float half_bits(u32 bits, bool is_bf16) {
    return is_bf16 ? __uint_as_float(bits << 16) : kg_f16_to_f32(bits & 0xffff);
}

static __noinline__ __device__ void load_matrices(u32 count, bool transposed, u32 T, u32* mail) {
    ONCE for (u32 lane = 0; lane < 32; lane++)
        ONCE for (u32 m = 0; m < count; m++) {
            u32 row = lane / 4, column = lane % 4 * 2, result = 0;
            ONCE for (u32 n = 0; n < 2; n++) {
                u32 r = transposed ? column + n : row, c = transposed ? row : column + n;
                u32 owner = m * 8 + r;
                u64 address = mail[owner] | (u64)mail[T + owner] << 32;
                result |= (u32)((unsigned short*)address)[c] << 16 * n;
            }
            mail[(24 + m) * T + lane] = result;
        }
}

// Element (row, k) of A and (k, column) of B; `per` elements share a 32-bit word.
static __noinline__ __device__ u32 a_bits(u32* mail, u32 T, u32 per, u32 k_count, u32 row, u32 k) {
    u32 half = 4 * per, lane = row % 8 * 4 + k % half / per;
    u32 word = row / 8 + (k >= half ? 2 : 0);
    return *word_of(mail, T, word, lane) >> (k % per * (32 / per));
}

static __noinline__ __device__ u32 b_bits(u32* mail, u32 T, u32 per, u32 first, u32 k, u32 column) {
    u32 half = 4 * per, lane = column * 4 + k % half / per;
    return *word_of(mail, T, first + (k >= half ? 1 : 0), lane) >> (k % per * (32 / per));
}

static __noinline__ __device__ float product(u32 kind, u32 a, u32 b) {
    if (kind == K_mma_tf32) return __uint_as_float(a & 0xffffe000) * __uint_as_float(b & 0xffffe000);
    bool is_bf16 = kind == K_mma_bf16;
    return half_bits(a & 0xffff, is_bf16) * half_bits(b & 0xffff, is_bf16);
}

static __noinline__ __device__ void multiply(u32 kind, u32 a_words, u32 b_words, u32 T, u32* mail) {
    u32 per = kind == K_mma_tf32 ? 1 : kind == K_mma_s8 ? 4 : 2;
    u32 depth = b_words * 4 * per, accumulator = a_words + b_words;
    bool half_sum = kind == K_mma_f16_f16;
    u32 result[4];
    ONCE for (u32 lane = 0; lane < 32; lane++) {
        ONCE for (u32 place = 0; place < 4; place++) {
            u32 row = lane / 4 + place / 2 * 8, column = lane % 4 * 2 + place % 2;
            u32 before = *word_of(mail, T, accumulator + (half_sum ? place / 2 : place), lane);
            if (kind == K_mma_s8) {
                int total = (int)before;
                ONCE for (u32 k = 0; k < depth; k++)
                    total += (int)(signed char)a_bits(mail, T, per, depth, row, k) *
                             (int)(signed char)b_bits(mail, T, per, a_words, k, column);
                result[place] = total;
                continue;
            }
            float total = half_sum ? kg_f16_to_f32(before >> place % 2 * 16 & 0xffff) : __uint_as_float(before);
            ONCE for (u32 k = 0; k < depth; k++)
                total += product(kind, a_bits(mail, T, per, depth, row, k), b_bits(mail, T, per, a_words, k, column));
            result[place] = half_sum ? kg_f32_to_f16(total) : __float_as_uint(total);
        }
        if (half_sum) result[0] |= result[1] << 16, result[1] = result[2] | result[3] << 16;
        ONCE for (u32 place = 0; place < (half_sum ? 2 : 4); place++) mail[(24 + place) * T + lane] = result[place];
    }
}

static __noinline__ __device__ void kg_collect_matrix(u32 kind, u32 first, u32 second, u32 T, u32* mail) {
    if (kind == K_ldmatrix)
        load_matrices(first, second & 1, T, mail);
    else if (kind >= K_mma_f16 && kind <= K_mma_s8 || kind == K_mma_f16_f16)
        multiply(kind, first, second, T, mail);
}
