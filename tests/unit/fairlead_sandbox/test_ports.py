"""A port is the preferred one or the next free one, and never one that another sandbox has claimed."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.ports import PortClaims, claim_ports, first_free, is_free

CLAIMING = """
import sys
from fairlead_sandbox.ports import claim_ports
sys.stdin.readline()
claims = claim_ports({"api": int(sys.argv[1])})
print(claims.ports["api"], flush=True)
sys.stdin.readline()
"""
"""A process that claims a port when it gets a line, and holds the port until it gets another."""


QUIET_PORT = 20_000
"""A port below the range from which the kernel assigns ports, so that no process takes it during a test."""


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def claim() -> Iterator[Callable[[dict[str, int]], PortClaims]]:
    made: list[PortClaims] = []

    def claiming(preferred: dict[str, int]) -> PortClaims:
        made.append(claim_ports(preferred))
        return made[-1]

    yield claiming
    for claims in made:
        claims.release()


Claim = Callable[[dict[str, int]], PortClaims]


def test_a_taken_port_is_replaced_by_the_next_free_one(claim: Claim, taken: int) -> None:
    chosen = claim({"api": taken}).ports["api"]
    assert taken < chosen < taken + 200
    assert is_free(chosen)


def test_two_servers_that_wish_for_one_port_get_two(claim: Claim, taken: int) -> None:
    chosen = claim({"router-0": taken, "router-1": taken}).ports
    assert len(set(chosen.values())) == 2


def test_a_port_stays_claimed_until_it_is_released_although_nothing_listens_on_it_yet(claim: Claim) -> None:
    first = claim({"api": QUIET_PORT})
    port = first.ports["api"]
    assert is_free(port)
    assert claim({"api": port}).ports["api"] > port
    first.release()
    assert claim({"api": port}).ports["api"] == port


def test_sandboxes_that_start_at_once_get_ports_of_their_own_and_a_killed_one_gives_its_port_back(claim: Claim) -> None:
    command = [sys.executable, "-c", CLAIMING, str(QUIET_PORT)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("now\n")
            process.stdin.flush()
        chosen = [int(process.stdout.readline()) for process in processes if process.stdout is not None]
        assert len(set(chosen)) == 4, chosen
        assert claim({"api": chosen[0]}).ports["api"] not in chosen
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        assert claim({"api": chosen[0]}).ports["api"] == chosen[0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_claim_that_fails_half_way_keeps_no_port(claim: Claim) -> None:
    free = claim({"api": QUIET_PORT})
    port = free.ports["api"]
    free.release()
    with pytest.raises(SandboxError, match="no free port for router-0 from 70000"):
        claim({"api": port, "router-0": 70000})
    assert claim({"api": port}).ports["api"] == port


def test_a_listener_on_every_address_is_seen_at_an_address_nobody_uses(taken: int) -> None:
    assert first_free("engine", taken, "127.39.255.254") == taken, "it listens on one address only"
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        assert first_free("engine", port, "127.39.255.254") > port
