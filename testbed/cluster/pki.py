"""Certificates of a cluster: what kubeadm would make, made in memory and written once.

Two authorities, as in kubeadm: one for the cluster and one for etcd, so that a kubelet's certificate does not open the
store. Keys are EC P-256, which take a millisecond each.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = datetime.timedelta(days=365)
# Certificates are valid from a while ago: a Pod may see a clock that is a little behind.
BACKDATE = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class KeyPair:
    """A PEM certificate and its PEM private key."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> None:
        """Writes NAME.crt and NAME.key, the key readable by its owner only."""
        (directory / f"{name}.crt").write_bytes(self.certificate)
        write_secret(directory / f"{name}.key", self.key)


@dataclass(frozen=True)
class Authority:
    """A certificate authority that signs for one year."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, common_name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(common_name, ())
            .issuer_name(_subject(common_name, ()))
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, directory: Path, name: str) -> Authority:
        """Reads what `KeyPair.write` wrote."""
        key = serialization.load_pem_private_key((directory / f"{name}.key").read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{directory / name}.key is no EC key")
        return cls(x509.load_pem_x509_certificate((directory / f"{name}.crt").read_bytes()), key)

    @property
    def pair(self) -> KeyPair:
        return KeyPair(self.certificate.public_bytes(serialization.Encoding.PEM), _pem(self.key))

    def issue(
        self,
        common_name: str,
        *,
        organizations: tuple[str, ...] = (),
        dns_names: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
    ) -> KeyPair:
        """A certificate for a client and, where it names hosts or addresses, for a server as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(common_name, organizations)
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        if names:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False).sign(
            self.key, hashes.SHA256()
        )
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def create_service_account_key(directory: Path) -> None:
    """Writes service-account.key and service-account.pub, with which ServiceAccount tokens are signed and checked."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(directory / "service-account.key", _pem(key))
    (directory / "service-account.pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def kubeconfig(server: str, authority: Authority, user: str, client: KeyPair) -> str:
    """A self-contained kubeconfig: certificates are inside, no path of this machine."""

    def encode(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "local",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": encode(authority.pair.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": encode(client.certificate),
                        "client-key-data": encode(client.key),
                    },
                }
            ],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
            "current-context": "local",
        },
        sort_keys=False,
    )


def write_secret(path: Path, data: bytes) -> None:
    """Writes a file that only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)


def _builder(common_name: str, organizations: tuple[str, ...]) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(common_name, organizations))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + VALIDITY)
    )


def _subject(common_name: str, organizations: tuple[str, ...]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
