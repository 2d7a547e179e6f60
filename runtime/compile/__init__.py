"""From kernel source to code: NVRTC, its cache, signatures, and CUDA C on the CPU."""
