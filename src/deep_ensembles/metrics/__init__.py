"""Metrics: how good predictions were, as one number. The scoring rules' means are metrics too."""

from deep_ensembles.metrics.interval_coverage import interval_coverage

__all__ = ["interval_coverage"]
