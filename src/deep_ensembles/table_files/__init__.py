"""Tables in files: text in many dialects and Parquet, read and written some rows at a time; needs the extra `tables`."""

from deep_ensembles.table_files._head import TableError
from deep_ensembles.table_files._tables import TableFiles, open_table, together
from deep_ensembles.table_files._writing import TableWriter, check_ending, writing

__all__ = ["TableError", "TableFiles", "TableWriter", "check_ending", "open_table", "together", "writing"]
