// Scalar operations of the device that neither LLVM nor the host has: approximations, directed rounding, small formats,
// bit fields. Compiled without contraction: the error terms below rely on every rounding happening as written.

typedef unsigned short u16;

static __device__ u64 bits_of(double x) { return __double_as_longlong(x); }
static __device__ double with_bits(u64 b) { return __longlong_as_double(b); }
static __device__ u32 bits_of(float x) { return __float_as_uint(x); }

// ---- approximate functions; errors below those that PTX allows -----------------------------------------------------
extern "C" __device__ float kg_ex2(float x) {
    // 2^x = 2^n * 2^f, |f| <= 1/2; the polynomial is the exponential's series in f*ln 2 to degree 7 (error < 1e-8).
    float n = rintf(fminf(fmaxf(x, -160.0f), 160.0f));
    float f = (fminf(fmaxf(x, -160.0f), 160.0f) - n) * 0.693147180559945f;
    float p = 1.98412698e-4f;
    p = fmaf(p, f, 1.38888889e-3f);
    p = fmaf(p, f, 8.33333333e-3f);
    p = fmaf(p, f, 4.16666667e-2f);
    p = fmaf(p, f, 1.66666667e-1f);
    p = fmaf(p, f, 0.5f);
    p = fmaf(p, f, 1.0f);
    p = fmaf(p, f, 1.0f);
    int i = (int)n, half = i >> 1;  // two steps, so that results below the normal range come out right
    float r = p * __int_as_float((half + 127) << 23) * __int_as_float((i - half + 127) << 23);
    return x != x ? x : r;
}

