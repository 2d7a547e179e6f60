// Edges of a photograph in five kernels. Images are row-major; each thread makes one pixel. A pixel outside the image
// has the value of the nearest one inside ("clamped"), and every block computes its pixel's position the same way.

constexpr int TILE_WIDTH = 32;    // blur_columns and sobel must be launched with blocks of
constexpr int TILE_HEIGHT = 8;    // TILE_WIDTH x TILE_HEIGHT threads
constexpr int MAX_RADIUS = 8;     // greatest radius of the Gaussian

__device__ inline int clamped(int position, int length)
{
    return min(max(position, 0), length - 1);
}

// Luminance (ITU-R BT.601) in [0, 1] of 8-bit red, green, blue.
extern "C" __global__ void grey(const unsigned char *__restrict__ rgb, float *__restrict__ luminance, int height,
                                int width)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const int pixel = y * width + x;
    const unsigned char *colour = rgb + 3 * pixel;
    luminance[pixel] = (0.299f * colour[0] + 0.587f * colour[1] + 0.114f * colour[2]) / 255.0f;
}

// Horizontal half of a separable filter. Dynamic shared memory: blockDim.y rows of blockDim.x + 2 * radius floats.
extern "C" __global__ void blur_rows(const float *__restrict__ image, const float *__restrict__ taps,
                                     float *__restrict__ blurred, int height, int width, int radius)
{
    extern __shared__ float row_tile[];
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    const int left = blockIdx.x * blockDim.x - radius;
    const int pitch = blockDim.x + 2 * radius;
    float *row = row_tile + threadIdx.y * pitch;
    for (int i = threadIdx.x; i < pitch; i += blockDim.x) {
        row[i] = image[clamped(y, height) * width + clamped(left + i, width)];
    }
    __syncthreads();
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    for (int tap = 0; tap <= 2 * radius; ++tap) sum += taps[tap] * row[threadIdx.x + tap];
    blurred[y * width + x] = sum;
}

// Vertical half of a separable filter, with a tile of static shared memory; radius is at most MAX_RADIUS.
extern "C" __global__ void blur_columns(const float *__restrict__ image, const float *__restrict__ taps,
                                        float *__restrict__ blurred, int height, int width, int radius)
{
    __shared__ float tile[TILE_HEIGHT + 2 * MAX_RADIUS][TILE_WIDTH];
    const int x = blockIdx.x * TILE_WIDTH + threadIdx.x;
    const int y = blockIdx.y * TILE_HEIGHT + threadIdx.y;
    const int top = blockIdx.y * TILE_HEIGHT - radius;
    for (int i = threadIdx.y; i < TILE_HEIGHT + 2 * radius; i += TILE_HEIGHT) {
        tile[i][threadIdx.x] = image[clamped(top + i, height) * width + clamped(x, width)];
    }
    __syncthreads();
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    for (int tap = 0; tap <= 2 * radius; ++tap) sum += taps[tap] * tile[threadIdx.y + tap][threadIdx.x];
    blurred[y * width + x] = sum;
}

// Length of the gradient by Sobel's two 3 x 3 masks.
extern "C" __global__ void sobel(const float *__restrict__ image, float *__restrict__ magnitude, int height, int width)
{
    __shared__ float tile[TILE_HEIGHT + 2][TILE_WIDTH + 2];
    const int left = blockIdx.x * TILE_WIDTH - 1;
    const int top = blockIdx.y * TILE_HEIGHT - 1;
    for (int row = threadIdx.y; row < TILE_HEIGHT + 2; row += TILE_HEIGHT) {
        for (int column = threadIdx.x; column < TILE_WIDTH + 2; column += TILE_WIDTH) {
            tile[row][column] = image[clamped(top + row, height) * width + clamped(left + column, width)];
        }
    }
    __syncthreads();
    const int x = left + 1 + threadIdx.x;
    const int y = top + 1 + threadIdx.y;
    if (x >= width || y >= height) return;
    const float *above = &tile[threadIdx.y][threadIdx.x];
    const float *level = &tile[threadIdx.y + 1][threadIdx.x];
    const float *below = &tile[threadIdx.y + 2][threadIdx.x];
    const float across = (above[2] + 2.0f * level[2] + below[2]) - (above[0] + 2.0f * level[0] + below[0]);
    const float down = (below[0] + 2.0f * below[1] + below[2]) - (above[0] + 2.0f * above[1] + above[2]);
    magnitude[y * width + x] = sqrtf(across * across + down * down);
}

// 255 where the gradient is at least `threshold`, 0 elsewhere.
extern "C" __global__ void binarise(const float *__restrict__ magnitude, unsigned char *__restrict__ edges, int height,
                                    int width, float threshold)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const int pixel = y * width + x;
    edges[pixel] = magnitude[pixel] >= threshold ? 255 : 0;
}
