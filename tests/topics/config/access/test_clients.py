"""One connection table serves every client, and the real clients accept its options."""

from __future__ import annotations

import datetime as dt
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hushstream.errors import ConfigError
from hushstream.topics.config.access.clients import aiokafka_options, librdkafka_options
from hushstream.topics.config.load import Config, loads

SASL = """\
[kafka]
bootstrap = "b:1"
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "me"
"""

TLS = """\
[kafka]
bootstrap = "b:1"
security_protocol = "SSL"
ssl_cafile = "cert.pem"
ssl_certfile = "cert.pem"
ssl_keyfile = "key.pem"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a self-signed certificate, its encrypted key and a password."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = dt.datetime(2020, 1, 1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(encoding))
    locked = serialization.BestAvailableEncryption(b"canary")
    kind = serialization.PrivateFormat.PKCS8
    (tmp_path / "key.pem").write_bytes(key.private_bytes(encoding, kind, locked))
    (tmp_path / "password").write_text("from-file\n")
    return tmp_path


def _config(text: str, folder: Path, **environ: str) -> Config:
    return loads(text, folder=folder, environ=environ)


def test_plain() -> None:
    kafka = loads("", environ={}).kafka
    assert librdkafka_options(kafka) == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "PLAINTEXT",
        "log_level": 0,
    }
    assert aiokafka_options(kafka) == {
        "bootstrap_servers": "localhost:9092",
        "security_protocol": "PLAINTEXT",
        "request_timeout_ms": 30_000,
    }
    hasty = loads('[kafka]\nrequest_timeout = "2s"', environ={}).kafka
    assert aiokafka_options(hasty)["request_timeout_ms"] == 2_000


def test_sasl_with_a_password_from_environment_or_file(folder: Path) -> None:
    environ = {"HUSH_KAFKA__SASL_PASSWORD": "from-env"}
    kafka = _config(SASL, folder, **environ).kafka
    assert librdkafka_options(kafka)["sasl.password"] == "from-env"
    assert aiokafka_options(kafka)["sasl_plain_password"] == "from-env"
    filed = _config(SASL + 'sasl_password_file = "password"\n', folder).kafka
    assert librdkafka_options(filed)["sasl.password"] == "from-file"
    AdminClient(librdkafka_options(filed))
    with pytest.raises(ConfigError, match="HUSH_KAFKA__SASL_PASSWORD"):
        librdkafka_options(_config(SASL, folder).kafka)


def test_mutual_tls(folder: Path) -> None:
    kafka = _config(TLS, folder, HUSH_KAFKA__SSL_KEY_PASSWORD="canary").kafka
    context = aiokafka_options(kafka)["ssl_context"]
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    options = librdkafka_options(kafka)
    assert options["ssl.key.location"] == str(folder / "key.pem")
    assert options["ssl.endpoint.identification.algorithm"] == "https"
    AdminClient(options)
    wrong = _config(TLS, folder, HUSH_KAFKA__SSL_KEY_PASSWORD="wrong").kafka
    with pytest.raises(ConfigError, match="certificates or key"):
        aiokafka_options(wrong)


def test_the_password_of_a_key_comes_from_environment_or_file(folder: Path) -> None:
    (folder / "key.password").write_text("\ufeffcanary\n", "utf-8")
    filed = TLS + 'ssl_key_password_file = "key.password"\n'
    kafka = _config(filed, folder).kafka
    assert aiokafka_options(kafka)["ssl_context"].check_hostname
    AdminClient(librdkafka_options(kafka))
    wrong = _config(filed, folder, HUSH_KAFKA__SSL_KEY_PASSWORD="wrong").kafka
    with pytest.raises(ConfigError, match="certificates or key"):
        aiokafka_options(wrong)
    with pytest.raises(ConfigError, match="certificates or key"):  # without a prompt
        aiokafka_options(_config(TLS, folder).kafka)


@pytest.mark.parametrize(("content", "told"), [(None, "No such file"), (b"", "is empty"),
                                               (b"\xff", "is not UTF-8")])  # fmt: skip
def test_a_file_without_a_password_is_named(content: bytes | None, told: str, folder: Path) -> None:
    if content is not None:
        (folder / "other").write_bytes(content)
    kafka = _config(SASL + 'sasl_password_file = "other"\n', folder).kafka
    with pytest.raises(ConfigError, match=f"kafka.sasl_password_file.*other.*{told}"):
        librdkafka_options(kafka)


TOKENS = SASL.replace("SCRAM-SHA-512", "OAUTHBEARER") + 'sasl_password_file = "password"\n'


def test_tokens(folder: Path) -> None:
    text = TOKENS + 'sasl_token_url = "https://id/token"\nsasl_token_extensions = "a=1,b=x.y"\n'
    options = librdkafka_options(_config(text, folder).kafka)
    assert options["sasl.oauthbearer.client.id"] == "me"
    assert options["sasl.oauthbearer.client.secret"] == "from-file"
    assert options["sasl.oauthbearer.extensions"] == "a=1,b=x.y"
    assert "sasl.username" not in options and "sasl.oauthbearer.scope" not in options
    AdminClient(options)
    assert "sasl_plain_password" not in aiokafka_options(_config(text, folder).kafka)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TOKENS, "OAUTHBEARER needs sasl_token_url"),
        (TOKENS + 'sasl_token_url = "http://id/token"\n', "must be an https:// address"),
        (TOKENS + 'sasl_token_url = "https://me:pw@id/token"\n', "without credentials"),
        (TOKENS + 'sasl_token_extensions = "a"\n', "must be name=value"),
        (SASL + 'sasl_token_scope = "a"\n', "needs sasl_mechanism = OAUTHBEARER"),
        ('[kafka]\nsasl_token_url = "https://id"\n', "needs security_protocol"),
    ],
)
def test_tokens_that_would_not_do(text: str, told: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        _config(text, folder)


@pytest.mark.parametrize(("more", "quiet"), [({}, True), ({"log_level": 6}, False)])
def test_a_refused_connection_is_not_a_line_of_the_library(
    more: dict[str, int], quiet: bool
) -> None:
    program = f"""
from confluent_kafka.admin import AdminClient
from hushstream.topics.config.access.clients import librdkafka_options
from hushstream.topics.config.model import Kafka
client = AdminClient(librdkafka_options(Kafka("127.0.0.1:9")) | {more!r})
try:
    client.list_topics(timeout=2)
except Exception as error:
    print(type(error).__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "KafkaException\n"
    assert (done.stderr == "") == quiet
