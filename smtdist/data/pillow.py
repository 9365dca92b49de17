"""Images that Pillow decodes: headers of WebP, GIF, BMP, TIFF and others, and the pixels of any format."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from smtdist.errors import DataError

MAX_PIXELS: Final = 32 * 2**20
"""Images with more pixels are refused before anything is allocated: a forged header must not take the memory."""
BYTES_A_PIXEL: Final = 12
"""What decoding and scaling a JPEG or PNG takes at most: 9 as measured, for a progressive JPEG in full colour."""
OTHER_BYTES_A_PIXEL: Final = 24
"""The same of other formats: 20 as measured, for lossless WebP with alpha."""
COPIED_PIXELS: Final = 2**18
GREY_MODES: Final = ("1", "L", "LA", "La")
COLOUR_MODES: Final = ("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
BITS_OF_TIFF: Final = 258  # the tag BitsPerSample (TIFF 6.0, section 4)
_NO_PIXELS: Final = ("BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF")
_UNREADABLE: Final = (
    OSError,
    SyntaxError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    struct.error,
    zlib.error,
)

Pixels = npt.NDArray[np.uint8]
Encoded = bytes | memoryview


class Header(NamedTuple):
    """What an encoded image says of itself: rows, columns, channels (1 for grey, else 3), its format as "jpeg" or "webp".

    `space` is the colour space of a JPEG that libjpeg-turbo reads; "" where Pillow decodes the image.
    """

    height: int
    width: int
    channels: int
    format: str
    space: str = ""

    @property
    def pixel_bytes(self) -> int:
        """Bytes a pixel that decoding and scaling takes at most."""
        return BYTES_A_PIXEL if self.format in ("jpeg", "png") else OTHER_BYTES_A_PIXEL

    def require_pixels(self) -> Header:
        """Return this header, or raise DataError where it states more than `MAX_PIXELS`."""
        if self.height * self.width > MAX_PIXELS:
            raise DataError(
                f"the image is {self.width} x {self.height}, more than {MAX_PIXELS:,} pixels; scale it down first."
            )
        return self


@functools.cache
def formats() -> tuple[str, ...]:
    """Return the formats that are read, by Pillow's names.

    Left out are those that Pillow knows by name only or hands to another program (EPS), and those that
    begin with no signature (TGA): any bytes could pose as one.
    """
    Image.init()
    return tuple(
        name for name, (_, accept) in Image.OPEN.items() if accept is not None and name not in _NO_PIXELS
    )


@functools.cache
def endings() -> tuple[str, ...]:
    """Return the endings of files in these formats, with their dots."""
    known = formats()
    return tuple(sorted(end for end, name in Image.registered_extensions().items() if name in known))


def read_other_header(data: Encoded) -> Header:
    """Return the header of an image that is neither JPEG nor PNG; DataError for bytes that Pillow does not know.

    Images of more than 8 bits a channel are refused, and those with several frames or pages.
    """
    start, known = bytes(data[:30]), ""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        # Pillow allocates the frame when it opens one
        known = _webp_size(start).require_pixels().format.upper()
    with open_picture(data, known) as picture:
        name, mode = str(picture.format), picture.mode
        Header(picture.height, picture.width, 3, name).require_pixels()
        bits = picture.tag_v2.get(BITS_OF_TIFF, (8,)) if hasattr(picture, "tag_v2") else (8,)
        if (
            mode not in GREY_MODES + COLOUR_MODES
            or max(np.atleast_1d(bits)) > 8
            or _would_be_cut(picture, data)
        ):
            raise DataError(
                f"the {name} image has more than 8 bits a channel, but pixels have 8; convert it to 8 bits."
            )
        try:
            several = getattr(picture, "is_animated", False)
        except _UNREADABLE as error:
            raise damaged(name, error) from error
        if several:
            raise DataError(
                f"the {name} image has several frames; keep one of them, as an image of its own."
            )
        return Header(picture.height, picture.width, 1 if mode in GREY_MODES else 3, name.lower())


def _would_be_cut(picture: Image.Image, data: Encoded) -> bool:
    """Say whether Pillow would cut wider channels to 8 bits: by the largest value of PPM, and what SGI and JPEG 2000 state."""
    if picture.format == "JPEG2000":
        at = bytes(data).find(b"\xff\x4f\xff\x51") + 42  # ISO 15444-1, A.5.1
        return int.from_bytes(data[at : at + 1]) & 0x7F > 7
    if picture.format not in ("PPM", "SGI"):
        return False
    codec, _, _, form = picture.tile[0]  # type: ignore[attr-defined]  # of files alone
    if picture.format == "SGI":
        return bool(codec == "SGI16" or form[-1] == 2)
    return isinstance(form[-1], int) and form[-1] > 255


def _webp_size(start: bytes) -> Header:
    """Return the size of a WebP image from its first 30 bytes (RFC 9649, sections 2.5 to 2.7)."""
    kind, body = start[12:16], start[20:]
    if len(start) == 30 and kind == b"VP8X":
        width, height = (1 + int.from_bytes(body[at : at + 3], "little") for at in (4, 7))
    elif len(start) >= 25 and kind == b"VP8L":
        packed = int.from_bytes(body[1:5], "little")
        width, height = 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
    elif len(start) == 30 and kind == b"VP8 ":
        width, height = (int.from_bytes(body[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    else:
        raise DataError("the bytes are not a complete WEBP image; restore it from a good copy.")
    return Header(height, width, 3, "webp")


def loaded(data: Encoded, header: Header) -> Pixels:
    """Return the pixels (H, W, C) of an image, C as in its header; alpha is dropped, palettes become colour.

    Raises DataError where the image is damaged, in a sentence without the place.
    """
    name = header.format.upper()
    with open_picture(data, name) as picture:
        if picture.size != (header.width, header.height):
            raise DataError(
                f"the {name} image has two different sizes in its header; restore it from a good copy."
            )
        picture.info.pop("transparency", None)  # one colour or palette entry that would be see-through
        try:
            picture.load()
        except _UNREADABLE as error:
            raise damaged(name, error) from error
        return _copied(picture, header)


def _copied(picture: Image.Image, header: Header) -> Pixels:
    """Convert and copy a few rows at a time: Pillow would hold the image three times over."""
    pixels = np.empty((header.height, header.width, header.channels), np.uint8)
    step = max(1, COPIED_PIXELS // header.width)
    for top in range(0, header.height, step):
        rows = picture.crop((0, top, header.width, min(top + step, header.height)))
        rows = rows.convert("L" if header.channels == 1 else "RGB")
        pixels[top : top + step] = np.asarray(rows).reshape(-1, header.width, header.channels)
    return pixels


def open_picture(data: Encoded, name: str = "") -> Image.Image:
    """Open an image, in the format `name` or any that is read; DataError for bytes that are none."""
    known = [name] if name else [one for one in formats() if one not in ("JPEG", "PNG")]
    try:
        return Image.open(io.BytesIO(data), formats=known)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(
            f"the {name or 'encoded'} image says that it has more than {MAX_PIXELS:,} pixels; scale it down first."
        ) from error
    except UnidentifiedImageError as error:
        said = f"the bytes are not a complete {name} image; restore it from a good copy."
        if not name:
            said = (
                "the bytes are no image in a known format, such as JPEG, PNG or WebP; leave out that sample, or encode it "
                "anew."
            )
        raise DataError(said) from error
    except _UNREADABLE as error:
        # Pillow's own message names an object in memory
        raise DataError(
            f"the bytes are not a complete {name or 'encoded'} image; restore it from a good copy."
        ) from error


def damaged(name: str, error: BaseException) -> DataError:
    """Return the sentence for an image in the format `name` whose pixels cannot be decoded."""
    reason = str(error).strip().rstrip(".") or type(error).__name__
    return DataError(f"the {name} image is damaged ({reason}); restore it from a good copy.")
