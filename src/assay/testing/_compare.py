"""Equality of arbitrary fitted state: used to see that inputs were left alone and that a seed repeats a result."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

# Clock readings differ between two equal runs; nothing else may.
_CLOCK = re.compile(r"(^|_)(seconds|time|wall|cpu)_?$")

# id -> (order, the object itself: kept alive, or a temporary's id would be given to the next one)
_Seen = dict[int, tuple[int, Any]]


def fingerprint(obj: Any) -> str:
    """Hash of what an object holds: arrays by bytes, containers and objects by their parts.

    Attributes and columns that are clock readings (named ``seconds``, ``*_seconds``, ``time`` ...) and attributes that
    start with an underscore (caches) are left out.

    Parameters
    ----------
    obj : object
        Arrays, sparse matrices, tensors, data frames, containers and objects made of these.

    Returns
    -------
    str
        Hexadecimal SHA-256.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.testing import fingerprint
    >>> fingerprint({"a": np.arange(3)}) == fingerprint({"a": np.arange(3)})
    True
    >>> fingerprint(np.arange(3)) == fingerprint(np.arange(3.0))
    False
    """
    digest = hashlib.sha256()
    _update(digest, obj, {})
    return digest.hexdigest()


def _update(digest: Any, obj: Any, seen: _Seen) -> None:
    def put(tag: str) -> None:
        digest.update(tag.encode() + b"\0")

    if obj is None or isinstance(obj, (bool, int, str, bytes, complex, np.dtype, type)):
        put(f"{type(obj).__name__}:{obj!r}")
        return
    if isinstance(obj, float):
        put(f"float:{obj.hex()}")
        return
    if isinstance(obj, (np.ndarray, np.generic)):
        _update_array(digest, np.asarray(obj), seen)
        return
    if id(obj) in seen:  # cycles and shared parts
        put(f"seen:{seen[id(obj)][0]}")
        return
    seen[id(obj)] = (len(seen), obj)
    put(f"{type(obj).__module__}.{type(obj).__qualname__}")
    if isinstance(obj, Mapping):
        for key, value in obj.items():
            if not (isinstance(key, str) and _CLOCK.search(key)):
                _update(digest, key, seen)
                _update(digest, value, seen)
    elif isinstance(obj, (list, tuple)):
        put(str(len(obj)))
        for value in obj:
            _update(digest, value, seen)
    elif isinstance(obj, (set, frozenset)):
        for text in sorted(fingerprint(value) for value in obj):
            put(text)
    elif _is(obj, "torch", "Tensor"):
        put(str(obj.dtype))
        _update_array(digest, obj.detach().cpu().resolve_conj().double().numpy(), seen)
    elif _is(obj, "torch.nn.modules.module", "Module"):
        _update(digest, dict(obj.state_dict()), seen)
    elif _is(obj, "pandas", "DataFrame"):
        for column in obj.columns:
            if not _CLOCK.search(str(column)):
                put(str(column))
                _update_array(digest, obj[column].to_numpy(), seen)
        _update_array(digest, obj.index.to_numpy(), seen)
    elif _is(obj, "pandas", "Series") or _is(obj, "pandas", "Index"):
        _update_array(digest, obj.to_numpy(), seen)
    elif _is(obj, "scipy.sparse", "spmatrix") or _is(obj, "scipy.sparse", "sparray"):
        coo = obj.tocoo()
        put(f"{obj.format}:{obj.shape}")
        for part in (coo.row, coo.col, coo.data):
            _update_array(digest, part, seen)
    elif isinstance(obj, np.random.Generator):
        _update(digest, dict(obj.bit_generator.state), seen)
    elif isinstance(obj, np.random.RandomState):
        _update(digest, list(obj.get_state()), seen)
    elif callable(obj) and hasattr(obj, "__qualname__"):
        put(obj.__qualname__)
    elif hasattr(obj, "__dict__") or hasattr(obj, "__slots__"):
        state = dict(vars(obj)) if hasattr(obj, "__dict__") else {k: getattr(obj, k, None) for k in obj.__slots__}
        for key in sorted(state):
            if not key.startswith("_") and not _CLOCK.search(key):
                put(key)
                _update(digest, state[key], seen)
    else:
        # objects of C extensions (trees of scikit-learn and the like) describe themselves for copying
        state = obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        _update(digest, list(state[1:3]) if isinstance(state, tuple) else state, seen)


def _update_array(digest: Any, array: np.ndarray, seen: _Seen) -> None:
    digest.update(f"array:{array.dtype.str}:{array.shape}".encode() + b"\0")
    if array.dtype.fields:  # field by field: padding bytes are not initialised
        for name in array.dtype.names or ():
            _update_array(digest, array[name], seen)
    elif array.dtype.hasobject or array.dtype.kind == "T":
        for item in array.ravel().tolist():
            _update(digest, item, seen)
    else:
        digest.update(np.ascontiguousarray(array).tobytes())


def _is(obj: Any, module: str, name: str) -> bool:
    """Instance test by name along the MRO, so that nothing is imported that the object's author did not import."""
    return any(c.__name__ == name and c.__module__.startswith(module.split(".")[0]) for c in type(obj).__mro__)


def leaves(value: Any) -> list[Any]:
    """Numeric arrays inside a returned value (scalar, array, tensor, tuple, mapping, dataclass), in a fixed order.

    Parameters
    ----------
    value : object
        What a public function returned.

    Returns
    -------
    list of numpy.ndarray
        Every numeric part; strings and None are left out.

    Examples
    --------
    >>> from assay.testing import leaves
    >>> [a.tolist() for a in leaves({"a": 1.0, "b": (2.0, None)})]
    [1.0, 2.0]
    """
    if value is None or isinstance(value, (str, bytes)):
        return []
    if _is(value, "torch", "Tensor"):
        return [value.detach().cpu().numpy()]
    if _is(value, "pandas", "DataFrame"):
        return [value[c].to_numpy() for c in value.columns if not _CLOCK.search(str(c))]
    if isinstance(value, Mapping):
        return [leaf for key in value for leaf in leaves(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    if hasattr(value, "__dict__") and not isinstance(value, np.ndarray):
        return [leaf for key, part in vars(value).items() if not key.startswith("_") for leaf in leaves(part)]
    return [np.asarray(value)]
