"""Hosts on one machine: network namespaces on a bridge, each with a Ray node. A host can be lost, or cut off.

Needs root and `ip`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.soak.drivers import DriverProcess

PORT = 6399
_ENDS_S = 10.0


def refusal() -> str | None:
    """Why this machine has no such hosts, None where it has."""
    if os.name != "posix" or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip is missing"
    try:
        hosts = Hosts(1)
        try:
            hosts.make()
        finally:
            hosts.end()
    except subprocess.CalledProcessError as error:
        return f"`{' '.join(error.cmd)}` was refused"
    return None


class Hosts:
    """So many hosts; Ray's head is on number 0."""

    def __init__(self, count: int) -> None:
        self.count, self._mark = count, f"lg{os.getpid() % 100_000}"
        self.names = [f"{self._mark}-{host}" for host in range(count)]
        self.address = f"10.78.0.1:{PORT}"
        self.environment = os.environ | {
            "GLOO_SOCKET_IFNAME": "eth0",  # the machine's own name is none of these hosts'
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),  # of this Ray alone
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_health_check_initial_delay_ms": "2000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
        }

    def make(self) -> None:
        """The namespaces and their links. Raises: CalledProcessError."""
        _ip("link", "add", f"{self._mark}b", "type", "bridge")
        _ip("link", "set", f"{self._mark}b", "up")
        for host, name in enumerate(self.names):
            _ip("netns", "add", name)
            _ip("link", "add", self._end(host), "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", self._end(host), "master", f"{self._mark}b", "up")
            _ip("-n", name, "address", "add", f"{self.ip(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")

    def start_ray(self, folder: str) -> None:
        """A Ray node on each."""
        ray = str(Path(sys.executable).with_name("ray"))
        for host in range(self.count):
            where = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={folder}"]
            command = [*self.prefix(host), ray, "start", *(where if host == 0 else [f"--address={self.address}"])]
            command += [f"--node-ip-address={self.ip(host)}", "--num-cpus=1", f"--object-store-memory={100 << 20}"]
            subprocess.run(command, check=True, capture_output=True, env=self.environment)

    def driver(self, host: int) -> DriverProcess:
        """A driver there."""
        return DriverProcess(self.address, self.prefix(host), self.environment, self.ip(host))

    def ip(self, host: int) -> str:
        """Its address."""
        return f"10.78.0.{host + 1}"

    def prefix(self, host: int) -> list[str]:
        """What runs a command on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def processes(self, host: int) -> list[int]:
        """Of all that runs there."""
        run = subprocess.run(["ip", "netns", "pids", self.names[host]], capture_output=True, text=True, check=False)
        return [int(word) for word in run.stdout.split()]

    def lose(self, host: int) -> None:
        """SIGKILL to all that runs there."""
        for process in self.processes(host):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def cut_off(self, host: int, *, ended: bool = False) -> None:
        """Takes the host's link away, or gives it back."""
        _ip("link", "set", self._end(host), "up" if ended else "down")

    def end(self) -> None:
        """Ends all that runs there, and removes the hosts."""
        until = time.monotonic() + _ENDS_S
        for host, name in enumerate(self.names):
            while self.processes(host) and time.monotonic() < until:
                self.lose(host)
                time.sleep(0.1)
            for what in (["link", "delete", self._end(host)], ["netns", "delete", name]):
                subprocess.run(["ip", *what], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", f"{self._mark}b"], capture_output=True, check=False)

    def _end(self, host: int) -> str:
        return f"{self._mark}e{host}"


@contextmanager
def ray_hosts(count: int) -> Iterator[Hosts]:
    """Hosts with Ray; they go with the block."""
    hosts, folder = Hosts(count), tempfile.mkdtemp(prefix="r")  # short: sockets lie in it
    try:
        hosts.make()
        hosts.start_ray(folder)
        yield hosts
    finally:
        hosts.end()
        shutil.rmtree(folder, ignore_errors=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
