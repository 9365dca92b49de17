"""Certificates for a cluster of one's own: who has one of them may take part, nobody else.

Dask's TLS authenticates both sides of every connection by the authority that signed them, whatever the host
is called. So the authority here signs exactly three certificates and its key is never written: no fourth
can be made. The client's certificate is good for connecting only: with it nobody can pose as a scheduler.
Whoever connects may run code, so this divides mistakes, not powers.
"""

from __future__ import annotations

import datetime
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smtdist.errors import ConfigurationError, SmtdistError

if TYPE_CHECKING:  # certificates are made and found without Dask
    from distributed.security import Security

ROLES = ("scheduler", "worker", "client")
AUTHORITY = "ca.pem"
FRAGMENT = "dask.yaml"
DAYS = 365


def create(folder: Path, days: int = DAYS) -> Path:
    """Make an authority and certificates for scheduler, workers and clients; return the folder's absolute path.

    The folder (mode 0700) holds `ca.pem`, `ROLE.pem` and `ROLE-key.pem` (mode 0600) for the three roles, and
    `dask.yaml`, which points to them in Dask's own configuration. It appears whole or not at all.

    Raises SmtdistError where the folder holds something already, or the package `cryptography` is missing.

    >>> with tempfile.TemporaryDirectory() as parent:
    ...     made = create(Path(parent) / "tls")
    ...     (oct(made.stat().st_mode & 0o777), sorted(path.name for path in made.glob("client*")))
    ('0o700', ['client-key.pem', 'client.pem'])
    """
    if days < 1:
        raise ConfigurationError(f"Certificates cannot be valid for {days} days; give at least 1.")
    folder = Path(os.path.abspath(folder))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SmtdistError(
            f"{folder} exists; give a new folder, or delete that one and give its certificates to all machines again."
        )
    contents = _signed(days)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # mode 0700
    try:
        for name, text in {**contents, FRAGMENT: _fragment(folder)}.items():
            descriptor = os.open(made / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.write(text)
        os.rename(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return folder


def _fragment(folder: Path) -> str:
    """Return Dask's configuration for these certificates; paths are quoted as JSON strings, which YAML reads."""
    import json

    lines = [
        "# Dask's configuration for the certificates beside this file: DASK_CONFIG, or the configuration of a run, may name it",
        "distributed:",
        "  comm:",
        "    require-encryption: true",
        "    default-scheme: tls",
        "    tls:",
        f"      ca-file: {json.dumps(str(folder / AUTHORITY))}",
    ]
    for role in ROLES:
        lines += [
            f"      {role}:",
            f"        cert: {json.dumps(str(folder / f'{role}.pem'))}",
            f"        key: {json.dumps(str(folder / f'{role}-key.pem'))}",
        ]
    return "\n".join([*lines, ""])


def _signed(days: int) -> dict[str, str]:
    """Return the contents of the certificates and keys by file name; the authority's key is forgotten."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise SmtdistError(
            "Making certificates needs the package cryptography, which is not installed; pip install cryptography."
        ) from None
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)  # clocks differ a little
    end = begin + datetime.timedelta(days=days, minutes=5)

    def named(name: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def usage(*, signs_certificates: bool) -> Any:
        return x509.KeyUsage(
            digital_signature=not signs_certificates,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=signs_certificates,
            crl_sign=signs_certificates,
            encipher_only=False,
            decipher_only=False,
        )

    def builder(name: str, key: Any) -> Any:
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("smtdist authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False
            )
        )

    def pem(certificate: Any) -> str:
        return str(certificate.public_bytes(serialization.Encoding.PEM).decode())

    authority = ec.generate_private_key(ec.SECP256R1())
    signed = (
        builder("smtdist authority", authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(signs_certificates=True), critical=True)
        .sign(authority, hashes.SHA256())
    )
    found = {AUTHORITY: pem(signed)}
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role != "client":
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        found[f"{role}.pem"] = pem(
            builder(f"smtdist {role}", key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(f"smtdist-{role}")]), critical=False)
            .sign(authority, hashes.SHA256())
        )
        found[f"{role}-key.pem"] = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
    return found


def security_from(folder: Path, roles: Sequence[str] = ("client",)) -> Security:
    """Return Dask's security object for a folder of `create`; encryption is then required of every connection.

    Raises ConfigurationError where a file that the roles need is missing, or a key can be read by everybody.
    """
    from distributed.security import Security

    folder = Path(os.path.abspath(folder))
    needed = {"tls_ca_file": folder / AUTHORITY}
    for role in roles:
        needed[f"tls_{role}_cert"] = folder / f"{role}.pem"
        needed[f"tls_{role}_key"] = folder / f"{role}-key.pem"
    for path in needed.values():
        if not path.is_file():
            raise ConfigurationError(
                f"{folder} has no {path.name}; give a folder made by `smtdist tls init`, with all its files."
            )
        if path.name.endswith("-key.pem") and path.stat().st_mode & stat.S_IROTH:
            raise ConfigurationError(f"Everybody can read the key {path}; make it private with chmod 600.")
    return Security(require_encryption=True, **{name: str(path) for name, path in needed.items()})


def temporary() -> Security:
    """Return a security object of certificates that only this process knows, and those that it starts: they are in no file."""
    from distributed.security import Security

    made = _signed(DAYS)
    named = {
        f"tls_{role}_{part}": made[f"{role}{end}.pem"]
        for role in ROLES
        for part, end in (("cert", ""), ("key", "-key"))
    }
    return Security(require_encryption=True, tls_ca_file=made[AUTHORITY], **named)


def configuration_of(security: Security) -> dict[str, Any]:
    """Return Dask's configuration that says the same as a security object, for processes that inherit it."""
    found: dict[str, Any] = {
        "distributed.comm.require-encryption": bool(security.require_encryption),
        "distributed.comm.tls.ca-file": security.tls_ca_file,
    }
    for role in ROLES:
        found[f"distributed.comm.tls.{role}.cert"] = getattr(security, f"tls_{role}_cert")
        found[f"distributed.comm.tls.{role}.key"] = getattr(security, f"tls_{role}_key")
    return found
