"""What it costs when backends alternate: ``python -m benchmarks.thread_pool``."""
