"""CUDA C and PTX on the CPU: PTX becomes LLVM IR, is compiled, and runs block by block."""
