"""hinge launch on two machines, which are network namespaces: a slow or lossy network changes speed only, and a machine that vanishes
ends the run. Skipped where namespaces may not be made."""

import os
import pathlib
import re
import subprocess

import pytest
from command import HINGE, needs_hinge
from machines import ADDRESSES, Machines, NoNamespaces
from test_processes import config, weights

pytestmark = needs_hinge


@pytest.fixture
def machines():
    made = []

    def make(**options):
        try:
            made.append(Machines(**options))
        except NoNamespaces as error:
            pytest.skip(f"no network namespaces here: {error}")
        return made[-1]

    yield make
    for one in made:
        one.__exit__()


def commands(train, processes=1):
    """What `hinge launch --nodes` says to type on each machine."""
    said = subprocess.run([HINGE, "launch", "-n", str(processes), "--nodes", ",".join(ADDRESSES), "--", *map(str, train)],
                          check=True, capture_output=True, text=True).stdout  # fmt: skip
    lines = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert len(lines) == 2 and said.startswith(ADDRESSES[0] + ":\n")
    return [["sh", "-c", "exec env " + re.sub(r" hinge ", f" {HINGE} ", line, count=1)] for line in lines]


def start(machines, train, folders=None, processes=1):
    return [
        machines.start(i, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folders[i] if folders else None)
        for i, command in enumerate(commands(train, processes))
    ]


def finish(processes):
    said = [process.communicate()[0] for process in processes]
    return [process.returncode for process in processes], said


@pytest.fixture
def alone(tmp_path):
    run = tmp_path / "alone"
    subprocess.run([HINGE, "train", config(tmp_path, 8), "--out", run], check=True, capture_output=True)
    return weights(run, 8)


NETWORKS = {
    "veth": {},
    "slow": {"rate": "20mbit"},
    "far and lossy": {"relayed": True, "delay": 0.01, "loss": 0.01},
}


@pytest.mark.parametrize("network", NETWORKS)
def test_the_network_changes_speed_only(tmp_path, machines, alone, network):
    options = dict(NETWORKS[network])
    delay, loss = options.pop("delay", 0), options.pop("loss", 0)
    two = machines(**options)
    if two.relay:
        two.relay.delay, two.relay.loss = delay, loss
    run = tmp_path / "run"
    codes, said = finish(start(two, ["train", config(tmp_path, 8), "--out", run], processes=2 if network == "veth" else 1))
    assert codes == [0, 0], said
    assert f"rank 0 of {4 if network == 'veth' else 2} at {ADDRESSES[0]} ({two.devices[0]})" in said[0]
    assert weights(run, 8) == alone


def test_each_machine_may_have_its_own_disk(tmp_path, machines, alone):
    """Only the machine of rank 0 has the run, also when it goes on."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    two = machines()
    codes, said = finish(start(two, ["train", config(tmp_path, 8), "--out", "run", "--set", "optim.steps=4"], folders))
    assert codes == [0, 0], said
    assert not (folders[1] / "run").exists()
    codes, said = finish(start(two, ["train", "--resume", "run", "--set", "optim.steps=8"], folders))
    assert codes == [0, 0], said
    assert list(folders[1].iterdir()) == []
    assert len(weights(folders[0] / "run", 8)) == len(alone)


def test_a_machine_that_vanishes_ends_the_run(tmp_path, machines):
    """No packet comes through any more, not even the end of a connection."""
    two = machines(relayed=True)
    run = tmp_path / "run"
    processes = start(two, ["train", config(tmp_path, 1000000), "--out", run])
    while not list(run.glob("checkpoints/step-*/checkpoint.json")):
        assert all(process.poll() is None for process in processes), finish(processes)
        os.sched_yield()
    two.relay.loss = 1.0
    codes, said = finish(processes)
    assert 0 not in codes
    assert re.search(r"hinge: rank 1 \(host .*\) was lost", said[0]), said
    assert re.search(r"hinge: rank 0 \(host .*\) was lost", said[1]), said
    subprocess.run([HINGE, "train", "--resume", run, "--set", f"optim.steps={last_step(run) + 1}"], check=True, capture_output=True)


def last_step(run):
    return max(int(pathlib.Path(folder).name.removeprefix("step-")) for folder in run.glob("checkpoints/step-*"))


def test_an_interface_can_be_chosen(tmp_path, machines):
    two = machines()
    for name, code in ((two.devices, 0), (("lo", "lo"), 1)):
        run = tmp_path / name[0]
        processes = []
        for i, command in enumerate(commands(["train", config(tmp_path, 4), "--out", run])):
            environment = dict(os.environ, GLOO_SOCKET_IFNAME=name[i])
            processes.append(two.start(i, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment))
        codes, said = finish(processes)
        assert (codes == [0, 0]) == (code == 0), said
        if code == 0:
            assert f"{name[0]} (GLOO_SOCKET_IFNAME)" in said[0], said
        else:
            assert all("GLOO_SOCKET_IFNAME is 'lo', the loopback interface" in text for text in said), said
