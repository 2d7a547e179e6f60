// z = a * x + y for vectors of any length. The threads of the whole grid step through the vector together, so a grid
// that just fills the GPU does for every n.
extern "C" __global__ void saxpy(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ z,
                                 float a, int n)
{
    const unsigned step = gridDim.x * blockDim.x;
    // Unsigned, because i + step may pass the greatest int when n is close to it.
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < static_cast<unsigned>(n); i += step) {
        z[i] = a * x[i] + y[i];
    }
}
