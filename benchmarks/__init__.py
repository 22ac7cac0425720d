"""Speed and memory of the library beside what one would use otherwise; `python -m benchmarks [name ...]`."""
