"""The graph readers and the writer that this method offers under its own name (a lazy face lists its own modules only)."""

from assay._shared.graphs import read_graph, read_metis, write_metis

__all__ = ["read_graph", "read_metis", "write_metis"]
