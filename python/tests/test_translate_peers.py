"""The comparison of whole translation models (bench/translate_peers.py): its peers run, and its table holds their ratios."""

import pathlib
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import pytest  # noqa: E402
import translate_peers  # noqa: E402


@pytest.mark.parametrize(("kind", "threads"), [("eager", "1"), ("DDP", "2")])
def test_a_peer_trains_on_the_batches_that_it_is_given(kind, threads):
    command = [sys.executable, BENCH / "peers.py", "translate-worker", kind, threads]
    run = subprocess.run(command, input="[[2, 5, 3], [4, 4]]\ngo\n", capture_output=True, text=True)
    ready, sample = run.stdout.splitlines() or [run.stderr, ""]
    tokens, seconds = sample.split()
    assert (ready, tokens) == ("ready", "18") and float(seconds) > 0


def test_a_row_holds_rates_and_ratios():
    fast = {"ours softmax": 200, "ours reluformer": 190, "eager": 100, "torch.compile": 90}
    assert translate_peers.line("25", fast) == ["25", "200", "190", "100", "90", "-", "-", "2.00", "1.90", "0.95"]
    slow = {"ours softmax": 100, "ours reluformer": 90, "CTranslate2": 95}
    assert translate_peers.line("decode", slow)[-3:] == ["1.05", "0.95", "0.90"]
    alone = {"ours softmax": 100, "ours reluformer": 100}
    assert translate_peers.line("uneven", alone)[-3:] == ["-", "-", "1.00"], "no peer was measured"
