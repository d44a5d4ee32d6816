"""The comparison inside other libraries (bench/inside_peers.py): what it compares with is right, rows are shown as they come, and marks that
are missing in a document are told at once."""

import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import inside_peers  # noqa: E402
import report  # noqa: E402


def test_flex_attention_rows(monkeypatch, capsys):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    table, rows = inside_peers.compare(Namespace(cases=["flex"], rounds=1, threads=torch.get_num_threads()))
    assert len(rows) == 6 and all(row["ms"] > 0 and row["error"] < 1e-5 for row in rows)
    shown = [line.strip() for line in capsys.readouterr().err.splitlines() if line.startswith("  ")]
    assert shown == [line.strip("| ") for line in table.splitlines()[2:]], "each row has been shown"


def test_hstu_path_is_its_formula():
    lengths, longest = [3, 7], 7
    places = torch.cat([torch.arange(n) + row * longest for row, n in enumerate(lengths)])
    q, k, v = (torch.randn(10, 2, inside_peers.D) for _ in range(3))
    out = inside_peers.hstu_reference(q, k, v, places, len(lengths), longest)
    for sequence in (slice(0, 3), slice(3, 10)):
        scores = torch.einsum("ihd,jhd->hij", q[sequence], k[sequence]) / inside_peers.D**0.5
        expected = torch.einsum("hij,jhd->ihd", torch.nn.functional.silu(scores).tril() / longest, v[sequence])
        torch.testing.assert_close(out[sequence], expected)


def test_missing_marks_are_told_before_anything_is_measured(tmp_path):
    document = tmp_path / "document.md"
    report.require_writable(document, "peers inside AMD AVX2")  # it will be written anew
    document.write_text("before\n<!-- begin: peers inside AMD AVX2 -->\nold\n<!-- end: peers inside AMD AVX2 -->\nafter\n")
    report.require_writable(document, "peers inside AMD AVX2")
    with pytest.raises(SystemExit, match="lacks the marks <!-- begin: peers inside Intel AVX2 -->"):
        report.require_writable(document, "peers inside Intel AVX2")
    report.write_markdown(document, "peers inside AMD AVX2", "new")
    assert document.read_text() == "before\n<!-- begin: peers inside AMD AVX2 -->\nnew\n<!-- end: peers inside AMD AVX2 -->\nafter\n"
