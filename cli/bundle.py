"""Everything that a sink of Kafka Connect needs, in one folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..deploy.jars import JDBC, fetch, read_lock
from ..errors import ConfigError
from ..topics.config.model import Kafka

WORKER = """\
# A standalone worker of Kafka Connect, 4.2 or later.{secured}
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.flush.interval.ms=5000
offset.storage.file.filename={folder}/offsets
plugin.path={folder}/plugins
"""
SECURED = """
# The cluster wants TLS or SASL: add Kafka's properties, and again with `consumer.` before each."""
README = """\
# A table of releases in PostgreSQL

1. Fill in `connection.username` and `connection.password` in `sink.properties`.
2. From the folder of Apache Kafka 4.2 or later:

   ```sh
   bin/connect-standalone.sh {folder}/worker.properties {folder}/sink.properties
   ```

3. The table has one row for each window and key, the newest; Connect creates it.

`plugins/jdbc` holds Debezium's JDBC sink with PostgreSQL's driver, each jar with a verified digest.
"""


def write_bundle(folder: Path, sink: str, kafka: Kafka) -> None:
    """Write jars, properties of a worker and of a sink, and a page with the commands.

    Args:
        folder: folder to create; it must not hold a bundle already, which may contain passwords.
        sink: properties of the connector.
        kafka: the cluster; its secrets are not written.

    Raises:
        ConfigError: the folder holds a bundle, or cannot be written.
        BrokerError: a jar cannot be downloaded, or is not the locked one.
        ExtraError: the client that downloads jars is not installed.
    """
    if (folder / "sink.properties").exists():
        raise ConfigError(f"--bundle {folder}: there is a bundle already: name another folder")
    try:
        plugins = folder / "plugins" / "jdbc"
        plugins.mkdir(parents=True, exist_ok=True)
        home = fetch(lock=JDBC)
        for jar in read_lock(JDBC):  # the cache may hold others, of an older lock
            shutil.copyfile(home / jar.filename, plugins / jar.filename)
        place = folder.resolve()
        secured = SECURED if kafka.security_protocol != "PLAINTEXT" else ""
        worker = WORKER.format(secured=secured, bootstrap=kafka.bootstrap, folder=place)
        (folder / "worker.properties").write_text(worker, "utf-8")
        (folder / "README.md").write_text(README.format(folder=place), "utf-8")
        (folder / "sink.properties").write_text(sink, "utf-8")
    except OSError as error:
        raise ConfigError(f"--bundle {folder}: {error.strerror}: name another folder") from None