extern "C" __device__ float kg_lg2(float x) {
    // log2(m * 2^e) = e + log2(m), m in [sqrt(1/2), sqrt 2): 2 atanh(s) / ln 2 with s = (m-1)/(m+1), in double.
    double d = (double)x;
    u64 b = bits_of(d);
    int e = (int)(b >> 52 & 2047) - 1023;
    double m = with_bits((b & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    bool large = m > 1.4142135623730951;
    m = large ? m * 0.5 : m;
    e = large ? e + 1 : e;
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0.2622643139; // 2/(11 ln 2)
    p = p * z + 0.3205988980;
    p = p * z + 0.4121985831;
    p = p * z + 0.5770780164;
    p = p * z + 0.9617966939;
    p = p * z + 2.8853900818;
    float r = (float)(p * s + (double)e);
    r = x == 0.0f ? -__int_as_float(0x7f800000) : r;
    r = x < 0.0f || x != x ? __int_as_float(0x7fffffff) : r;
    return x == __int_as_float(0x7f800000) ? x : r;
}

static __device__ double sine_of(double x, int quarter) {
    // Reduced by multiples of pi/2, then a series each; |error| < 2e-9 for |x| < 2^20.
    double n = rint(x * 0.63661977236758134);
    double r = fma(n, -6.123233995736766e-17, fma(n, -1.5707963267948966, x)), z = r * r;
    long long q = (long long)n + quarter;
    double s = r * (1.0 + z * (-1.6666666666666667e-1 + z * (8.3333333333333333e-3 +
               z * (-1.9841269841269841e-4 + z * (2.7557319223985893e-6 + z * -2.5052108385441720e-8)))));
    double c = 1.0 + z * (-0.5 + z * (4.1666666666666667e-2 + z * (-1.3888888888888889e-3 +
               z * (2.4801587301587302e-5 + z * (-2.7557319223985888e-7 + z * 2.0876756987868099e-9)))));
    double v = q & 1 ? c : s;
    return q & 2 ? -v : v;
}
static __device__ bool is_finite(float x) { return (bits_of(x) & 0x7f800000) != 0x7f800000; }
extern "C" __device__ float kg_sin(float x) {
    return is_finite(x) ? (float)sine_of((double)x, 0) : __int_as_float(0x7fffffff);
}
extern "C" __device__ float kg_cos(float x) {
    return is_finite(x) ? (float)sine_of((double)x, 1) : __int_as_float(0x7fffffff);
}
extern "C" __device__ float kg_tanh(float x) {
    float a = fabsf(x), e = kg_ex2(-2.8853900817779268f * a);
    float r = a < 0.1f ? a - a * a * a * (0.33333333f - a * a * 0.13333333f) : (1.0f - e) / (1.0f + e);
    return x != x ? x : copysignf(r, x);
}

// ---- rounding to odd and directed rounding -------------------------------------------------------------------------
// `error` is the sign of (exact value - x): moves x one step towards zero (0), down (1) or up (2) where it must.
static __device__ float directed(float x, double error, u32 mode) {
    if (error == 0.0 || !is_finite(x)) return x;
    bool up = mode == 2 || (mode == 0 && (x < 0.0f || (x == 0.0f && error < 0.0)));
    if (up ? error < 0.0 : error > 0.0) return x;
    u32 b = bits_of(x);
    if (x == 0.0f) return mode == 0 ? x : up ? __int_as_float(1) : __int_as_float(0x80000001);
    return __int_as_float(up == (x > 0.0f) ? b + 1 : b - 1);
}
static __device__ double directed(double x, double error, u32 mode) {
    if (error == 0.0 || (bits_of(x) >> 52 & 2047) == 2047) return x;
    bool up = mode == 2 || (mode == 0 && (x < 0.0 || (x == 0.0 && error < 0.0)));
    if (up ? error < 0.0 : error > 0.0) return x;
    if (x == 0.0) return mode == 0 ? x : with_bits(up ? 1ull : 0x8000000000000001ull);
    return with_bits(up == (x > 0.0) ? bits_of(x) + 1 : bits_of(x) - 1);
}
static __device__ double sum_error(double a, double b, double s) {  // Knuth's TwoSum
    double v = s - a;
    return (a - (s - v)) + (b - v);
}
static __device__ float round_sum(double a, double b, u32 mode) {  // a + b as f32
    double s = a + b;
    float r = (float)s;
    double d = s - (double)r;
    return directed(r, d != 0.0 ? d : sum_error(a, b, s), mode);
}
extern "C" __device__ float kg_add_f32_directed(float a, float b, u32 m) { return round_sum(a, b, m); }
extern "C" __device__ float kg_sub_f32_directed(float a, float b, u32 m) { return round_sum(a, -(double)b, m); }
extern "C" __device__ float kg_mul_f32_directed(float a, float b, u32 m) { return round_sum((double)a * b, 0.0, m); }
extern "C" __device__ float kg_fma_f32_directed(float a, float b, float c, u32 m) {
    return round_sum((double)a * b, c, m);
}
extern "C" __device__ float kg_div_f32_directed(float a, float b, u32 m) {
    float q = a / b;
    double rest = fma(-(double)q, (double)b, (double)a);
    return directed(q, b < 0.0f ? -rest : rest, m);
}
extern "C" __device__ float kg_sqrt_f32_directed(float a, u32 m) {
    float r = sqrtf(a);
    return directed(r, fma(-(double)r, (double)r, (double)a), m);
}
extern "C" __device__ double kg_add_f64_directed(double a, double b, u32 m) {
    double s = a + b;
    return directed(s, sum_error(a, b, s), m);
}
extern "C" __device__ double kg_sub_f64_directed(double a, double b, u32 m) { return kg_add_f64_directed(a, -b, m); }
extern "C" __device__ double kg_mul_f64_directed(double a, double b, u32 m) {
    double p = a * b;
    return directed(p, fma(a, b, -p), m);
}
extern "C" __device__ double kg_fma_f64_directed(double a, double b, double c, u32 m) {
    double r = fma(a, b, c), p = a * b, e = fma(a, b, -p), s = p + c;
    return directed(r, (s - r) + (sum_error(p, c, s) + e), m);
}
extern "C" __device__ double kg_div_f64_directed(double a, double b, u32 m) {
    double q = a / b, rest = fma(-q, b, a);
    return directed(q, b < 0.0 ? -rest : rest, m);
}
extern "C" __device__ double kg_sqrt_f64_directed(double a, u32 m) {
    double r = sqrt(a);
    return directed(r, fma(-r, r, a), m);
}
extern "C" __device__ float kg_f64_to_f32_directed(double a, u32 m) { return round_sum(a, 0.0, m); }
extern "C" __device__ float kg_f64_to_f32_odd(double a) {
    float r = (float)a;
    if ((double)r == a || a != a || !is_finite(r)) return r;
    return bits_of(r) & 1 ? r : directed(r, a - (double)r, 0) == r ? __int_as_float(bits_of(r) | 1) :
           directed(r, a - (double)r, 0);
}
extern "C" __device__ float kg_fma_odd(float a, float b, float c) {
    double exact = (double)a * (double)b, s = exact + (double)c, e = sum_error(exact, (double)c, s);
    if (e != 0.0 && !(bits_of(s) & 1) && (bits_of(s) >> 52 & 2047) != 2047)  // to odd in double first
        s = (e > 0.0) == (s > 0.0) ? with_bits(bits_of(s) | 1) : with_bits(bits_of(s) - 1);
    return kg_f64_to_f32_odd(s);
}
extern "C" __device__ float kg_integer_to_f32_directed(u64 value, int negative, u32 m) {
    double sign = negative ? -1.0 : 1.0;
    u64 size = negative ? 0 - value : value;
    return round_sum(sign * (double)(u32)(size >> 32) * 4294967296.0, sign * (double)(u32)size, m);
}
extern "C" __device__ double kg_integer_to_f64_directed(u64 value, int negative, u32 m) {
    double sign = negative ? -1.0 : 1.0;
    u64 size = negative ? 0 - value : value;
    return kg_add_f64_directed(sign * (double)(u32)(size >> 32) * 4294967296.0, sign * (double)(u32)size, m);
}

// ---- small formats -------------------------------------------------------------------------------------------------
// A float of `e` exponent and `m` mantissa bits: |x| rounded by mode (0 zero, 1 down, 2 up, 3 nearest even); no sign.
static __device__ u32 narrow(float x, int e, int m, u32 mode) {
    bool negative = bits_of(x) >> 31;
    double a = fabs((double)x);
    int bias = (1 << (e - 1)) - 1;
    int exponent = (int)(bits_of(a) >> 52) - 1023;
    if (exponent < 1 - bias) exponent = 1 - bias;
    double unit = with_bits((u64)(exponent - m + 1023) << 52), scaled = a / unit, whole = floor(scaled);
    double rest = scaled - whole;
    bool up = mode == 3 ? rest > 0.5 || (rest == 0.5 && ((u64)whole & 1))
                        : rest > 0.0 && (mode == 2 ? !negative : mode == 1 ? negative : false);
    u64 count = (u64)whole + up;
    return (u32)(count + ((u64)(exponent + bias - 1) << m));  // a carry moves into the exponent by itself
}
extern "C" __device__ float kg_f16_to_f32(u32 h) {
    u32 e = h >> 10 & 31, m = h & 1023, sign = (h & 0x8000) << 16;
    if (e == 31) return __uint_as_float(sign | 0x7f800000 | m << 13);
    if (e) return __uint_as_float(sign | (e + 112) << 23 | m << 13);
    return __uint_as_float(sign | bits_of((float)m * 5.9604644775390625e-8f));
}
static __device__ u32 small_float(float x, int e, int m, u32 mode) {
    u32 sign = bits_of(x) >> 31 << (e + m), top = ((1u << e) - 1) << m;
    if (x != x) return (1u << (e + m)) - 1;
    if (!is_finite(x)) return sign | top;
    u32 r = narrow(x, e, m, mode);
    if (r >= top) r = mode == 3 || (mode == 2 && !sign) || (mode == 1 && sign) ? top : top - 1;
    return sign | r;
}
extern "C" __device__ u32 kg_f32_to_f16(float x) { return small_float(x, 5, 10, 3); }
extern "C" __device__ u16 kg_f32_to_f16_directed(float x, u32 m) { return small_float(x, 5, 10, m); }
extern "C" __device__ u16 kg_f32_to_bf16_directed(float x, u32 m) { return small_float(x, 8, 7, m); }
extern "C" __device__ u16 kg_f32_to_bf16(float x) {
    u32 b = bits_of(x);
    return x != x ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
extern "C" __device__ u32 kg_f32_to_tf32(float x) {  // nearest, ties away from zero
    return (bits_of(x) & 0x7f800000) == 0x7f800000 ? bits_of(x) : (bits_of(x) + 0x1000) & 0xffffe000;
}
extern "C" __device__ u16 kg_f32_to_e4m3(float x) {  // saturating; no infinity, NaN is 0x7f
    u32 sign = bits_of(x) >> 31 << 7;
    if (x != x) return 0x7f;
    u32 r = fabsf(x) >= 448.0f ? 0x7e : narrow(x, 4, 3, 3);
    return sign | (r > 0x7e ? 0x7e : r);
}
extern "C" __device__ u16 kg_f32_to_e5m2(float x) {
    u32 sign = bits_of(x) >> 31 << 7;
    if (x != x) return 0x7f;
    u32 r = fabsf(x) >= 57344.0f ? 0x7b : narrow(x, 5, 2, 3);
    return sign | (r > 0x7b ? 0x7b : r);
}
extern "C" __device__ float kg_e4m3_to_f32(u16 b) {
    u32 e = b >> 3 & 15, m = b & 7, sign = (u32)(b & 128) << 24;
    if ((b & 127) == 127) return __uint_as_float(0x7fffffff);
    if (!e) return __uint_as_float(sign | bits_of((float)m * 0.001953125f));
    return __uint_as_float(sign | (e + 120) << 23 | m << 20);
}
extern "C" __device__ float kg_e5m2_to_f32(u16 b) { return kg_f16_to_f32((u32)b << 8); }

// ---- bits ----------------------------------------------------------------------------------------------------------
extern "C" __device__ u64 kg_bfe_u64(u64 a, u32 b, u32 c) {
    u32 place = b & 255, length = c & 255;
    if (place > 63 || length == 0) return 0;
    u64 v = a >> place;
    return length > 63 ? v : v & ((1ull << length) - 1);
}
extern "C" __device__ u64 kg_bfe_s64(u64 a, u32 b, u32 c) {
    u32 place = b & 255, length = c & 255;
    if (length == 0) return 0;
    u32 top = min(place + length - 1, 63u);
    u64 v = kg_bfe_u64(a, b, c), sign = a >> top & 1;
    u32 kept = place > 63 ? 0 : min(length, 64 - place);
    return sign && kept < 64 ? v | ~0ull << kept : v;
}
extern "C" __device__ u32 kg_bfe_u32(u32 a, u32 b, u32 c) { return (u32)kg_bfe_u64(a, b, c); }
extern "C" __device__ u32 kg_bfe_s32(u32 a, u32 b, u32 c) {
    u32 place = b & 255, length = c & 255;
    if (length == 0) return 0;
    u32 top = min(place + length - 1, 31u), kept = place > 31 ? 0 : min(length, 32 - place);
    u32 v = kept == 0 ? 0 : kept == 32 ? a : a >> place & ((1u << kept) - 1);
    return a >> top & 1 && kept < 32 ? v | ~0u << kept : v;
}
extern "C" __device__ u64 kg_bfi_b64(u64 a, u64 b, u32 c, u32 d) {
    u32 place = c & 255, length = d & 255;
    if (place > 63 || length == 0) return b;
    u64 mask = length > 63 ? ~0ull : (1ull << length) - 1;
    return (b & ~(mask << place)) | (a & mask) << place;
}
extern "C" __device__ u32 kg_bfi_b32(u32 a, u32 b, u32 c, u32 d) {
    u32 place = c & 255, length = d & 255;
    if (place > 31 || length == 0) return b;
    u32 mask = length > 31 ? ~0u : (1u << length) - 1;
    return (b & ~(mask << place)) | (a & mask) << place;
}
static __device__ u32 highest(u64 a) { return a ? 63 - __clzll(a) : ~0u; }
extern "C" __device__ u32 kg_bfind_u32(u32 a) { return highest(a); }
extern "C" __device__ u32 kg_bfind_u64(u64 a) { return highest(a); }
extern "C" __device__ u32 kg_bfind_s32(int a) { return highest((u32)(a < 0 ? ~a : a)); }
extern "C" __device__ u32 kg_bfind_s64(i64 a) { return highest(a < 0 ? ~a : a); }
extern "C" __device__ u32 kg_bfind_shiftamt_u32(u32 a) { return a ? 31 - highest(a) : ~0u; }
extern "C" __device__ u32 kg_bfind_shiftamt_s32(int a) { return kg_bfind_shiftamt_u32(a < 0 ? ~a : a); }
static __device__ u32 picked(u64 both, u32 selector) {
    u32 byte = (u32)(both >> (selector & 7) * 8) & 255;
    return selector & 8 ? (byte & 128 ? 255 : 0) : byte;
}
extern "C" __device__ u32 kg_prmt_b32(u32 a, u32 b, u32 c) {
    u64 both = a | (u64)b << 32;
    return picked(both, c & 15) | picked(both, c >> 4 & 15) << 8 | picked(both, c >> 8 & 15) << 16 |
           picked(both, c >> 12 & 15) << 24;
}
#define KG_PRMT(mode, body)                                                                   \
    extern "C" __device__ u32 kg_prmt_b32_##mode(u32 a, u32 b, u32 c) {                       \
        u64 both = a | (u64)b << 32;                                                          \
        u32 n = c & 3, r = 0;                                                                 \
        for (u32 i = 0; i < 4; i++) r |= ((u32)(both >> (body) * 8) & 255) << 8 * i;          \
        return r;                                                                             \
    }
KG_PRMT(f4e, n + i)
KG_PRMT(b4e, (n - i) & 7)
KG_PRMT(rc8, n)
KG_PRMT(ecl, max(n, i))
KG_PRMT(ecr, min(n, i))
KG_PRMT(rc16, (n & 1) * 2 + (i & 1))
static __device__ int byte_of(u32 a, u32 i, bool is_signed) {
    u32 b = a >> 8 * i & 255;
    return is_signed && b > 127 ? (int)b - 256 : (int)b;
}
static __device__ int short_of(u32 a, u32 i, bool is_signed) {
    u32 b = a >> 16 * i & 65535;
    return is_signed && b > 32767 ? (int)b - 65536 : (int)b;
}
static __device__ u32 dot4(u32 a, u32 b, u32 c, bool x, bool y) {
    for (u32 i = 0; i < 4; i++) c += byte_of(a, i, x) * byte_of(b, i, y);
    return c;
}
static __device__ u32 dot2(u32 a, u32 b, u32 c, u32 first, bool x, bool y) {
    return c + short_of(a, 0, x) * byte_of(b, first, y) + short_of(a, 1, x) * byte_of(b, first + 1, y);
}
#define KG_DOTS(x, y, p, q)                                                                                     \
    extern "C" __device__ u32 kg_dp4a_##x##_##y(u32 a, u32 b, u32 c) { return dot4(a, b, c, p, q); }            \
    extern "C" __device__ u32 kg_dp2a_lo_##x##_##y(u32 a, u32 b, u32 c) { return dot2(a, b, c, 0, p, q); }      \
    extern "C" __device__ u32 kg_dp2a_hi_##x##_##y(u32 a, u32 b, u32 c) { return dot2(a, b, c, 2, p, q); }
KG_DOTS(u32, u32, false, false)
KG_DOTS(s32, s32, true, true)
KG_DOTS(s32, u32, true, false)
KG_DOTS(u32, s32, false, true)
extern "C" __device__ u32 kg_bmsk_clamp_b32(u32 a, u32 b) {
    return a > 31 || b == 0 ? 0 : (b > 31 ? ~0u : (1u << b) - 1) << a;
}
extern "C" __device__ u32 kg_bmsk_wrap_b32(u32 a, u32 b) { return kg_bmsk_clamp_b32(a & 31, b & 31); }
extern "C" __device__ u32 kg_szext_clamp_s32(u32 a, u32 b) {
    return b > 31 ? a : b == 0 ? 0 : (u32)((int)(a << (32 - b)) >> (32 - b));
}
extern "C" __device__ u32 kg_szext_clamp_u32(u32 a, u32 b) { return b > 31 ? a : a & ((1u << b) - 1); }
extern "C" __device__ u32 kg_fns_b32(u32 mask, u32 base, int offset) {
    int at = (int)(base & 31), left = offset;
    if (left == 0) return mask >> at & 1 ? at : ~0u;
    for (int step = left > 0 ? 1 : -1; at >= 0 && at < 32; at += step)
        if (mask >> at & 1 && (left -= step) == 0) return at;
    return ~0u;
}
