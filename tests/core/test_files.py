"""Reading what users bring, and writing so that no half file is ever seen under its own name."""

import gzip
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import InputError
from assay._core.errors import AssayError
from assay._core.files import (
    atomic_path,
    load_tensors,
    open_text,
    plain,
    read_bytes,
    read_json,
    read_table,
    save_tensors,
    write_json,
)

TABLE = "drug,dose_uM,response\nA,0.1,0.9\nB,1,0.5\n"
VARIANTS = {
    "plain": TABLE.encode(),
    "bom": b"\xef\xbb\xbf" + TABLE.encode(),
    "crlf": TABLE.replace("\n", "\r\n").encode(),
    "old mac": TABLE.replace("\n", "\r").encode(),
    "tab": TABLE.replace(",", "\t").encode(),
    "semicolon": TABLE.replace(",", ";").encode(),
    "gzip": gzip.compress(TABLE.encode()),
    "utf-16": TABLE.encode("utf-16"),
    "blanks": TABLE.replace(",", ", ").encode(),
    "no last newline": TABLE.rstrip().encode(),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_spelling_of_a_table_reads_the_same(variant, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(VARIANTS[variant])
    frame = read_table(path, required=["drug", "dose_uM", "response"])
    expected = pd.DataFrame({"drug": ["A", "B"], "dose_uM": [0.1, 1.0], "response": [0.9, 0.5]})
    pd.testing.assert_frame_equal(frame, expected)


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b"\n \n", "is empty"),
    "binary": (bytes(range(256)), "not a text file"),
    "cut gzip": (gzip.compress(TABLE.encode() * 50)[:-9], "truncated"),
    "latin-1": ("drug,dose_uM,response\nA,1,caf\u00e9\n".encode("latin-1"), "line 2"),
    "one column": (b"drug dose_uM response\nA 1 2\n", "no comma, tab or semicolon"),
    "header only": (b"drug,dose_uM,response\n", "no rows"),
    "missing column": (b"drug,Dose_um,response\nA,1,2\n", "did you mean 'Dose_um'"),
    "ragged": (b"drug,dose_uM,response\nA,1,2\nB,1,2,3,4\n", "line 3"),
    "twice": (b"drug,dose_uM,response,drug\nA,1,2,B\n", "more than once"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_one_sentence_that_names_the_file(case, tmp_path):
    content, words = BAD[case]
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_table(path, required=["drug", "dose_uM", "response"])
    message = str(caught.value)
    assert words in message
    assert str(path) in message
    assert "\n" not in message


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        read_bytes(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is a folder"):
        open_text(tmp_path)
    with pytest.raises(InputError, match="line 2"):
        (tmp_path / "x.json").write_text('{"a":\n nope}')
        read_json(tmp_path / "x.json")


def test_atomic_path_keeps_the_old_file_when_the_block_fails(tmp_path):
    path = tmp_path / "deep" / "result.csv"
    with atomic_path(path) as temporary:
        temporary.write_text("old")
        assert temporary.suffix == ".csv"
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), atomic_path(path) as temporary:
        temporary.write_text("half")
        1 / 0  # noqa: B018
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["result.csv"]
    assert path.stat().st_mode & 0o044, "results must be as readable as any other file"


def test_atomic_path_names_the_file_it_could_not_write(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AssayError, match=r"Cannot write .*file/x\.json"):
        write_json(tmp_path / "file" / "x.json", {})


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_anything_plain_is_strict_json(value):
    text = json.dumps(plain(value), allow_nan=False)
    assert plain(json.loads(text)) == json.loads(text)


def test_plain_converts_numpy_and_refuses_objects():
    assert plain({"a": np.float32(0.5), "b": np.arange(2), "c": math.nan, "d": (np.bool_(True),)}) == {
        "a": 0.5,
        "b": [0, 1],
        "c": "nan",
        "d": [True],
    }
    with pytest.raises(TypeError):
        plain(object())


def test_tensors_round_trip_shapes_types_and_metadata(tmp_path):
    import torch

    arrays = {"scalar": np.array(2.5), "int": np.arange(6).reshape(2, 3), "view": np.arange(12.0).reshape(3, 4).T}
    save_tensors(tmp_path / "m.safetensors", arrays | {"torch": torch.ones(2, requires_grad=True)}, {"k": [1, "x"]})
    loaded, metadata = load_tensors(tmp_path / "m.safetensors")
    assert metadata == {"k": [1, "x"]}
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].shape == array.shape
        np.testing.assert_array_equal(loaded[name], array)
    np.testing.assert_array_equal(loaded["torch"], np.ones(2, np.float32))


def test_a_pickle_or_a_cut_file_is_never_opened_as_tensors(tmp_path):
    import pickle

    (tmp_path / "p.safetensors").write_bytes(pickle.dumps({"a": 1}))
    save_tensors(tmp_path / "c.safetensors", {"a": np.ones(100)})
    (tmp_path / "c.safetensors").write_bytes((tmp_path / "c.safetensors").read_bytes()[:-8])
    for name in ("p", "c"):
        with pytest.raises(InputError, match="not a complete safetensors"):
            load_tensors(tmp_path / f"{name}.safetensors")


def test_decimal_commas_of_semicolon_files_are_numbers(tmp_path):
    path = tmp_path / "european.csv"
    path.write_text("name;dose;note;whole\na;0,5;1,2 and 3;7\nb;-1,25e1;x;8\nc;;y;9\n")
    frame = read_table(path)
    assert frame["dose"].tolist()[:2] == [0.5, -12.5]
    assert np.isnan(frame["dose"].iloc[2])
    assert frame["note"].tolist() == ["1,2 and 3", "x", "y"]  # text that only holds numbers stays text
    assert frame["whole"].tolist() == [7, 8, 9]
