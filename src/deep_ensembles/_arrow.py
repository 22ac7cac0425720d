"""The one door to pyarrow, which reads, writes and converts tables."""

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv, parquet
except ImportError as error:
    raise ImportError("tables need pyarrow: pip install 'deep-ensembles[tables]'") from error

__all__ = ["csv", "pa", "parquet", "pc"]
