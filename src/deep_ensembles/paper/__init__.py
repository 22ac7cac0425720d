"""Everything that only reproduces the paper: its data sets, experiments, records, figures and baseline PBP."""
