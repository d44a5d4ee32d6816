"""Machines for tests: network namespaces, joined by a pair of veth devices or by a relay that delays and loses packets.

The relay takes IP packets from a TUN device in each namespace and hands them to the other one; kernels without netem have nothing for it.
"""

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
ADDRESSES = ("10.199.77.1", "10.199.77.2")


class NoNamespaces(Exception):
    """Namespaces may not be made here."""


def ip(*arguments):
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NoNamespaces("there is no command 'ip' (Debian's iproute2)") from error
    except subprocess.CalledProcessError as error:
        raise NoNamespaces(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from error


class Relay:
    """Between two TUN devices. `delay` in seconds, `loss` a share; both may change at any time."""

    def __init__(self, names):
        self.delay, self.loss = 0.0, 0.0
        self._devices, self._stop = [], False
        try:
            for name in names:
                device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                self._devices.append(device)
                fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        except OSError as error:
            self.close()
            raise NoNamespaces(f"no TUN device: {error}") from error
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self):
        lots, order, waiting = random.Random(7), itertools.count(), []
        while not self._stop:
            timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.05
            ready = select.select(self._devices, [], [], min(timeout, 0.05))[0]
            for device in ready:
                with contextlib.suppress(OSError):
                    packet = os.read(device, 65536)
                    if lots.random() >= self.loss:
                        to = self._devices[1 - self._devices.index(device)]
                        heapq.heappush(waiting, (time.monotonic() + self.delay, next(order), to, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # its queue is full: a lost packet more
                    os.write(to, packet)

    def close(self):
        self._stop = True
        if hasattr(self, "_thread"):
            self._thread.join()
        for device in self._devices:
            os.close(device)
        self._devices = []


class Machines:
    """Two of them; `relay` is None if veth joins them. `rate`: what tbf lets through, "2mbit"."""

    def __init__(self, relayed=False, rate=None):
        self.names = [f"hinge-{os.getpid()}-{i}" for i in range(2)]
        devices = [f"hinge{os.getpid() % 1000000}{side}" for side in "ab"]
        self.relay, self.devices, made = None, devices, []
        try:
            for name in self.names:
                ip("netns", "add", name)
                made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
            if relayed:
                self.relay = Relay(devices)
            else:
                ip("link", "add", devices[0], "type", "veth", "peer", "name", devices[1])
            for name, device, address in zip(self.names, devices, ADDRESSES):
                ip("link", "set", device, "netns", name)
                ip("-n", name, "address", "add", address + "/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
                if rate:
                    burst = "8mbit" if rate.endswith("gbit") else "512kbit"  # at least what passes between two ticks of the kernel
                    shape = ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "400ms"]
                    ip("netns", "exec", name, *shape)
        except BaseException:
            self._remove(made)
            raise

    def start(self, machine, command, **more):
        return subprocess.Popen(["ip", "netns", "exec", self.names[machine], *map(str, command)], **more)

    def _remove(self, names):
        if self.relay:
            self.relay.close()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._remove(self.names)
