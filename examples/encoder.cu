// What follows the first matrix product of a transformer's feed-forward block: GELU(x + bias), the exact form with erf.
// `activated` may be `product` itself: a thread writes only the element that it has read.
extern "C" __global__ void bias_gelu(const float *product, const float *__restrict__ bias, float *activated,
                                     int columns)
{
    const int column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const size_t element = static_cast<size_t>(blockIdx.x) * columns + column;
    const float x = product[element] + bias[column];
    activated[element] = 0.5f * x * (1.0f + erff(x * 0.70710678f));
}
