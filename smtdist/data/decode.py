"""Encoded images to pixels: JPEG by libjpeg-turbo, all others and unusual JPEGs by Pillow; the same bits everywhere."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, UnidentifiedImageError

from smtdist.errors import DataError, set_to
from smtdist.kernels import pixels as pixel_values

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
        # a few rows at a time: Pillow would hold the image three times over
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


DECODER: Final = "simplejpeg and Pillow"
_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_GREY: Final = (0, 4)  # colour types of PNG (ISO/IEC 15948, 11.2.2): grey, and grey with alpha
_PNG_COLOURS: Final = (0, 2, 3, 4, 6)


def read_header(data: Encoded) -> Header:
    """Return the size and kind of an encoded image; its pixels are not decoded.

    Grey images, with alpha or without, have one channel; all others, palettes among them, have three.
    Raises DataError, in a sentence without the place, for bytes in a format that is not known, for more
    than 8 bits a channel, for several frames, and for more than `MAX_PIXELS` pixels.

    >>> read_header(encode_png(np.zeros((2, 3, 1), np.uint8)))
    Header(height=2, width=3, channels=1, format='png', space='')
    """
    start = bytes(data[:8])
    if not start:
        raise DataError("the image is missing, since it has no bytes; leave out that sample.")
    if start.startswith(_JPEG):
        try:
            height, width, space, _ = simplejpeg.decode_jpeg_header(data)
        except ValueError:  # chroma sampled in an unusual way, or no image at all
            with open_picture(data, "JPEG") as picture:
                channels = 1 if picture.mode == "L" else 3
                return Header(picture.height, picture.width, channels, "jpeg").require_pixels()
        return Header(height, width, 1 if space == "Gray" else 3, "jpeg", space).require_pixels()
    if start == _PNG:
        return _png_header(data).require_pixels()
    return read_other_header(data)


def decode(data: Encoded, channels: int | None = None, header: Header | None = None) -> Pixels:
    """Return the pixels of an encoded image as uint8 (H, W, C), C as in its header or `channels` (1 or 3).

    JPEG: accurate integer DCT, smooth chroma upsampling; orientation tags are not applied, and an image
    that the library has to guess parts of (cut short, damaged) is refused. Others: alpha is dropped,
    palettes become colour; the checksums of PNG are verified. Colour becomes grey as rint((77 R + 150 G +
    29 B) / 256), grey becomes colour by repeating it. `header` is what `read_header` gave for the same
    bytes, where it has been read already. Memory: the result; up to 6 bytes a pixel on top for progressive
    JPEGs, 4 for PNGs, CMYK and colour made grey, 20 for WebP and other formats.
    Other threads run meanwhile. Raises DataError in a sentence without the place.

    >>> decode(encode_png(np.full((1, 1, 3), 9, np.uint8)), channels=1).tolist()
    [[[9]]]
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"Images have 1 or 3 channels, not {channels}.")
    header = header or read_header(data)
    wanted = _wanted(header, channels)
    if header.format == "png":
        _verify_png(data)
    if header.space:
        pixels = _decode_turbo(data, wanted)
        if wanted == "CMYK":
            del pixels  # four inks are found sound by the one library and turned into colour by the other
    if not header.space or wanted == "CMYK":
        pixels = loaded(data, header)
    return with_channels(pixels, channels or header.channels)


def verify(data: Encoded) -> Header:
    """Return the header of an image that `decode` would decode; raise its DataError where it would not.

    A JPEG's coefficients are decoded to the end but become an image of one eighth of the size, which takes
    two thirds of the time: all that can be damaged comes before the pixels are made.

    >>> verify(encode_png(np.zeros((2, 3, 1), np.uint8))).width
    3
    """
    header = read_header(data)
    if header.space:
        _decode_turbo(data, _wanted(header, None), min_height=1, min_width=1)
    else:
        decode(data, header=header)
    return header


def encode_png(image: npt.NDArray[np.uint8]) -> bytes:
    """Return a uint8 image (H, W), (H, W, 1) or (H, W, 3) as a PNG, which `decode` gives back bit by bit."""
    grey = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 1)
    if (
        image.dtype != np.uint8
        or image.size == 0
        or not (grey or (image.ndim == 3 and image.shape[2] == 3))
    ):
        raise DataError(
            f"A PNG cannot be made of {image.dtype} {image.shape}; give uint8 of (height, width, 1 or 3)."
        )
    room = io.BytesIO()
    Image.fromarray(image.reshape(image.shape[:2]) if grey else image).save(room, "PNG")
    return room.getvalue()


def one_size(side: int) -> str:
    """Return what to do about images of several sizes."""
    return f"make all {side} x {side}: a fit with {set_to('resize', side)} does so, and cuts what is not square"


