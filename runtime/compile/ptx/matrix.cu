// ldmatrix and mma.sync: fragments of 8x8 tiles spread over a warp's 32 lanes, as PTX lays them out (PTX ISA,
// "Matrix Fragments for mma.m16n8k16" and the like). Results accumulate in f32, one product after the other.

static __device__ u32* word_of(u32* mail, u32 T, u32 word, u32 lane) {
    return mail + (word >= 3 ? word + 1 : word) * T + lane;  // word 3 is the member mask
}

static __device__ float f16_value(u32 bits) {
    float value;
    asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(value) : "r"(bits));
    return value;
}

// An input element as float: `bits` has it in its low end.
static __device__ float input_value(u32 kind, u32 bits) {
    if (kind == K_mma_tf32) return __uint_as_float(bits & 0xffffe000);
    if (kind == K_mma_bf16) return __uint_as_float(bits << 16);
    return f16_value(bits & 0xffff);
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
static __noinline__ __device__ u32 a_bits(u32* mail, u32 T, u32 per, u32 row, u32 k) {
    u32 half = 4 * per, lane = row % 8 * 4 + k % half / per;
    u32 word = row / 8 + (k >= half ? 2 : 0);
    return *word_of(mail, T, word, lane) >> (k % per * (32 / per));
}

static __noinline__ __device__ u32 b_bits(u32* mail, u32 T, u32 per, u32 first, u32 k, u32 column) {
    u32 half = 4 * per, lane = column * 4 + k % half / per;
    return *word_of(mail, T, first + (k >= half ? 1 : 0), lane) >> (k % per * (32 / per));
}

static __noinline__ __device__ void multiply_integers(u32 a_words, u32 b_words, u32 T, u32* mail) {
    u32 depth = b_words * 16;
    ONCE for (u32 lane = 0; lane < 32; lane++)
        ONCE for (u32 place = 0; place < 4; place++) {
            u32 row = lane / 4 + place / 2 * 8, column = lane % 4 * 2 + place % 2;
            int total = (int)*word_of(mail, T, a_words + b_words + place, lane);
            ONCE for (u32 k = 0; k < depth; k++)
                total += (int)(signed char)a_bits(mail, T, 4, row, k) *
                         (int)(signed char)b_bits(mail, T, 4, a_words, k, column);
            mail[(24 + place) * T + lane] = total;
        }
}

static __noinline__ __device__ void multiply(u32 kind, u32 a_words, u32 b_words, u32 T, u32* mail) {
    u32 per = kind == K_mma_tf32 ? 1 : 2, depth = b_words * 4 * per, accumulator = a_words + b_words;
    bool half_sum = kind == K_mma_f16_f16;
    float a[256], b[128];  // A by rows of depth, B by columns of depth
    ONCE for (u32 k = 0; k < depth; k++) {
        ONCE for (u32 row = 0; row < 16; row++) a[row * depth + k] = input_value(kind, a_bits(mail, T, per, row, k));
        ONCE for (u32 c = 0; c < 8; c++) b[c * depth + k] = input_value(kind, b_bits(mail, T, per, a_words, k, c));
    }
    ONCE for (u32 lane = 0; lane < 32; lane++) {
        u32 result[4];
        ONCE for (u32 place = 0; place < 4; place++) {
            u32 row = lane / 4 + place / 2 * 8, column = lane % 4 * 2 + place % 2;
            u32 before = *word_of(mail, T, accumulator + (half_sum ? place / 2 : place), lane);
            float total = half_sum ? f16_value(before >> place % 2 * 16 & 0xffff) : __uint_as_float(before);
            ONCE for (u32 k = 0; k < depth; k++) total += a[row * depth + k] * b[column * depth + k];
            result[place] = half_sum ? kg_f32_to_f16(total) : __float_as_uint(total);
        }
        if (half_sum) result[0] |= result[1] << 16, result[1] = result[2] | result[3] << 16;
        ONCE for (u32 place = 0; place < (half_sum ? 2 : 4); place++) mail[(24 + place) * T + lane] = result[place];
    }
}

static __device__ int byte_value(bool is_signed, u32 bits) {
    return is_signed ? (int)(signed char)bits : (int)(bits & 255);
}

static __noinline__ __device__ void multiply_bytes(bool is_signed, u32 M, u32 N, u32 K, u32 T, u32* mail) {
    u32 a_each = M * K / 32, b_each = K * N / 32, c_each = M * N / 32, b_first = a_each / 4, c_first = b_first + b_each / 4;
    ONCE for (u32 n = 0; n < M * N; n++) {
        u32 row = n / N, column = n % N, lane = n / c_each;
        u32 total = *word_of(mail, T, c_first + n % c_each, lane);
        ONCE for (u32 k = 0; k < K; k++) {
            u32 a = row * K + k, b = k * N + column;
            total += byte_value(is_signed, *word_of(mail, T, a % a_each / 4, a / a_each) >> a % 4 * 8) *
                     byte_value(is_signed, *word_of(mail, T, b_first + b % b_each / 4, b / b_each) >> b % 4 * 8);
        }
        mail[(24 + n % c_each) * T + lane] = total;
    }
}

// wmma fragments: lane l holds elements l*n to l*n+n-1 of the matrix in row order. Flags: shape, input type, f16 C and D.
static __noinline__ __device__ void multiply_fragments(u32 flags, u32 T, u32* mail) {
    u32 shape = flags & 3, type = flags >> 2 & 7, per = type == 2 ? 1 : type > 2 ? 4 : 2;
    u32 M = shape == 1 ? 32 : shape == 2 ? 8 : 16, N = shape == 1 ? 8 : shape == 2 ? 32 : 16, K = shape == 3 ? 8 : 16;
    u32 kind = type == 0 ? K_mma_f16 : type == 1 ? K_mma_bf16 : K_mma_tf32;
    bool half_c = flags >> 5 & 1, half_d = flags >> 6 & 1;
    float a[512], b[512];
    u32 a_each = M * K / 32, b_each = K * N / 32, c_each = M * N / 32, b_first = a_each / per, c_first = b_first + b_each / per;
    if (type > 2) {
        multiply_bytes(type == 3, M, N, K, T, mail);
        return;
    }
    ONCE for (u32 n = 0; n < M * K; n++)
        a[n] = input_value(kind, *word_of(mail, T, n % a_each / per, n / a_each) >> n % per * 16);
    ONCE for (u32 n = 0; n < K * N; n++)
        b[n] = input_value(kind, *word_of(mail, T, b_first + n % b_each / per, n / b_each) >> n % per * 16);
    ONCE for (u32 lane = 0; lane < 32; lane++)
        ONCE for (u32 n = 0; n < c_each; n++) {
            u32 flat = lane * c_each + n, row = flat / N, column = flat % N;
            u32 before = *word_of(mail, T, c_first + (half_c ? n / 2 : n), lane);
            float total = half_c ? f16_value(before >> n % 2 * 16 & 0xffff) : __uint_as_float(before);
            ONCE for (u32 k = 0; k < K; k++) total += a[row * K + k] * b[k * N + column];
            u32* result = mail + (24 + (half_d ? n / 2 : n)) * T + lane;
            if (!half_d)
                *result = __float_as_uint(total);
            else
                *result = n % 2 ? *result | kg_f32_to_f16(total) << 16 : kg_f32_to_f16(total);
        }
}

extern "C" __device__ void kg_collect_matrix(u32 kind, u32 first, u32 second, u32 T, u64 words) {
    u32* mail = (u32*)words;
    if (kind == K_wmma)
        multiply_fragments(first | second << 4, T, mail);
    else if (kind == K_ldmatrix)
        load_matrices(first, second & 1, T, mail);
    else if (kind == K_mma_s8)
        multiply_integers(first, second, T, mail);
    else
        multiply(kind, first, second, T, mail);
}
