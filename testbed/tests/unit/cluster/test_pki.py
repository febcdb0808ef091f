"""Certificates: who they are for, who they were signed by, and that TLS accepts them."""

from __future__ import annotations

import base64
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from testbed.cluster import components, pki


def plane(directory: Path) -> components.ControlPlane:
    return components.ControlPlane(
        directory=directory,
        address="127.0.0.1",
        secure_port=6443,
        etcd_client_port=2379,
        etcd_peer_port=2380,
        service_cidr="198.51.100.0/24",
        service_address="198.51.100.1",
    )


def subject(certificate: x509.Certificate) -> tuple[str, list[str]]:
    names = certificate.subject
    common = names.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    groups = names.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(common), [str(group.value) for group in groups]


def test_a_client_is_a_user_in_groups_and_no_server() -> None:
    authority = pki.Authority.create("ca")
    issued = authority.issue("system:node:a100", organizations=("system:nodes",))
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    assert subject(certificate) == ("system:node:a100", ["system:nodes"])
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate.verify_directly_issued_by(authority.certificate)


def test_every_kubeconfig_carries_its_own_user_signed_by_the_cluster(tmp_path: Path) -> None:
    made = plane(tmp_path)
    components.write_credentials(made)
    authority = pki.Authority.load(made.pki, "ca")
    for name, (user, groups) in components.USERS.items():
        path = made.kubeconfig(name)
        content = yaml.safe_load(path.read_text())
        client = base64.b64decode(content["users"][0]["user"]["client-certificate-data"])
        certificate = x509.load_pem_x509_certificate(client)
        assert subject(certificate) == (user, list(groups))
        certificate.verify_directly_issued_by(authority.certificate)
        assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_private_key_is_readable_by_others(tmp_path: Path) -> None:
    made = plane(tmp_path)
    components.write_credentials(made)
    keys = list(made.pki.glob("*.key"))
    assert keys
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_a_kubelets_certificate_does_not_open_etcd(tmp_path: Path) -> None:
    made = plane(tmp_path)
    components.write_credentials(made)
    kubelet = pki.Authority.load(made.pki, "ca").issue("system:node:a100", organizations=("system:nodes",))
    kubelet.write(tmp_path, "kubelet")
    assert tls_accepts(made, "apiserver-etcd-client", made.pki)
    assert not tls_accepts(made, "kubelet", tmp_path)


def tls_accepts(made: components.ControlPlane, client: str, directory: Path) -> bool:
    """Whether a server with etcd's certificates lets this client in."""
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(made.pki / "etcd.crt", made.pki / "etcd.key")
    listening.load_verify_locations(made.pki / "etcd-ca.crt")
    listening.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cafile=str(made.pki / "etcd-ca.crt"))
    asking.load_cert_chain(directory / f"{client}.crt", directory / f"{client}.key")
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with listening.wrap_socket(theirs, server_side=True) as connection:
                connection.sendall(b"in")
        except ssl.SSLError:
            theirs.close()

    server = threading.Thread(target=serve)
    server.start()
    try:
        with asking.wrap_socket(ours, server_hostname="localhost") as connection:
            return connection.recv(2) == b"in"
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        server.join(10)


def test_loading_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    pki.Authority.create("ca").pair.write(tmp_path, "ca")
    (tmp_path / "ca.key").write_text("no key")
    with pytest.raises(ValueError, match=r"PEM|deserialize"):
        pki.Authority.load(tmp_path, "ca")
