"""A broker with TLS, SASL and Kafka's own authorizer, so clients need identities and rights.

The plain listener is for the super user, the test itself; clients use the TLS listeners.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import free_port

HOST = "127.0.0.1"
PASSWORD = "a-password"  # of every user
LOGIN = "org.apache.kafka.common.security"
Granted = tuple[
    str, str, str, bool, str
]  # user, kind of resource, name, whether it is a prefix, operation


class Authority:
    """A certificate authority of one test, in a folder.

    Args:
        folder: folder for ``ca.pem`` and all certificates.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("test authority")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        made = _built(self._name, self._name, self._key.public_key()).add_extension(
            constraints, critical=True
        )
        self.cafile = folder / "ca.pem"
        self.cafile.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def issue(self, who: str) -> tuple[Path, Path]:
        """Make a certificate for ``CN=who`` on this machine, and its key; both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        places = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
        made = _built(_name(who), self._name, key.public_key()).add_extension(
            x509.SubjectAlternativeName(places), critical=False
        )
        cert, secret = self._folder / f"{who}.pem", self._folder / f"{who}.key"
        cert.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        kind = serialization.PrivateFormat.PKCS8
        plain = serialization.NoEncryption()
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, plain))
        return cert, secret


def _name(who: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who)])


def _built(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )


def _pem(made: x509.Certificate) -> bytes:
    return made.public_bytes(serialization.Encoding.PEM)


class Secured:
    """The running broker.

    Args:
        broker: running broker.
        ports: ports of the listeners ``sasl`` and ``mutual``.
        authority: certificate authority that its clients trust.
    """

    def __init__(self, broker: Broker, ports: Mapping[str, int], authority: Authority) -> None:
        self.broker, self.authority = broker, authority
        self._ports = ports
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def bootstrap(self, listener: str = "sasl") -> str:
        """Address of a listener: ``sasl`` (SASL over TLS) or ``mutual`` (certificates)."""
        return f"{HOST}:{self._ports[listener]}"

    def add(self, *users: str) -> None:
        """Let users sign in by SCRAM, all with `PASSWORD`."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = [UserScramCredentialUpsertion(u, info, PASSWORD.encode()) for u in users]
        for future in self.admin.alter_user_scram_credentials(wanted).values():
            future.result()

    def grant(self, given: Iterable[Granted]) -> None:
        """Allow operations."""
        for future in self.admin.create_acls([_binding(*one) for one in given]).values():
            future.result()

    def revoke(self, given: Iterable[Granted]) -> None:
        """Remove rights that were granted in exactly this form."""
        filters = [_filter(*one) for one in given]
        for future in self.admin.delete_acls(filters).values():
            future.result()

    def toml(self, user: str) -> str:
        """The ``[kafka]`` table of a user who signs in by SCRAM; writes the password's file."""
        return (
            f'[kafka]\nbootstrap = "{self.bootstrap()}"\nsecurity_protocol = "SASL_SSL"\n'
            f'sasl_mechanism = "SCRAM-SHA-512"\nsasl_username = "{user}"\n'
            f'sasl_password_file = "{self.password}"\nssl_cafile = "{self.authority.cafile}"\n'
            'outage_timeout = "60s"\n'
        )

    @property
    def password(self) -> Path:
        """File with `PASSWORD`."""
        path = self.authority.cafile.parent / "password"
        path.write_text(PASSWORD + "\n")
        path.chmod(0o600)
        return path


def _binding(user: str, kind: str, name: str, prefixed: bool, operation: str) -> AclBinding:
    return AclBinding(*_pattern(user, kind, name, prefixed, operation))


def _filter(user: str, kind: str, name: str, prefixed: bool, operation: str) -> AclBindingFilter:
    return AclBindingFilter(*_pattern(user, kind, name, prefixed, operation))


def _pattern(user: str, kind: str, name: str, prefixed: bool, operation: str) -> tuple[object, ...]:
    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "cluster": ResourceType.BROKER,
        "transactional-id": ResourceType.TRANSACTIONAL_ID,
    }
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    allowed = AclPermissionType.ALLOW
    return (
        kinds[kind], name, pattern, f"User:{user}", "*",
        AclOperation[operation], allowed,
    )  # fmt: skip


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """A secured broker with its data in its own folder, stopped at the end.

    Args:
        folder: folder for certificates and passwords.
    """
    authority = Authority(folder)
    ports = {name: free_port() for name in ("plain", "controller", "sasl", "mutual")}
    overrides = _settings(ports, authority, *authority.issue("broker"))
    with Broker(quiet=True, port=ports["plain"], overrides=overrides) as broker:
        yield Secured(broker, ports, authority)


def _settings(
    ports: Mapping[str, int], authority: Authority, cert: Path, key: Path
) -> dict[str, str]:
    """The broker's settings: who may sign in on which listener and how, and who grants rights."""
    names = {"PLAINTEXT": "plain", "CONTROLLER": "controller", "SASL": "sasl", "MUTUAL": "mutual"}
    at = {name: f"{name}://{HOST}:{ports[place]}" for name, place in names.items()}
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "SASL": "SASL_SSL"}
    plain = f"{LOGIN}.plain.PlainLoginModule required "
    unsigned = f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub"
    handlers = f"{LOGIN}.oauthbearer.internals.unsecured"
    sasl = "listener.name.sasl."
    return {
        "listeners": ",".join(at.values()),
        "advertised.listeners": ",".join(at[name] for name in at if name != "CONTROLLER"),
        "controller.quorum.voters": f"1@{HOST}:{ports['controller']}",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocols.get(name, 'SSL')}" for name in names
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _line(cert),
        "ssl.keystore.key": _line(key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _line(authority.cafile),
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        f"{sasl}sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        f"{sasl}scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
        f"{sasl}plain.sasl.jaas.config": f'{plain}user_plain="{PASSWORD}";',
        # An unsigned token: these tests are not about signatures of tokens.
        f"{sasl}oauthbearer.sasl.jaas.config": f'{unsigned}="broker";',
        f"{sasl}oauthbearer.sasl.server.callback.handler.class": (
            f"{handlers}.OAuthBearerUnsecuredValidatorCallbackHandler"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:ANONYMOUS",
    }


def _line(path: Path) -> str:
    """A PEM file as one line of a Java properties file."""
    return path.read_text().strip().replace("\n", " ")
