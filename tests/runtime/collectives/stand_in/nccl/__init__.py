"""Put first on PYTHONPATH, this stands for nccl4py."""
