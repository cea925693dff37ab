"""The numba switch: compiled and plain kernels agree, and import stays cheap."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from assay._shared import accel


def _cumulate(x):
    total = 0.0
    for value in x:
        total += value
    return total


def test_switch_is_read_at_call_time(monkeypatch):
    kernel = accel.njit(_cumulate, cache=False, fallback=lambda x: -1.0)
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    assert not accel.numba_enabled()
    assert kernel(np.ones(3)) == -1.0
    monkeypatch.setenv("ASSAY_NO_NUMBA", "0")
    if accel.numba_enabled():
        assert kernel(np.ones(3)) == 3.0


def test_without_fallback_the_source_runs(monkeypatch):
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    assert accel.njit(cache=False)(_cumulate)(np.arange(4.0)) == 6.0


def test_missing_numba_falls_back(monkeypatch):
    monkeypatch.setattr(accel, "_numba_installed", lambda: False)
    assert not accel.numba_enabled()
    assert accel.njit(_cumulate, cache=False)(np.arange(4.0)) == 6.0


def test_wrapper_keeps_name_and_source():
    kernel = accel.njit(_cumulate, cache=False)
    assert kernel.__name__ == "_cumulate"
    assert kernel.py_func is _cumulate


def test_import_does_not_import_numba():
    code = "import sys, assay._shared.accel; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not accel.numba_enabled(), reason="numba is not installed")
def test_compiled_attribute_is_the_dispatcher():
    kernel = accel.njit(_cumulate, cache=False)
    assert kernel.compiled() is kernel.compiled()
    assert kernel.compiled()(np.ones(2)) == 2.0
