"""The global commands, and that every way to end gives the promised exit code and at most one sentence."""

import json

import pytest

from assay.cli import main


def call(capsys, *args):
    code = main(list(args))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_list_shows_every_method_and_filters(capsys):
    import assay

    code, out, _ = call(capsys, "list")
    assert code == 0
    assert all(slug in out for slug in assay.cards())
    code, out, _ = call(capsys, "list", "--field", "bio", "--json")
    assert code == 0
    items = json.loads(out)
    assert items
    assert {item["field"] for item in items} == {"bio"}
    code, _, err = call(capsys, "list", "--kind", "spaceship")
    assert code == 2
    assert "estimator" in err


def test_show_names_what_a_user_needs(capsys):
    code, out, _ = call(capsys, "show", "dose-response")
    assert code == 0
    for words in (
        "You bring",
        "You get",
        "Not for",
        "Paper",
        "assay demo dose-response",
        "assay dose-response fit --help",
    ):
        assert words in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["lst"], "did you mean 'list'"),
        (["show", "rotatonal"], "did you mean 'rotational'"),
        (["show"], "--method"),
        (["list", "--feld", "bio"], "--feld"),
        (["demo", "nothing"], "no method"),
        (["data", "path", "dose-response", "none.csv"], "none.csv"),
        (["dose-response", "fly"], "fly"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_code_2(capsys, args, words):
    code, _, err = call(capsys, *args)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("assay: ")
    assert words in err


@pytest.mark.parametrize(
    ("module", "extra"),
    [("botorch", "decisions"), ("gpytorch.kernels", "decisions"), ("yaml", "decisions"), ("rdkit.Chem", "bio")],
)
def test_a_missing_package_of_an_extra_names_the_line_that_installs_it(capsys, monkeypatch, module, extra):
    from assay.cli import _main

    def stop(argv):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(_main, "_run", stop)
    code, _, err = call(capsys, "list")
    assert code == 2
    assert f"pip install 'assay-ml[{extra}]'" in err
    assert err.count("\n") == 1


def test_a_missing_package_of_no_extra_is_a_fault_of_ours(capsys, monkeypatch):
    from assay.cli import _main

    def stop(argv):
        raise ModuleNotFoundError("No module named 'nonsense'", name="nonsense")

    monkeypatch.setattr(_main, "_run", stop)
    code, _, err = call(capsys, "list")
    assert code == 1
    assert "nonsense" in err


def test_data_list_and_path(capsys):
    code, out, _ = call(capsys, "data", "list", "dose-response")
    assert code == 0
    assert "sarcoma_viability.csv.gz" in out
    assert "shipped" in out
    code, out, _ = call(capsys, "data", "path", "dose-response", "sarcoma_viability.csv.gz")
    assert code == 0
    assert out.strip().endswith("sarcoma_viability.csv.gz")


def test_doctor_names_what_is_there(capsys):
    code, out, _ = call(capsys, "doctor")
    assert code == 0
    for words in ("python", "torch", "extra", "cache", "devices"):
        assert words in out


def test_a_closed_pipe_is_no_error(toy):
    import subprocess
    import sys

    done = subprocess.run(
        f'{sys.executable} -c \'import sys; from assay.cli import main; sys.exit(main(["list", "--json"]))\' | head -c 5',
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stderr == ""
