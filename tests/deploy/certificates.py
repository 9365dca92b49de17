"""An authority of its own and a certificate for each role: the files of the secret smtdist-tls."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROLES = ("scheduler", "worker", "client")


def make(folder):
    """Write ca.pem and, for each role, ROLE.pem and ROLE-key.pem."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    authority, signer = _certificate("smtdist test authority", None, None)
    (folder / "ca.pem").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    for role in ROLES:
        certificate, key = _certificate(f"smtdist {role}", authority, signer)
        (folder / f"{role}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / f"{role}-key.pem").write_bytes(key.private_bytes(*plain))
    return folder


def _certificate(name, issuer, signer):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed_by = signer or key
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by.public_key()), critical=False
        )
        .sign(signed_by, hashes.SHA256())
    )
    return certificate, key
