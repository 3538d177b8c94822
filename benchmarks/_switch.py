"""A network of namespaces on this machine, whose packets pass through this program.

Each node, and the caller, has a network namespace with one interface. A switch in user space reads
packets of all interfaces and passes them on, late or not at all, according to the faults: kernels
of small machines often lack the module that delays packets. Needs root; the caller runs in its own
namespace (`apart`), so that nothing here touches the machine's network.

Run as a program, it reads the faults in force from its input, one JSON list of `Fault` per line,
and ends when its input ends.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import random
import selectors
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

NETWORK = "198.18.77"  # in the range for benchmarks (RFC 2544)
CALLER = 254  # the caller's number on the network
MTU = 16_000  # bytes: few packets, since each costs a Python step
TUN, NO_HEADER, SET = 0x0001, 0x1000, 0x400454CA  # flags, and ioctl, of Linux's if_tun.h
SOURCE, TARGET = 15, 19  # last bytes of a packet's IPv4 addresses
MARK = "HUSH_BENCH_APART"


class Fault(NamedTuple):
    """The treatment of packets from one node to another.

    Attributes:
        source, target: numbers of nodes.
        loss: probability that a packet is dropped.
        delay, jitter: seconds; a packet is delayed by between delay and delay + jitter.
    """

    source: int
    target: int
    loss: float = 1.0
    delay: float = 0.0
    jitter: float = 0.0


def address(node: int) -> str:
    """The address of a node on the network."""
    return f"{NETWORK}.{node}"


def apart() -> None:
    """Re-run this program in its own network namespace, unless it is already in one."""
    if MARK in os.environ:
        return
    environ = {**os.environ, MARK: "1"}
    up = 'ip link set lo up && exec "$@"'
    command = ["unshare", "--net", "sh", "-c", up, "sh", sys.executable, *sys.argv]
    os.execvpe(command[0], command, environ)


class Network:
    """The switch and the namespaces, for the length of a block."""

    def __init__(self, nodes: Sequence[int]) -> None:
        command = [sys.executable, str(Path(__file__)), *map(str, nodes)]
        self._switch = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._switch.stdout is not None
        told = json.loads(self._switch.stdout.readline() or "{}")
        self._holders = {node: told[str(node)] for node in nodes}

    def inside(self, node: int) -> list[str]:
        """Prefix of a command line that runs in a node's namespace."""
        program = shutil.which("nsenter")
        assert program is not None
        return [program, "--net", "--target", str(self._holders[node])]

    def impose(self, faults: Iterable[Fault]) -> None:
        """Replace the faults in force."""
        assert self._switch.stdin is not None
        self._switch.stdin.write(json.dumps([*faults]) + "\n")
        self._switch.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._switch.communicate()


class Switch:
    """Passes packets between interfaces, with the faults in force."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._files = {node: _interface(node) for node in (*nodes, CALLER)}
        self.holders = {node: _namespace() for node in nodes}
        for node in (*nodes, CALLER):
            _join(node, self.holders.get(node))
        self._faults: Mapping[tuple[int, int], Fault] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._begun = b""

    def run(self) -> None:
        """Serve until the input ends."""
        with selectors.DefaultSelector() as ready:
            ready.register(0, selectors.EVENT_READ)
            for file in self._files.values():
                ready.register(file, selectors.EVENT_READ)
            while True:
                wait = self._late[0][0] - time.monotonic() if self._late else None
                for key, _ in ready.select(wait if wait is None else max(0.0, wait)):
                    if key.fd:
                        self._drain(key.fd)
                    elif told := os.read(0, 1 << 16):
                        self._hear(told)
                    else:
                        return
                self._deliver()

    def _hear(self, told: bytes) -> None:
        """Apply the last complete line of the input."""
        *lines, self._begun = (self._begun + told).split(b"\n")
        if lines:
            faults = [Fault(*fields) for fields in json.loads(lines[-1])]
            self._faults = {(fault.source, fault.target): fault for fault in faults}

    def _drain(self, file: int) -> None:
        while True:
            try:
                packet = os.read(file, MTU + 64)
            except BlockingIOError:
                return
            target = self._files.get(packet[TARGET]) if packet[0] >> 4 == 4 else None
            if target is None:  # multicast, IPv6
                continue
            fault = self._faults.get((packet[SOURCE], packet[TARGET]))
            if fault is None:
                _put(target, packet)
            elif random.random() >= fault.loss:
                at = time.monotonic() + fault.delay + random.random() * fault.jitter
                self._count += 1
                heapq.heappush(self._late, (at, self._count, target, packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._late)
            _put(target, packet)

    def close(self) -> None:
        """End the namespaces."""
        for holder in self.holders.values():
            holder.communicate()


def _put(file: int, packet: bytes) -> None:
    """Write a packet; a full queue loses it, as a network does."""
    try:
        os.write(file, packet)
    except BlockingIOError:
        return


def _interface(node: int) -> int:
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(file, SET, struct.pack("16sH22x", f"node{node}".encode(), TUN | NO_HEADER))
    return file


def _namespace() -> subprocess.Popen[bytes]:
    """A process that holds a namespace until its input closes, at the latest when this one ends."""
    command = ["unshare", "--net", "sh", "-c", "echo; exec cat"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()  # now it is in its namespace
    return holder


def _join(node: int, holder: subprocess.Popen[bytes] | None) -> None:
    """Move an interface to its namespace; it stays connected with the switch."""
    name, within = f"node{node}", list[str]()
    if holder is not None:
        _done("ip", "link", "set", name, "netns", str(holder.pid))
        within = ["nsenter", "--net", "--target", str(holder.pid)]
        _done(*within, "ip", "link", "set", "lo", "up")
    _done(*within, "ip", "address", "add", f"{address(node)}/24", "dev", name)
    _done(*within, "ip", "link", "set", name, "mtu", str(MTU), "up")


def _done(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    """Serve the named nodes; print the processes that hold their namespaces."""
    switch = Switch([int(word) for word in sys.argv[1:]])
    try:
        print(json.dumps({n: holder.pid for n, holder in switch.holders.items()}), flush=True)
        switch.run()
    finally:
        switch.close()


if __name__ == "__main__":
    main()
