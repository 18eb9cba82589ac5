"""MCAP files, read from front to back with every checksum verified [https://mcap.dev/spec].

Default readers go by the index and skip the checksums, and let damage through. Here the chunks'
CRCs, the data section's and the summary's are compared where the writer stored them; what no CRC
covers is compared with what it repeats: the times of a chunk with its messages', schemas and
channels with their copies in the summary, counts with the statistics.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from thetahat.data.formats.table import label, opened, shown
from thetahat.errors import MalformedInput, MissingExtra, RefusedForSafety

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX = range(1, 9)
ATTACHMENT, ATTACHMENT_INDEX, STATISTICS, METADATA, METADATA_INDEX, SUMMARY_OFFSET, DATA_END = (
    range(9, 16)
)
MAX_RECORD = (
    2**30
)  # bytes of one record or one unpacked chunk; writers make chunks of about a megabyte


class Damaged(Exception):
    """Something in the file is not as the format says; `cut` where the file merely ends too
    early.
    """

    def __init__(self, at: int, what: str, *, cut: bool = False, chunk: bytes = b"") -> None:
        super().__init__(what)
        self.at, self.what, self.cut, self.chunk = at, what, cut, chunk


@dataclass(frozen=True)
class Channel:
    """A topic and how its messages are encoded."""

    id: int
    topic: str
    encoding: str
    schema: str


@dataclass
class McapFile:
    """One MCAP file. `messages` reads it once from front to back; afterwards `notes` tell what was
    found.
    """

    path: Path
    salvage: bool = False
    verified: bool = field(
        default=True, init=False
    )  # whether checksums covered everything that was read
    lost: list[str] = field(default_factory=list, init=False)  # what salvaging left out
    schemas: dict[int, tuple[str, bytes]] = field(default_factory=dict, init=False)
    channels: dict[int, Channel] = field(default_factory=dict, init=False)
    _raw: dict[tuple[int, int], bytes] = field(
        default_factory=dict, init=False
    )  # (opcode, id) → the record, to compare repetitions
    _counts: Counter = field(default_factory=Counter, init=False)
    _chunks: int = field(default=0, init=False)
    _index: dict[int, set[tuple[int, int]]] = field(
        default_factory=dict, init=False
    )  # (time, place) of the latest chunk's messages, by channel

    def messages(self) -> Iterator[tuple[Channel, int, bytes]]:
        """(channel, log time [ns], data) of every message, in the order of the file."""
        self.schemas, self.channels, self._raw, self._counts, self._chunks = (
            {},
            {},
            {},
            Counter(),
            0,
        )
        self.verified, self.lost = True, []
        with opened(self.path) as file:
            try:
                yield from self._data_section(file)
            except Damaged as damage:
                if not (self.salvage and damage.cut):
                    raise self._error(damage) from None
                found = self._rest_of(damage.chunk, damage.at)
                self.lost.append(
                    f"the file was cut off in the record at byte {damage.at}; what stands before,"
                    f" and {len(found)} messages of it, were read"
                )
                yield from found
            except (struct.error, UnicodeDecodeError):
                raise self._error(
                    Damaged(file.tell(), "a record is not as its kind asks")
                ) from None

    # -- the data section --------------------------------------------------------------------------

    def _data_section(self, file: BinaryIO) -> Iterator[tuple[Channel, int, bytes]]:
        magic = file.read(8)
        if magic != MAGIC:
            raise Damaged(
                0,
                f"it does not begin with the magic bytes of MCAP but with {magic!r}",
                cut=MAGIC.startswith(magic) and bool(magic),
            )
        crc, covered = crc32(magic), True
        opcode, content, raw = self._record(file, 8)
        if opcode != HEADER or _string(content, _string(content, 0)[1])[1] != len(content):
            raise Damaged(8, f"its first record, of kind {opcode}, is not a header")
        while opcode != DATA_END:
            crc = crc32(raw, crc)
            at = file.tell()
            opcode, content, raw = self._record(file, at)
            if opcode == CHUNK:
                sound, found = self._chunk(content, at)
                covered &= sound
                yield from found
            elif opcode == MESSAGE:
                covered = False
                yield self._message(content, at)
            elif opcode in (SCHEMA, CHANNEL):
                self._define(opcode, content, at)
            elif opcode == MESSAGE_INDEX:
                self._check_index(content, at)
            elif (
                opcode == ATTACHMENT
                and any(content[-4:])
                and crc32(content[:-4]) != int.from_bytes(content[-4:], "little")
            ):
                raise Damaged(at, "the checksum of an attachment is not as stored")
            elif opcode in (HEADER, FOOTER):
                raise Damaged(at, f"a record of kind {opcode} stands inside the data")
        (stated,) = struct.unpack("<I", content)
        if stated and stated != crc:
            raise Damaged(
                at, f"the checksum of its data is {crc:#010x}, not {stated:#010x} as stored"
            )
        self.verified = bool(stated) or covered
        self._summary(file)

    def _record(self, file: BinaryIO, at: int) -> tuple[int, bytes, bytes]:
        head = file.read(9)
        if len(head) < 9:
            raise Damaged(at, "it ends before its data section does; it was cut off", cut=True)
        opcode, size = struct.unpack("<BQ", head)
        if not 1 <= opcode <= 15 and opcode < 0x80:
            raise Damaged(at, f"a record has the unknown kind {opcode}")
        if size > MAX_RECORD:
            left = self.path.stat().st_size - at
            if size > left:
                raise Damaged(
                    at, f"a record says it has {size} bytes, more than the file", cut=False
                )
            raise RefusedForSafety(
                f"{label(self.path)}, byte {at}: a record of {size} bytes is larger than"
                f" {MAX_RECORD}; write the bag with smaller chunks"
            )
        content = file.read(size)
        if len(content) < size:
            rest = content if opcode == CHUNK else b""
            raise Damaged(
                at,
                f"a record of {size} bytes has only {len(content)}; the file was cut off",
                cut=True,
                chunk=rest,
            )
        return opcode, content, head + content

    def _define(self, opcode: int, content: bytes, at: int) -> None:
        """A schema or a channel; a repetition must not differ."""
        (key,) = struct.unpack_from("<H", content)
        if self._raw.setdefault((opcode, key), content) != content:
            raise Damaged(
                at,
                f"{'schema' if opcode == SCHEMA else 'channel'} {key} is defined twice,"
                " differently",
            )
        try:
            if opcode == SCHEMA:
                name, rest = _string(content, 2)
                self.schemas[key] = (name, content[rest:])
            else:
                (schema,) = struct.unpack_from("<H", content, 2)
                topic, rest = _string(content, 4)
                encoding, _ = _string(content, rest)
                if schema and schema not in self.schemas:
                    raise Damaged(
                        at,
                        f"channel {shown(topic)} has the schema {schema}, which the file does not"
                        " define",
                    )
                self.channels[key] = Channel(
                    key, topic, encoding, self.schemas[schema][0] if schema else ""
                )
        except UnicodeDecodeError:
            raise Damaged(
                at, f"the name of {'schema' if opcode == SCHEMA else 'channel'} {key} is not UTF-8"
            ) from None

    def _message(self, content: bytes, at: int) -> tuple[Channel, int, bytes]:
        key, _, time, _ = struct.unpack_from("<HIQQ", content)
        channel = self.channels.get(key)
        if channel is None:
            raise Damaged(at, f"a message is of channel {key}, which the file does not define")
        self._counts[key] += 1
        return channel, time, content[22:]

    # -- chunks ------------------------------------------------------------------------------------

    def _chunk(self, content: bytes, at: int) -> tuple[bool, list[tuple[Channel, int, bytes]]]:
        """(whether a checksum covered it, its messages)."""
        first, last, size, stated = struct.unpack_from("<QQQI", content)
        self._chunks += 1
        try:
            compression, start = _string(content, 28)
            (packed,) = struct.unpack_from("<Q", content, start)
            data = content[start + 8 :]
            if len(data) != packed:
                raise Damaged(at, f"a chunk says it has {packed} bytes but has {len(data)}")
            records = self._unpacked(data, compression, size, at)
            if stated and crc32(records) != stated:
                raise Damaged(
                    at,
                    f"the checksum of a chunk is {crc32(records):#010x}, not {stated:#010x} as"
                    " stored",
                )
            found = self._inside(records, at)
            times = [time for _, time, _ in found]
            if times and (min(times), max(times)) != (first, last):
                raise Damaged(
                    at,
                    f"a chunk says its messages are of {first} to {last} ns, but they are of"
                    f" {min(times)} to {max(times)} ns",
                )
        except (Damaged, struct.error, UnicodeDecodeError) as error:
            if not self.salvage:
                raise (
                    error
                    if isinstance(error, Damaged)
                    else Damaged(at, "a chunk is not as the format says")
                ) from None
            self.lost.append(f"the chunk at byte {at} is damaged ({error}) and was left out")
            return True, []
        return bool(stated), found

    def _unpacked(self, data: bytes, compression: str, size: int, at: int) -> bytes:
        if size > MAX_RECORD:
            raise RefusedForSafety(
                f"{label(self.path)}, byte {at}: a chunk unpacks to {size} bytes, more than"
                f" {MAX_RECORD}; write the bag with smaller chunks"
            )
        if compression == "":
            records = data
        elif compression in ("lz4", "zstd"):
            try:
                records = _decompressor(compression, self.path).decompress(data, size + 1)
            except MissingExtra:
                raise
            except Exception as error:  # each library has errors of its own
                raise Damaged(at, f"a chunk cannot be unpacked ({error})") from None
        else:
            raise Damaged(
                at, f"a chunk is compressed by {shown(compression)}; known are lz4 and zstd"
            )
        if len(records) != size:
            raise Damaged(at, f"a chunk unpacks to {len(records)} bytes where {size} are stated")
        return records

    def _rest_of(self, content: bytes, at: int) -> list[tuple[Channel, int, bytes]]:
        """The messages that are complete in a chunk which is not; no checksum can vouch for
        them.
        """
        try:
            compression, start = _string(content, 28)
            data = content[start + 8 :]
            records = (
                data
                if not compression
                else _decompressor(compression, self.path).decompress(data, MAX_RECORD)
            )
            self.verified = False
            return self._inside(records, at, cut=True)
        except MissingExtra:
            raise
        except (
            Exception
        ):  # whatever a stump does to a library: it is lost, the messages before it are not
            return []

    def _inside(
        self, records: bytes, at: int, *, cut: bool = False
    ) -> list[tuple[Channel, int, bytes]]:
        found, here = [], 0
        self._index = {}
        while here < len(records):
            if cut and len(records) - here < 9:
                break
            opcode, size = struct.unpack_from("<BQ", records, here)
            content = records[here + 9 : here + 9 + size]
            if len(content) != size:
                if cut:
                    break
                raise Damaged(at, "a record inside a chunk reaches past its end")
            if opcode == MESSAGE:
                message = self._message(content, at)
                self._index.setdefault(message[0].id, set()).add((message[1], here))
                found.append(message)
            elif opcode in (SCHEMA, CHANNEL):
                self._define(opcode, content, at)
            else:
                raise Damaged(at, f"a record of kind {opcode} stands inside a chunk")
            here += 9 + size
        return found

    def _check_index(self, content: bytes, at: int) -> None:
        """An index repeats time and place of the messages before it."""
        channel, size = struct.unpack_from("<HI", content)
        stated = (
            set(struct.iter_unpack("<QQ", content[6:]))
            if size == len(content) - 6 and size % 16 == 0
            else None
        )
        if stated != self._index.get(channel, set()) and not self.salvage:
            raise Damaged(
                at, f"the index of channel {channel} differs from the messages of its chunk"
            )

    # -- the summary -------------------------------------------------------------------------------

    def _summary(self, file: BinaryIO) -> None:
        start, crc, opcode, statistics = file.tell(), 0, 0, None
        while opcode != FOOTER:
            at = file.tell()
            opcode, content, raw = self._record(file, at)
            if opcode in (SCHEMA, CHANNEL):
                self._define(opcode, content, at)
            elif opcode == STATISTICS:
                statistics = content, at
            elif opcode in (MESSAGE, CHUNK, DATA_END, HEADER, ATTACHMENT, METADATA):
                raise Damaged(at, f"a record of kind {opcode} stands in the summary")
            crc = crc32(raw if opcode != FOOTER else raw[:-4], crc)
        summary_start, _, stated = struct.unpack("<QQI", content)
        if summary_start not in (0, start) or (not summary_start and at != start):
            raise Damaged(
                at,
                f"its footer says the summary begins at byte {summary_start}, but it begins at"
                f" {start}",
            )
        if stated and stated != crc:
            raise Damaged(
                at, f"the checksum of its summary is {crc:#010x}, not {stated:#010x} as stored"
            )
        if statistics:
            self._check_statistics(*statistics)
        if file.read(9) != MAGIC:
            raise Damaged(
                at,
                "it does not end with the magic bytes of MCAP; it was cut off or written over",
                cut=True,
            )

    def _check_statistics(self, content: bytes, at: int) -> None:
        messages, schemas, channels, _, _, chunks, _, _, size = struct.unpack_from(
            "<QHIIIIQQI", content
        )
        counts = (
            {
                key: count
                for key, count in struct.iter_unpack("<HQ", content[46 : 46 + size])
                if count
            }
            if size % 10 == 0
            else {}
        )
        own = {key: count for key, count in self._counts.items() if count}
        same = (
            messages == sum(own.values()) and chunks == self._chunks and (not size or counts == own)
        )
        if not same and not (self.salvage and self.lost):
            raise Damaged(
                at,
                f"its statistics speak of {messages} messages in {chunks} chunks, but it holds"
                f" {sum(own.values())} in {self._chunks}",
            )
        if (
            len(self.schemas) > schemas or len(self.channels) > channels
        ) and not self.salvage:  # those never used need not be written
            raise Damaged(
                at,
                f"its statistics speak of {schemas} schemas and {channels} channels, but it holds"
                f" {len(self.schemas)} and {len(self.channels)}",
            )

    # -- salvage and errors ------------------------------------------------------------------------

    def _error(self, damage: Damaged) -> MalformedInput:
        cut = damage.cut or not _ends_well(self.path)
        fix = (
            "copy it again, or read what is left with --salvage"
            if cut
            else "copy it again (--salvage leaves the damaged part out)"
        )
        return MalformedInput(f"{label(self.path)}, byte {damage.at}: {damage.what}; {fix}")


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8))
        return file.read() == MAGIC


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", data, at)
    if at + 4 + length > len(data):
        raise struct.error("a text reaches past its record")
    return data[at + 4 : at + 4 + length].decode("utf-8"), at + 4 + length


def _decompressor(kind: str, path: Path):
    """An object with `decompress(data, max_length)`, from what rosbags brings along."""
    try:
        if kind == "lz4":
            from lz4.frame import LZ4FrameDecompressor

            return LZ4FrameDecompressor()
        try:
            from compression.zstd import ZstdDecompressor
        except ImportError:
            from backports.zstd import ZstdDecompressor
        return ZstdDecompressor()
    except ImportError:
        raise MissingExtra(
            f"{label(path)} is compressed by {kind}, which needs the extra 'ros': pip install"
            " 'thetahat[ros]'"
        ) from None
