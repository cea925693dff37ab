from . import dose_response as dose_response

__all__ = ["dose_response"]
