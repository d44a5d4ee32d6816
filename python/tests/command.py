"""The hinge command in tests: build/release/bin/hinge (`make build`), or the one that HINGE_COMMAND names."""

import os
import pathlib
import struct
import zlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HINGE = pathlib.Path(os.environ.get("HINGE_COMMAND", ROOT / "build/release/bin/hinge"))

needs_hinge = pytest.mark.skipif(not HINGE.exists(), reason=f"there is no {HINGE}: run 'make build', or set HINGE_COMMAND")


def write_png(path, pixels):  # uint8 [H, W] or [H, W, 3]
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0 if pixels.ndim == 2 else 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