def resized_shape(height: int, width: int, resize: int | None, crop: int | None) -> tuple[int, int]:
    """Return (rows, columns) of a resized and cropped image; raise DataError where it cannot be made.

    >>> resized_shape(30, 40, 15, None), resized_shape(30, 40, None, 20), resized_shape(30, 40, None, None)
    ((15, 15), (20, 20), (30, 40))
    """
    scaled = scaled_shape(height, width, resize)
    side = resize if crop is None else crop
    if side is None:
        return scaled
    if side > min(scaled):
        made = f"{width} x {height}" + ("" if resize is None else f", scaled to {scaled[1]} x {scaled[0]}")
        raise DataError(
            f"the image is {made}, too small for crop = {side}; lower crop, or set resize to at least as much."
        )
    return side, side


def resized(image: Pixels, resize: int | None, crop: int | None) -> Pixels:
    """Return an image (H, W, C) scaled and cut: its shorter side to `resize` pixels, then the middle `crop` square.

    The longer side becomes long * resize / short, rounded half up. Scaling is bilinear with antialiasing,
    done by Pillow in whole numbers. `crop` is `resize` where None; `crop` alone cuts without scaling; with
    neither the image stays. The square begins at floor((length - crop) / 2).
    Memory: the scaled image, and one with its columns and the rows of the original. Raises DataError in a
    sentence without the place.

    >>> resized(np.arange(12, dtype=np.uint8).reshape(3, 4, 1), None, 1).ravel().tolist()
    [5]
    """
    height, width, channels = image.shape
    rows, columns = resized_shape(height, width, resize, crop)
    scaled = scaled_shape(height, width, resize)
    if scaled != (height, width):
        grey = channels == 1
        picture = Image.fromarray(image[:, :, 0] if grey else image)
        done = np.asarray(picture.resize(scaled[::-1], Image.Resampling.BILINEAR))
        image = done.reshape(*scaled, channels)
    top, left = (scaled[0] - rows) // 2, (scaled[1] - columns) // 2
    return image[top : top + rows, left : left + columns]


def scaled_shape(height: int, width: int, resize: int | None) -> tuple[int, int]:
    """Return (rows, columns) of an image whose shorter side has been scaled to `resize` pixels.

    >>> scaled_shape(30, 40, 15), scaled_shape(3, 5, 2)
    ((15, 20), (2, 3))
    """
    if resize is None:
        return height, width
    short = min(height, width)
    rows, columns = ((2 * length * resize + short) // (2 * short) for length in (height, width))
    if rows * columns > MAX_PIXELS:
        raise DataError(
            f"the image is {width} x {height} and would be scaled to {columns} x {rows}, more than {MAX_PIXELS:,} "
            f"pixels; cut it first."
        )
    return rows, columns


def with_channels(pixels: Pixels, channels: int) -> Pixels:
    """Return an image (H, W, C) with 1 or 3 channels: colour becomes grey, grey is repeated.

    >>> with_channels(np.array([[[255, 0, 0]]], np.uint8), 1).item()
    77
    """
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    # 256 * 255 + 128 fits in 16 bits
    grey = np.full(pixels.shape[:2], 128, np.uint16)
    for channel, weight in enumerate(pixel_values.LUMINANCE):
        grey += pixels[:, :, channel] * np.uint16(weight)
    return (grey >> 8).astype(np.uint8)[:, :, None]


def _wanted(header: Header, channels: int | None) -> str:
    """Return the colour space that a JPEG is decoded to."""
    if header.space in ("CMYK", "YCCK"):
        return "CMYK"
    return "GRAY" if header.channels == 1 and channels != 3 else "RGB"


def _decode_turbo(data: Encoded, wanted: str, **scale: int) -> Pixels:
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace=wanted, strict=True, **scale)
    except ValueError as error:
        raise damaged("JPEG", error) from error
    return pixels


def _png_header(data: Encoded) -> Header:
    start = bytes(data[8:29])
    if len(start) < 21 or start[4:8] != b"IHDR":
        raise DataError("the PNG image ends within its header; restore it from a good copy.")
    width, height, depth, colour = struct.unpack(">IIBB", start[8:18])
    if 0 in (width, height) or colour not in _PNG_COLOURS:
        raise DataError("the PNG image has an invalid header; restore it from a good copy.")
    if depth > 8:
        raise DataError(
            f"the PNG image has {depth} bits a channel, but pixels have 8; convert it to 8 bits."
        )
    return Header(height, width, 1 if colour in _PNG_GREY else 3, "png")


def _verify_png(data: Encoded) -> None:
    """Refuse a PNG whose chunks are cut short or fail their checksums: Pillow does not look at those of pixels."""
    view, at, kind = memoryview(data), len(_PNG), b""
    while kind != b"IEND":
        if at + 12 > len(view):
            raise DataError("the PNG image is cut short; restore it from a good copy.")
        length, kind = struct.unpack(">I4s", view[at : at + 8])
        end = at + 8 + length
        if end + 4 > len(view):
            raise DataError("the PNG image is cut short; restore it from a good copy.")
        if kind == b"acTL":
            raise DataError("the PNG image has several frames; keep one of them, as an image of its own.")
        if zlib.crc32(view[at + 4 : end]) != struct.unpack(">I", view[end : end + 4])[0]:
            name = kind.decode("ascii", "replace")
            raise DataError(
                f"the PNG image fails the checksum of its {name} chunk; restore it from a good copy."
            )
        at = end + 4
