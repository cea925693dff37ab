"""Public names that belong to no method: documented, with Examples that run; faces are lazy and complete."""

import ast
import doctest
import importlib
import inspect
import sys
from pathlib import Path

import pytest

from assay.testing._method import docstring_faults

MODULES = ["assay.testing", "assay.claims"]
SOURCE = Path(__file__).parents[2] / "src" / "assay"


def _objects(module):
    package = importlib.import_module(module)
    found = {name: getattr(package, name) for name in package.__all__}
    return {n: o for n, o in found.items() if inspect.isclass(o) or inspect.isroutine(o)}


@pytest.mark.parametrize("module", MODULES)
def test_documented(module):
    faults = []
    for name, obj in _objects(module).items():
        found = docstring_faults(obj)
        if module == "assay.claims":
            # a claim is read where it is declared: every claims.py is the example of its records
            found = [fault for fault in found if fault != "no Example"]
            if inspect.isclass(obj):
                found = [fault for fault in found if fault != "no Parameters section"]
        faults += [f"{name}: {fault}" for fault in found]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module):
    examples = 0
    for name, obj in _objects(module).items():
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        output = []
        for test in doctest.DocTestFinder(exclude_empty=True).find(obj, name, module=sys.modules[obj.__module__]):
            runner.run(test, out=output.append)
            examples += len(test.examples)
        assert runner.summarize(verbose=False).failed == 0, "".join(output)
    assert examples, f"{module} shows no Example"


@pytest.mark.parametrize("stub", sorted(SOURCE.rglob("__init__.pyi")), ids=lambda p: str(p.parent.relative_to(SOURCE)))
def test_stub_lists_what_it_imports(stub):
    """lazy_loader serves what the stub imports, type checkers what `__all__` lists: they must be the same names."""
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    imported = {a.asname or a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    listed = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign))
    assert set(listed) == imported
    assert len(set(listed)) == len(listed)
