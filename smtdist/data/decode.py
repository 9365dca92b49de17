"""Encoded images to pixels: JPEG by libjpeg-turbo, all others and unusual JPEGs by Pillow; the same bits everywhere."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from smtdist.data.pillow import (
    MAX_PIXELS,
    Encoded,
    Header,
    Pixels,
    damaged,
    loaded,
    open_picture,
    read_other_header,
)
from smtdist.errors import DataError, set_to
from smtdist.kernels import pixels as pixel_values

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
        return _jpeg_header(data).require_pixels()
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
    if header.format == "jpeg":
        pixels = _decode_jpeg(data, header, channels)
    else:
        if header.format == "png":
            _verify_png(data)
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
    return f"make all {side} x {side} with {set_to('resize', side)}, which cuts what is not square"


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


def _jpeg_header(data: Encoded) -> Header:
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:  # chroma sampled in an unusual way, or no image at all
        with open_picture(data, "JPEG") as picture:
            return Header(picture.height, picture.width, 1 if picture.mode == "L" else 3, "jpeg")
    return Header(height, width, 1 if space == "Gray" else 3, "jpeg", space)


def _decode_jpeg(data: Encoded, header: Header, channels: int | None) -> Pixels:
    if not header.space:
        return loaded(data, header)
    wanted = _wanted(header, channels)
    pixels = _decode_turbo(data, wanted)
    if wanted != "CMYK":
        return pixels
    del pixels  # four inks are found sound by the one library and turned into colour by the other
    return loaded(data, header)


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
