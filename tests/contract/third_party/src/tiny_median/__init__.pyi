from ._median import MedianModel as MedianModel

__all__ = ["MedianModel"]
