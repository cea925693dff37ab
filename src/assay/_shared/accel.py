"""One switch for numba: compiled kernels where it is installed, the same Python source where it is not.

``ASSAY_NO_NUMBA=1`` turns compilation off at run time, so that the tests can compare both paths of every kernel.
Importing this module does not import numba: a kernel compiles at its first call and is cached on disk.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from typing import Any

__all__ = ["njit", "numba_enabled"]


@functools.cache
def _numba_installed() -> bool:
    return importlib.util.find_spec("numba") is not None


def numba_enabled() -> bool:
    """Say whether kernels run compiled: numba is importable and ``ASSAY_NO_NUMBA`` is unset, empty or ``0``.

    Returns
    -------
    bool
        ``False`` means that kernels run as ordinary Python (or as their numpy ``fallback``).
    """
    return os.environ.get("ASSAY_NO_NUMBA", "") in ("", "0") and _numba_installed()


def njit(
    function: Callable[..., Any] | None = None, *, fallback: Callable[..., Any] | None = None, **options: Any
) -> Any:
    """Compile a kernel with numba at its first call, or run it without numba.

    Parameters
    ----------
    function : callable, optional
        The kernel. It must be self-contained: a call of another decorated kernel inside it would not compile.
    fallback : callable, default None
        What to run without numba, usually a vectorised numpy version with the same result. Without it the
        kernel's own Python source runs.
    **options
        Passed to ``numba.njit``; ``cache=True`` and ``nogil=True`` are the defaults (kernels run in joblib threads).

    Returns
    -------
    callable
        A wrapper with the attributes ``py_func`` (the source), ``fallback`` and ``compiled()`` (the dispatcher).

    Examples
    --------
    >>> from assay._shared.accel import njit
    >>> @njit(cache=False)
    ... def total(x):
    ...     s = 0.0
    ...     for value in x:
    ...         s += value
    ...     return s
    >>> import numpy as np
    >>> total(np.arange(4.0))
    6.0
    """
    if function is None:
        return functools.partial(njit, fallback=fallback, **options)
    kernel = function
    state: list[Any] = []

    def compiled() -> Any:
        if not state:
            import numba

            settings = {"cache": True, "nogil": True, **options}
            state.append(numba.njit(**settings)(kernel))
        return state[0]

    @functools.wraps(kernel)
    def call(*args: Any) -> Any:
        if numba_enabled():
            return compiled()(*args)
        return (fallback or kernel)(*args)

    call.py_func = kernel  # type: ignore[attr-defined]
    call.fallback = fallback  # type: ignore[attr-defined]
    call.compiled = compiled  # type: ignore[attr-defined]
    return call
