"""How good our defaults are beside their peers: cells that can be resumed, and the page docs/benchmarks.md made of them.

python -m benchmarks.quality [--sets a,b] [--methods x,y] [--splits 0-4] [--records DIR] [--page FILE]
"""
