"""Seeded damage: bytes, text, cells, XML, JSON, arrays, frames and options."""

from __future__ import annotations

import io
import json
import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

NUMBERS = (
    *("nan", "inf", "-inf", "1e400", "1e308", "-1e308", "1e300", "1e160", "3e19", "1e19", "-1e19"),
    *("1e-300", "5e-324", "-0", "0", "-1", "1", "1e9", "1e6", "9223372036854775808", "-2147483649"),
    *("９", "٣", "１.５", "1_000", "0x10", "1,5", "", " ", "9" * 400, "1e", "--", "true", "1kg"),
    *("9" * 5000, "1e-5", "0.1", "2", "1e4", "²", "½", "−1", "1e0001", "+1", "1.", ".5", "1d0"),
)
WORDS = (
    *("", " ", "\0", "\ufeff", "\u202e", "\x1b[31m", "../x", "=1+1", "%s%n", "{joint}"),
    *("a" * 300, "upper", "elbow", "q.elbow", "<script>", "&amp;", "'", '"', "\\", "é", "\udc80x"),
    *("none", "null", "t", "NaN", "shoulder,elbow", "0,0,0", "1;2", "[[", "]]>", "😀", "\r\n"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1e308, -1e308, 1e-300, 10**400, 2**64, 3.5, "", "x", "\udc80"),
    *([], {}, [1], [None], [[]], {"a": 1}, [1, 2, 3], ["a", "b"], {"x": {}}, [[1, 2], [3]]),
)
NUMBER = re.compile(rb"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, insert, remove, repeat or blank bytes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        if not out:
            break
        at, size = rng.randrange(len(out)), rng.choice((1, 2, 8, 64, 500))
        match rng.randrange(7):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                del out[at:]
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = rng.randbytes(size)
            case 4:
                out[at:at] = out[at : at + size]
            case 5:
                out[at : at + size] = bytes(min(size, len(out) - at))
            case _:
                out[at] = rng.choice((0, 255, 127, 10, 44))
    return bytes(out)


def damage_numbers(data: bytes, rng: random.Random) -> bytes:
    """Replace numbers in a text by strange ones."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(NUMBER.finditer(data))
        if not places:
            break
        place = rng.choice(places)
        data = data[: place.start()] + _encoded(rng.choice(NUMBERS)) + data[place.end() :]
    return data


def damage_lines(data: bytes, rng: random.Random) -> bytes:
    """Remove, repeat, swap, join or spoil lines."""
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = lines[at].replace(b",", rng.choice((b";", b"\t", b",,", b" ")))
            case 4:
                cut = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:cut] + _encoded(rng.choice(WORDS)) + lines[at][cut:]
            case _:
                lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        if not lines:
            break
    return b"\n".join(lines)


def damage_words(data: bytes, rng: random.Random) -> bytes:
    """Replace words in a text by strange ones."""
    places = list(re.finditer(rb"[A-Za-z_][\w.]*", data))
    if not places:
        return damage_bytes(data, rng)
    place = rng.choice(places)
    return data[: place.start()] + _encoded(rng.choice(WORDS)) + data[place.end() :]


def damage_columns(data: bytes, rng: random.Random) -> bytes:
    """Set, scale, freeze or spoil cells of a CSV with a header."""
    rows = [line.split(b",") for line in data.strip().split(b"\n")]
    if len(rows) < 3:
        return damage_lines(data, rng)
    at = rng.randrange(len(rows[0]))
    first = rng.randrange(1, len(rows))
    last = rng.choice((first + 1, first + 20, len(rows)))
    cell = _encoded(rng.choice(NUMBERS))
    factor = rng.choice((0.0, -1.0, 1e3, 1e19, 1e-19, 57.3, 1e150))
    for row in rows[first:last]:
        if at >= len(row):
            continue
        try:
            row[at] = cell if factor == 0.0 else b"%.9g" % (float(row[at]) * factor)
        except ValueError:
            row[at] = cell
    return b"\n".join(b",".join(row) for row in rows) + b"\n"


def damage_json(data: bytes, rng: random.Random) -> bytes:
    """Replace, remove or repeat parts of a JSON document."""
    document = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2))):
        parent, key = _json_place(document, rng)
        if parent is None:
            continue
        match rng.randrange(5):
            case 0 | 1 | 2:
                parent[key] = rng.choice(VALUES)
            case 3:
                del parent[key]
            case _:
                if isinstance(parent, list):
                    parent.append(parent[key])
                else:
                    parent[rng.choice(WORDS)] = parent[key]
    return _encoded(json.dumps(document, ensure_ascii=False))


def _json_place(document: Any, rng: random.Random) -> tuple[Any, Any]:
    """Return a container and a key of it, deeper ones less often."""
    parent, key = None, None
    here = document
    while isinstance(here, dict | list) and here:
        parent, key = here, rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
        here = parent[key]
        if rng.random() < 0.25:
            break
    return parent, key


def damage_xml(data: bytes, rng: random.Random) -> bytes:
    """Change attributes; remove, repeat, move or rename elements."""
    root = ET.fromstring(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        parents = [each for each in root.iter() if len(each)]
        every = [each for each in root.iter() if each.attrib]
        match rng.randrange(8):
            case 0 | 1 | 2 if every:
                each = rng.choice(every)
                name = rng.choice(list(each.attrib))
                parts = each.attrib[name].split() or [""]
                parts[rng.randrange(len(parts))] = rng.choice(NUMBERS).replace("\0", "")
                each.attrib[name] = " ".join(parts)
            case 3 if every:
                each = rng.choice(every)
                del each.attrib[rng.choice(list(each.attrib))]
            case 4 if every:
                each = rng.choice(every)
                each.attrib[rng.choice(list(each.attrib))] = _xml_text(rng.choice(WORDS))
            case 5 if parents:
                parent = rng.choice(parents)
                parent.remove(rng.choice(list(parent)))
            case 6 if parents:
                rng.choice(parents).append(rng.choice(list(rng.choice(parents))))
            case _:
                each = rng.choice(list(root.iter()))
                each.tag = rng.choice(("link", "joint", "body", "inertial", "x", "geom", "mass"))
        if _is_loop(root):
            return damage_numbers(data, rng)
    return _encoded(ET.tostring(root, encoding="unicode"))


def _is_loop(root: ET.Element) -> bool:
    """Return whether an element was put inside itself, or the tree has become large."""
    count, pending = 0, [root]
    while pending and count < 2000:
        count += 1
        pending.extend(pending.pop())
    return count >= 2000


def _xml_text(text: str) -> str:
    return "".join(c for c in text if c.isprintable() and not "\ud800" <= c <= "\udfff")


def damage_arrays(data: bytes, rng: random.Random) -> bytes:
    """Change values, types, shapes and names of the arrays of an NPZ file."""
    arrays = {name: np.array(each) for name, each in np.load(io.BytesIO(data)).items()}
    name = rng.choice(list(arrays))
    array = arrays.pop(name)
    match rng.randrange(8):
        case 0 | 1 | 2:
            flat = array.reshape(-1)
            if flat.dtype.kind == "f":
                flat[rng.randrange(flat.size)] = _float(rng)
        case 3:
            if array.dtype.kind == "f":
                array = array * rng.choice((0.0, -1.0, 1e19, 1e160, 57.3, 1e-30))
        case 4:
            kinds = ("f4", "i8", "i1", "U8", "S4", "?", "c16", "f2", ">f8", "M8[ns]", "O")
            array = _cast(array, rng.choice(kinds))
        case 5:
            flat = array.reshape(-1)
            array = rng.choice((flat[:-1], array.T, array[None], flat[:0], flat[0]))
        case 6:
            name = _xml_text(rng.choice(WORDS)).replace("/", "_") or "x"
        case _:
            arrays[name + "2"] = array
    file = io.BytesIO()
    np.savez(file, **{**arrays, name: array})
    return file.getvalue()


def _cast(array: np.ndarray, kind: str) -> np.ndarray:
    if array.dtype.kind not in "fi":
        return array
    with np.errstate(all="ignore"):
        return array.astype("i8").astype(kind) if kind.startswith("M8") else array.astype(kind)


def _float(rng: random.Random) -> float:
    while True:
        try:
            return float(rng.choice(NUMBERS))
        except ValueError:
            continue


def damage_frame(read: Callable[..., pl.DataFrame], write: str) -> Callable[..., bytes]:
    """Return damage of a columnar file: values, types and names of its columns."""

    def damage(data: bytes, rng: random.Random) -> bytes:
        frame = read(io.BytesIO(data))
        name = rng.choice(frame.columns)
        column = frame[name]
        match rng.randrange(7):
            case 0 | 1 | 2:
                values = column.to_list()
                values[rng.randrange(len(values))] = rng.choice((_float(rng), None))
                column = pl.Series(name, values, dtype=pl.Float64)
            case 3:
                column = column * rng.choice((0.0, -1.0, 1e19, 1e160, 57.3, 1e-30))
            case 4:
                kind = rng.choice((pl.Float32, pl.Int64, pl.String, pl.Boolean, pl.Categorical))
                column = (
                    column.cast(pl.String).cast(kind)
                    if kind == pl.Categorical
                    else column.cast(kind, strict=False)
                )
            case 5:
                column = column.reshape((len(column), 1)).arr.to_list()
            case _:
                frame = frame.rename({name: rng.choice(("", "q1", "q.elbow2", "é", "t2", "seg"))})
                column = frame[frame.columns[0]]
        frame = frame.with_columns(column)
        file = io.BytesIO()
        getattr(frame, write)(file)
        return file.getvalue()

    return damage


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape" if _escaped(text) else "surrogatepass")


def _escaped(text: str) -> bool:
    return any("\udc80" <= c <= "\udcff" for c in text)
