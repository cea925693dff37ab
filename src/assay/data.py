"""Where data files are: shipped samples, a folder of the user's, the cache, or the network."""

from ._core.data import cache_dir, data_path, sample_path

__all__ = ["cache_dir", "data_path", "sample_path"]
