"""bench/scaling.py sequence: what two machines send each other, whatever joins them."""

import subprocess
import sys
from pathlib import Path

import pytest
from machines import Machines, NoNamespaces
from test_processes import HINGE

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not HINGE.exists(), reason=f"there is no {HINGE}: run 'make build', or set HINGE_COMMAND")


def test_two_machines_send_what_the_formulas_say():
    try:
        Machines().__exit__()
    except NoNamespaces as error:
        pytest.skip(f"no network namespaces here: {error}")
    command = [sys.executable, ROOT / "bench/scaling.py", "sequence", "--links", "veth,1 Gbit/s", "--tokens", "512", "--rounds", "1"]
    done = subprocess.run([*command, "--kinds", "relu,softmax"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("|")]
    assert table[0][-2:] == ["veth, ms", "1 Gbit/s, ms"]
    rows = table[2:]
    n, H, D = 256, 6, 64
    numbers = [2 * n * H * D, 3 * n * H * D, n * H * (2 * D + 1), n * H * (3 * D + 2), n * H]
    assert [float(row[5]) for row in rows] == [pytest.approx(4e-6 * count, abs=6e-4) for count in numbers]
    assert [row[3] for row in rows] == ["2", "2", "2", "2", "1"]
    assert all(float(row[7]) > 0 and float(row[8].split()[0]) > 0 for row in rows)
