"""The contract of kind "torch module"."""
# ruff: noqa: PT018 - one assert, one message

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ._cases import Case, Check, CheckResult, not_applicable, run_checks
from ._compare import fingerprint
from ._estimator import assert_no_pickle, forbid_pickle

# float32 networks of a few layers: sums in another order differ by about 1e-6 of the output
_ATOL = 1e-5


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in _tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    if hasattr(value, "__dataclass_fields__"):
        return [t for name in value.__dataclass_fields__ for t in _tensors(getattr(value, name))]
    return []


def _floating(value: Any) -> list[Tensor]:
    return [t for t in _tensors(value) if t.is_floating_point()]


def _map(value: Any, f: Any) -> Any:
    if isinstance(value, Tensor):
        return f(value)
    if isinstance(value, Mapping):
        return {k: _map(v, f) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map(v, f) for v in value)
    return value


def _make(case: Case, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = case.make()
    assert isinstance(module, nn.Module), f"{type(module).__name__} is no nn.Module"
    return module


def _call(module: nn.Module, inputs: tuple[Any, ...], seed: int = 0) -> list[Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [t.detach() for t in _tensors(module(*inputs))]


def _equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def check_shapes(case: Case) -> None:
    """The output is finite, has the shape the case promises, and the docstring has a Shapes section."""
    module = _make(case).eval()
    out = _call(module, case.inputs())
    assert out, "forward returned no tensor"
    assert all(torch.isfinite(t).all() for t in out if t.is_floating_point()), "the output is not finite"
    if case.output_shape is not None:
        assert tuple(out[0].shape) == tuple(case.output_shape), (
            f"output {tuple(out[0].shape)}, promised {tuple(case.output_shape)}"
        )
    text = f"{inspect.getdoc(type(module))}\n{inspect.getdoc(type(module).forward)}"
    assert "Shape" in text, f"neither {type(module).__name__} nor its forward documents its shapes"


def check_state_dict_round_trip(case: Case) -> None:
    """state_dict loads strictly into a module made with other random weights, which then computes the same bits."""
    module, other = _make(case, 0).eval(), _make(case, 1).eval()
    other.load_state_dict(module.state_dict(), strict=True)
    inputs = case.inputs()
    assert _equal(_call(module, inputs), _call(other, inputs)), "the loaded module computes something else"


def check_train_eval(case: Case) -> None:
    """train() and eval() reach every submodule; in eval two calls agree and leave parameters and buffers alone."""
    module = _make(case)
    assert module.train() is module and all(m.training for m in module.modules()), (
        "train() does not reach all submodules"
    )
    assert module.eval() is module and not any(m.training for m in module.modules()), (
        "eval() does not reach all submodules"
    )
    mark, inputs = fingerprint(module), case.inputs()
    first = _call(module, inputs, seed=1)
    assert _equal(first, _call(module, inputs, seed=2)), "two calls in eval mode differ"
    assert fingerprint(module) == mark, "a call in eval mode changed parameters or buffers"


def check_gradients_reach_parameters(case: Case) -> None:
    """A random projection of the output has a finite, non-zero gradient in every parameter that asks for one."""
    module = _make(case).train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        out = _floating(module(*case.inputs()))
        assert out, "forward returned no floating-point tensor"
        # squares too, so that a normalised output (softmax, unit norm) does not make the sum constant
        total = torch.stack([(t * torch.randn_like(t)).sum() + (t**2 * torch.randn_like(t)).sum() for t in out]).sum()
    total.backward()
    for name, p in module.named_parameters():
        if p.requires_grad:
            assert p.grad is not None and bool(p.grad.any()), f"no gradient reaches {name}"
            assert torch.isfinite(p.grad).all(), f"the gradient of {name} is not finite"


def check_float64(case: Case) -> None:
    """In float64 the output is float64 and agrees with float32 to single precision; no default dtype is hard-wired."""
    module = _make(case).eval()
    inputs = case.inputs()
    single = _floating(_call(module, inputs))
    double = _floating(
        _call(copy.deepcopy(module).double(), _map(inputs, lambda t: t.double() if t.is_floating_point() else t))
    )
    for a, b in zip(single, double, strict=True):
        assert b.dtype == torch.float64, f"float64 weights and inputs give {b.dtype}"
        # 1e-3 of the largest value: single precision through some layers, far below a wrong formula
        assert float((a.double() - b).abs().max()) <= 1e-3 * max(1.0, float(b.abs().max())), (
            "float64 disagrees with float32"
        )


def check_batch_consistency(case: Case) -> None:
    """In eval mode a batch gives what its items give one by one."""
    if not case.batched:
        raise not_applicable("inputs have no batch dimension")
    module, inputs = _make(case).eval(), case.inputs()
    size = _tensors(inputs)[0].shape[0]
    assert size >= 2, "give a batch of at least two in data="
    whole = _call(module, inputs)
    items = [_call(module, _map(inputs, lambda t, i=i: t[i : i + 1])) for i in range(size)]
    for k, out in enumerate(whole):
        joined = torch.cat([item[k] for item in items])
        assert out.shape == joined.shape, f"the items give {tuple(joined.shape)}, the batch {tuple(out.shape)}"
        scale = max(1.0, float(out.abs().max())) if out.numel() else 1.0
        atol = (_ATOL if case.atol is None else case.atol) * scale
        assert torch.allclose(out.double(), joined.double(), rtol=0.0, atol=atol), (
            "an item depends on the rest of its batch"
        )


def check_input_not_mutated(case: Case) -> None:
    """forward writes into none of its inputs."""
    inputs = case.inputs()
    mark = fingerprint(inputs)
    _call(_make(case).eval(), inputs)
    assert fingerprint(inputs) == mark, "forward changed its input"


def check_deepcopy(case: Case) -> None:
    """A deep copy computes the same and shares no storage."""
    module, inputs = _make(case).eval(), case.inputs()
    expected = _call(module, inputs)
    other = copy.deepcopy(module)
    assert _equal(_call(other, inputs), expected), "the copy computes something else"
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1.0)
    assert _equal(_call(module, inputs), expected), "changing the copy changed the original"


def check_save_pretrained(case: Case) -> None:
    """save_pretrained, from_pretrained: same bits out, a safetensors file and a JSON config, and no pickle."""
    module: Any = _make(case).eval()
    inputs = case.inputs()
    if not hasattr(module, "save_pretrained"):
        raise not_applicable("has no save_pretrained")
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        assert_no_pickle(Path(folder))
        suffixes = {p.suffix for p in Path(folder).rglob("*")}
        assert {".safetensors", ".json"} <= suffixes, f"expected safetensors and JSON, found {sorted(suffixes)}"
        with forbid_pickle():
            loaded = type(module).from_pretrained(folder).eval()
    assert _equal(_call(loaded, inputs), _call(module, inputs)), "the loaded module computes something else"


CHECKS: tuple[Check, ...] = (
    check_shapes,
    check_state_dict_round_trip,
    check_train_eval,
    check_gradients_reach_parameters,
    check_float64,
    check_batch_consistency,
    check_input_not_mutated,
    check_deepcopy,
    check_save_pretrained,
)


def checks(case: Case) -> list[tuple[str, Check]]:
    """The named checks of this kind."""
    return [(check.__name__, check) for check in CHECKS]


def check_module(case: Case) -> list[CheckResult]:
    """Run the contract of kind "torch module".

    Parameters
    ----------
    case : Case
        ``make()`` gives an ``nn.Module``, ``data()`` the tuple of inputs (a batch of two or more).

    Returns
    -------
    list of CheckResult
        One per check.

    Raises
    ------
    AssertionError
        Names every check that failed.

    Examples
    --------
    >>> import torch
    >>> from assay.testing import Case, check_module
    >>> case = Case("Linear", "torch module", lambda: torch.nn.Linear(3, 2), data=lambda: (torch.ones(4, 3),))
    >>> sorted({r.status for r in check_module(case)})
    ['passed', 'skipped']
    """
    return run_checks(case, checks(case))
