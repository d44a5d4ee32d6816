"""DistributedDataParallel as a peer: processes of one thread, each with its part of the batch, that are asked for one call after the other."""

import os
from collections.abc import Callable


def run(ranks: int, make_call: Callable, serve: Callable) -> None:
    """make_call(rank, ranks) gives a rank's call and what its first result was; it runs within the process group. This process is the first
    rank: serve(call, result, others) makes calls of all ranks, and knows the processes of the others."""
    import torch
    import torch.multiprocessing as multiprocessing

    torch.set_num_threads(1)
    port = str(29500 + os.getpid() % 20000)
    others = [multiprocessing.get_context("fork").Process(target=_rank, args=(r, ranks, port, make_call)) for r in range(1, ranks)]
    for other in others:
        other.start()
    _rank(0, ranks, port, make_call, lambda call, result: serve(call, result, others))
    for other in others:
        other.join()


def _rank(rank: int, ranks: int, port: str, make_call: Callable, serve: Callable | None = None) -> None:
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    call, result = make_call(rank, ranks)
    call()
    goes_on = torch.ones(1)
    if serve is None:
        while True:
            dist.broadcast(goes_on, 0)  # waits for the first process
            if not goes_on.item():
                return
            call()

    def call_of_all():
        dist.broadcast(goes_on, 0)
        return call()

    serve(call_of_all, result)
    goes_on.zero_()
    dist.broadcast(goes_on, 0)
