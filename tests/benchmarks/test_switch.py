"""The network of namespaces that chaos cuts: packets pass, one way is cut, and delay is kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
POSSIBLE = sys.platform == "linux" and os.geteuid() == 0 and os.path.exists("/dev/net/tun")

PROGRAM = """
import json, socket, sys, time
sys.path.insert(0, sys.argv[1])
from _switch import CALLER, Fault, Network, address, apart

apart()
ECHO = '''
import socket, sys
here = socket.socket(type=socket.SOCK_DGRAM)
here.bind((sys.argv[1], 5000))
print(flush=True)
while True:
    here.sendto(*here.recvfrom(100))
'''

def seconds():
    began = time.monotonic()
    asks.send(b"?")
    try:
        asks.recv(100)
    except TimeoutError:
        return None
    return time.monotonic() - began

import subprocess
with Network([1, 2]) as network, socket.socket(type=socket.SOCK_DGRAM) as asks:
    command = [*network.inside(2), sys.executable, "-c", ECHO, address(2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as echo:
        echo.stdout.readline()
        asks.settimeout(0.5)
        asks.connect((address(2), 5000))
        found = {"whole": seconds()}
        for name, fault in {
            "another's": Fault(1, 2), "there": Fault(CALLER, 2), "back": Fault(2, CALLER),
            "late": Fault(2, CALLER, 0, 0.2, 0.0),
        }.items():
            network.impose([fault])
            time.sleep(0.1)
            found[name] = seconds()
        network.impose([])
        time.sleep(0.1)
        found["healed"] = seconds()
        echo.kill()
print(json.dumps(found))
"""


@pytest.mark.skipif(not POSSIBLE, reason="network namespaces need Linux and root")
@pytest.mark.skipif(not shutil.which("nsenter"), reason="needs nsenter")
def test_a_network_that_is_cut_one_way_and_slowed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(BENCHMARKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["there"] is None
    assert found["back"] is None
    for passed in ("whole", "another's", "healed"):
        assert found[passed] is not None
        assert found[passed] < 0.2
    assert 0.2 <= found["late"] < 0.5
