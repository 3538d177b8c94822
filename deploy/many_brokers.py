"""``python -m hushstream.deploy.many_brokers``: run once before starting many brokers."""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import class_archive
from .broker import Broker, classpath_of_kafka
from .java import find_java
from .settings import JVM_FLAGS


def make_class_archive() -> Path:
    """Make the archive of classes for this user's brokers: start one, and note what it loads.

    An archive that exists is left as it is. Raises `BrokerError` if Kafka or Java is missing, or
    Java made no archive.
    """
    java, classpath = find_java(), classpath_of_kafka(quiet=True)
    archive = class_archive.place(java, classpath)
    if archive.is_file():
        return archive
    with tempfile.TemporaryDirectory(prefix="hush-classes-") as folder:
        listed = Path(folder) / "classes"
        with Broker(quiet=True, java_flags=class_archive.listing(listed)):
            pass  # what it loads until it serves
        return class_archive.make(java, JVM_FLAGS, classpath, listed)


if __name__ == "__main__":
    print(make_class_archive())
