// SPDX-License-Identifier: Apache-2.0. CUDA C as Apache TVM 0.27.0.post1 generated it (tvm.apache.org), int64_t spelled out. The warps
// 8 to 15 write behind lv24_shared_ptr, which has 8 floats, at the line that ends in "= red_buf0_ptr[0];".
#pragma nv_diag_suppress 177
extern "C" __global__ void __launch_bounds__(512) fused_conv2d4_add4_multiply1_add5_tir_clip_multiply2_kernel(float* __restrict__ T_multiply_intermediate_1_ptr, float* __restrict__ lv19_ptr, float* __restrict__ lv24_ptr, float* __restrict__ param_0_ptr, float* __restrict__ param_1_ptr) {
  __shared__ alignas(64) float lv24_shared_ptr[8];
  alignas(64) float conv2d_nchw_intermediate_rf_local_ptr[1];
  alignas(64) float param_0_local_ptr[1];
  alignas(64) float conv2d_nchw_intermediate_rf_local_ptr_1[1];
  alignas(64) float in_thread_conv2d_nchw_intermediate_shared_ptr[1];
  alignas(64) float red_buf0_ptr[1];
  for (int ax1 = 0; ax1 < 2; ++ax1) {
    for (long long ax3_0 = (long long)0; ax3_0 < (long long)1; ++ax3_0) {
      int cse_v1 = (((int)threadIdx.y) * 32);
      if (((((int)threadIdx.y) * 32) + ((int)threadIdx.x)) < 1) {
        int cse_v2 = (((((int)threadIdx.y) * 32) + ax1) + ((int)threadIdx.x));
        lv24_shared_ptr[(((((int)threadIdx.y) * 32) + ax1) + ((int)threadIdx.x))] = lv24_ptr[(((((int)threadIdx.y) * 32) + ax1) + ((int)threadIdx.x))];
      }
    }
  }
  if (((int)threadIdx.y) < 8) {
    conv2d_nchw_intermediate_rf_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((int)threadIdx.y) < 8) && (((int)threadIdx.x) < 2)) {
    param_0_local_ptr[0] = param_0_ptr[((((int)threadIdx.y) * 2) + ((int)threadIdx.x))];
  }
  __syncthreads();
  if ((((int)threadIdx.y) < 8) && (((int)threadIdx.x) < 2)) {
    conv2d_nchw_intermediate_rf_local_ptr[0] = (conv2d_nchw_intermediate_rf_local_ptr[0] + (lv24_shared_ptr[((int)threadIdx.x)] * param_0_local_ptr[0]));
  }
  if (((int)threadIdx.y) < 8) {
    conv2d_nchw_intermediate_rf_local_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) < 8) {
    conv2d_nchw_intermediate_rf_local_ptr_1[0] = (conv2d_nchw_intermediate_rf_local_ptr_1[0] + conv2d_nchw_intermediate_rf_local_ptr[0]);
  }
  in_thread_conv2d_nchw_intermediate_shared_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.y) < 8) {
    in_thread_conv2d_nchw_intermediate_shared_ptr[0] = (in_thread_conv2d_nchw_intermediate_shared_ptr[0] + conv2d_nchw_intermediate_rf_local_ptr_1[0]);
  }
  alignas(64) float t0_ptr[1];
  alignas(64) unsigned int mask_ptr[1];
  red_buf0_ptr[0] = in_thread_conv2d_nchw_intermediate_shared_ptr[0];
  mask_ptr[0] = __activemask();
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 16, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 8, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 4, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 2, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 1, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  red_buf0_ptr[0] = __shfl_sync(mask_ptr[0], red_buf0_ptr[0], (((int)threadIdx.y) * 32), 32);
  __syncthreads();
  if (((int)threadIdx.x) == 0) {
    lv24_shared_ptr[((int)threadIdx.y)] = red_buf0_ptr[0];
  }
  __syncthreads();
  for (int ax0 = 0; ax0 < 8; ++ax0) {
    for (int ax1_ax2_fused_0 = 0; ax1_ax2_fused_0 < 36; ++ax1_ax2_fused_0) {
      int cse_v3 = (((ax0 * 1152) + (ax1_ax2_fused_0 * 32)) + ((int)threadIdx.x));
      T_multiply_intermediate_1_ptr[(((ax0 * 1152) + (ax1_ax2_fused_0 * 32)) + ((int)threadIdx.x))] = (lv19_ptr[(((ax0 * 1152) + (ax1_ax2_fused_0 * 32)) + ((int)threadIdx.x))] * max(min(((0x1.99999ap-3f/*2.000000e-01*/ * (lv24_shared_ptr[ax0] + param_1_ptr[ax0])) + 0x1p-1f/*5.000000e-01*/), 0x1p+0f/*1.000000e+00*/), 0x0p+0f/*0.000000e+00*/));
    }
  }
}
