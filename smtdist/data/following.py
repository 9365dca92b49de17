"""Where data may lie that a file only names: in its own folder, and where the user allows it.

A file from a stranger may name any file of this machine, or any address that this machine reaches. So what
a manifest, or an HDF5 file, says of other files is followed in its own folder and below alone, and where
the environment variable SMTDIST_FOLLOW says: folders, and beginnings of addresses such as
`https://data.example.org/` or `s3://`, between commas.
"""

from __future__ import annotations

import os
from typing import Final

from smtdist.data.remote import is_url
from smtdist.errors import DataError, option

ALLOWED: Final = "SMTDIST_FOLLOW"
CHAIN: Final = "::"
"""Between the parts of an address that fsspec opens one in the other."""


def allowed() -> list[str]:
    """Return the folders and the beginnings of addresses that the user allows."""
    return [part.strip() for part in os.environ.get(ALLOWED, "").split(",") if part.strip()]


def require(by: str, *named: str) -> None:
    """Refuse what a file or an address `by` names, paths or addresses, where it may not be followed."""
    places = allowed()
    addresses = [place for place in places if is_url(place)]
    folders = [os.path.realpath(place) for place in places if not is_url(place)]
    if not is_url(by):
        folders += [os.path.realpath(os.path.dirname(by)), os.path.dirname(os.path.realpath(by))]
    elif CHAIN not in by:
        addresses.append(f"{by.rpartition('/')[0]}/")
    for name in named:
        if not all(_may(part, addresses, folders) for part in name.split(CHAIN)):
            scheme, url, _ = name.partition("://")
            place = f"{scheme}://" if url else os.path.dirname(os.path.realpath(name))
            raise DataError(
                f"{by} names {name}, which lies outside its folder and is not read; if you trust it, allow that with "
                f"{option('the environment variable SMTDIST_FOLLOW', place)}."
            )


def _may(part: str, addresses: list[str], folders: list[str]) -> bool:
    if is_url(part):
        # an address is compared as text, so it must not lead up again
        plain = ".." not in part.replace("\\", "/").lower().replace("%2e", ".").split("/")
        return plain and any(_begins(part, place) for place in addresses)
    real = os.path.realpath(part)
    return any(os.path.commonpath([real, folder]) == folder for folder in folders)


def _begins(address: str, place: str) -> bool:
    return address == place or address.startswith(place if place.endswith("/") else f"{place}/")
