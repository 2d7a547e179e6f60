// Complex numbers of two T, and the roots of unity.

struct alignas(2 * sizeof(T)) KgComplex {
    T re, im;
};

// e^(-2πi k/n), of its angle within one octant: exact on the axes, symmetric about them.
__device__ __forceinline__ KgComplex kg_root(long long k, long long n) {
    const long long octant = 8 * k / n, rest = 8 * k - octant * n;
    const double turn = (double)(octant & 1 ? n - rest : rest) / (double)(4 * n);
    const bool across = (octant + 1) & 2;  // nearer to the imaginary axis
    const T c = (T)(across ? sinpi(turn) : cospi(turn)), s = (T)(across ? cospi(turn) : sinpi(turn));
    return {octant >= 2 && octant < 6 ? -c : c, octant < 4 ? -s : s};
}
