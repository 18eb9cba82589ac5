"""MCAP files, read from front to back with every checksum verified [https://mcap.dev/spec].

The CRCs of chunks, attachments, data section and summary are compared where the writer stored them;
what no CRC covers is compared with what it repeats: the times of a chunk with its messages',
schemas and channels with their copies in the summary, counts with the statistics.

The stream reader of the package mcap (1.6, validate_crcs) is not used: it reads 99 MB/s where this
one reads 159 (`python -m benchmarks reading`), lets 5 of 300 bit flips of a file with all checksums
through, skips the CRCs of attachments, and unpacks an lz4 chunk to any size.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol
from zlib import crc32

from thetahat.data.formats.table import label, opened, shown
from thetahat.errors import MalformedInput, MissingExtra, RefusedForSafety

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX = range(1, 9)
ATTACHMENT, ATTACHMENT_INDEX, STATISTICS, METADATA, METADATA_INDEX, SUMMARY_OFFSET, DATA_END = (
    range(9, 16)
)
MAX_RECORD = 2**30  # bytes of a record or an unpacked chunk; writers make chunks of about 1 MB


class Damaged(Exception):
    """A violation of the format; `cut` where the file merely ends too early."""

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


Messages = list[tuple[Channel, int, bytes]]  # channel, log time [ns], data


class McapFile:
    """One MCAP file. `messages` reads it once from front to back; then `verified` and `lost` say
    what was found.
    """

    def __init__(self, path: Path, *, salvage: bool = False) -> None:
        self.path, self.salvage = path, salvage
        self._reset()

    def _reset(self) -> None:
        self.verified = True  # whether checksums covered everything that was read
        self.lost: list[str] = []  # what salvaging left out
        self.channels: dict[int, Channel] = {}
        self._schemas: dict[int, str] = {}
        self._definitions: dict[tuple[int, int], bytes] = {}  # records by opcode and id
        self._counts: Counter[int] = Counter()
        self._chunks = 0
        # (time, place) of the latest chunk's messages, by channel
        self._index: dict[int, set[tuple[int, int]]] = {}

    def messages(self) -> Iterator[tuple[Channel, int, bytes]]:
        """Return (channel, log time [ns], data) of every message, in the order of the file."""
        self._reset()
        with opened(self.path) as file:
            try:
                yield from self._data_section(file)
            except Damaged as damage:
                if not (self.salvage and damage.cut):
                    raise self._error(damage) from None
                salvaged = self._salvaged(damage.chunk, damage.at)
                self.lost.append(
                    f"the file was cut off in the record at byte {damage.at}; what stands before,"
                    f" and {len(salvaged)} messages of it, were read"
                )
                yield from salvaged
            except (struct.error, UnicodeDecodeError):
                what = "a record is not as its kind requires"
                raise self._error(Damaged(file.tell(), what)) from None

    def _error(self, damage: Damaged) -> MalformedInput:
        fix = "copy it again (--salvage leaves the damaged part out)"
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - len(MAGIC)))
            if damage.cut or file.read() != MAGIC:
                fix = "copy it again, or read what is left with --salvage"
        return MalformedInput(f"{label(self.path)}, byte {damage.at}: {damage.what}; {fix}")

    # -- the data section --------------------------------------------------------------------------

    def _data_section(self, file: BinaryIO) -> Iterator[tuple[Channel, int, bytes]]:
        magic = file.read(8)
        if magic != MAGIC:
            what = f"it does not begin with the magic bytes of MCAP but with {magic!r}"
            raise Damaged(0, what, cut=MAGIC.startswith(magic) and bool(magic))
        crc, covered = crc32(magic), True
        opcode, content = self._record(file, 8)
        if opcode != HEADER or _string(content, _string(content, 0)[1])[1] != len(content):
            raise Damaged(8, f"its first record, of kind {opcode}, is not a header")
        while opcode != DATA_END:
            crc = crc32(content, crc32(struct.pack("<BQ", opcode, len(content)), crc))
            at = file.tell()
            opcode, content = self._record(file, at)
            if opcode == CHUNK:
                has_crc, messages = self._chunk(content, at)
                covered &= has_crc
                yield from messages
            elif opcode == MESSAGE:
                covered = False
                yield self._message(content, at)
            elif opcode in (SCHEMA, CHANNEL):
                self._define(opcode, content, at)
            elif opcode == MESSAGE_INDEX:
                self._check_index(content, at)
            elif opcode == ATTACHMENT:
                stated = int.from_bytes(content[-4:], "little")
                if stated and crc32(content[:-4]) != stated:
                    raise Damaged(at, "the checksum of an attachment is not as stored")
            elif opcode in (HEADER, FOOTER):
                raise Damaged(at, f"a record of kind {opcode} stands inside the data")
        (stated,) = struct.unpack("<I", content)
        _compare_crc("its data", crc, stated, at)
        self.verified = bool(stated) or covered
        self._summary(file)

    def _record(self, file: BinaryIO, at: int) -> tuple[int, bytes]:
        """Return opcode and content of the record at a place in the file."""
        head = file.read(9)
        if len(head) < 9:
            raise Damaged(at, "it ends before its data section does; it was cut off", cut=True)
        opcode, size = struct.unpack("<BQ", head)
        if not 1 <= opcode <= 15 and opcode < 0x80:
            raise Damaged(at, f"a record has the unknown kind {opcode}")
        if size > MAX_RECORD:
            if size > self.path.stat().st_size - at:
                raise Damaged(at, f"a record says it has {size} bytes, more than the file")
            self._refuse(at, f"a record of {size} bytes is larger than")
        content = file.read(size)
        if len(content) < size:
            what = f"a record of {size} bytes has only {len(content)}; the file was cut off"
            raise Damaged(at, what, cut=True, chunk=content if opcode == CHUNK else b"")
        return opcode, content

    def _refuse(self, at: int, what: str) -> NoReturn:
        raise RefusedForSafety(
            f"{label(self.path)}, byte {at}: {what} {MAX_RECORD}; write the bag with smaller chunks"
        )

    def _define(self, opcode: int, content: bytes, at: int) -> None:
        """Add a schema or a channel; a repetition must not differ."""
        (key,) = struct.unpack_from("<H", content)
        kind = "schema" if opcode == SCHEMA else "channel"
        if self._definitions.setdefault((opcode, key), content) != content:
            raise Damaged(at, f"{kind} {key} is defined twice, differently")
        try:
            if opcode == SCHEMA:
                self._schemas[key], _ = _string(content, 2)
                return
            (schema,) = struct.unpack_from("<H", content, 2)
            topic, rest = _string(content, 4)
            encoding, _ = _string(content, rest)
        except UnicodeDecodeError:
            raise Damaged(at, f"the name of {kind} {key} is not UTF-8") from None
        if schema and schema not in self._schemas:
            what = f"channel {shown(topic)} has the schema {schema}, which the file does not define"
            raise Damaged(at, what)
        self.channels[key] = Channel(key, topic, encoding, self._schemas.get(schema, ""))

    def _message(self, content: bytes, at: int) -> tuple[Channel, int, bytes]:
        key, _, time, _ = struct.unpack_from("<HIQQ", content)
        channel = self.channels.get(key)
        if channel is None:
            raise Damaged(at, f"a message is of channel {key}, which the file does not define")
        self._counts[key] += 1
        return channel, time, content[22:]

    # -- chunks ------------------------------------------------------------------------------------

    def _chunk(self, content: bytes, at: int) -> tuple[bool, Messages]:
        """Return whether a checksum covers a chunk, and its messages."""
        self._chunks += 1
        try:
            first, last, size, stated = struct.unpack_from("<QQQI", content)
            compression, start = _string(content, 28)
            (packed,) = struct.unpack_from("<Q", content, start)
            data = content[start + 8 :]
            if len(data) != packed:
                raise Damaged(at, f"a chunk says it has {packed} bytes but has {len(data)}")
            records = self._unpacked(data, compression, size, at)
            _compare_crc("a chunk", crc32(records) if stated else 0, stated, at)
            messages = self._records(records, at)
            times = [time for _, time, _ in messages]
            if times and (min(times), max(times)) != (first, last):
                raise Damaged(
                    at,
                    f"a chunk says its messages are of {first} to {last} ns, but they are of"
                    f" {min(times)} to {max(times)} ns",
                )
        except (Damaged, struct.error, UnicodeDecodeError) as error:
            if not self.salvage:
                if isinstance(error, Damaged):
                    raise
                raise Damaged(at, "a chunk is not as the format says") from None
            self.lost.append(f"the chunk at byte {at} is damaged ({error}) and was left out")
            return True, []
        return bool(stated), messages

    def _unpacked(self, data: bytes, compression: str, size: int, at: int) -> bytes:
        if size > MAX_RECORD:
            self._refuse(at, f"a chunk unpacks to {size} bytes, more than")
        if compression not in ("", "lz4", "zstd"):
            what = f"a chunk is compressed by {shown(compression)}; known are lz4 and zstd"
            raise Damaged(at, what)
        records = data
        if compression:
            try:
                records = _decompressor(compression, self.path).decompress(data, size + 1)
            except MissingExtra:
                raise
            except Exception as error:  # each library has errors of its own
                raise Damaged(at, f"a chunk cannot be unpacked ({error})") from None
        if len(records) != size:
            raise Damaged(at, f"a chunk unpacks to {len(records)} bytes where {size} are stated")
        return records

    def _salvaged(self, content: bytes, at: int) -> Messages:
        """Return the complete messages of a chunk that was cut off, which no checksum covers."""
        try:
            compression, start = _string(content, 28)
            records = content[start + 8 :]
            if compression:
                records = _decompressor(compression, self.path).decompress(records, MAX_RECORD)
            self.verified = False
            return self._records(records, at, cut=True)
        except MissingExtra:
            raise
        except Exception:  # whatever an incomplete stream does to a library: only it is lost
            return []

    def _records(self, records: bytes, at: int, *, cut: bool = False) -> Messages:
        """Return the messages among the records of a chunk."""
        messages: Messages = []
        here, self._index = 0, {}
        while here < len(records) and not (cut and len(records) - here < 9):
            opcode, size = struct.unpack_from("<BQ", records, here)
            content = records[here + 9 : here + 9 + size]
            if len(content) != size:
                if cut:
                    break
                raise Damaged(at, "a record inside a chunk reaches past its end")
            if opcode == MESSAGE:
                message = self._message(content, at)
                self._index.setdefault(message[0].id, set()).add((message[1], here))
                messages.append(message)
            elif opcode in (SCHEMA, CHANNEL):
                self._define(opcode, content, at)
            else:
                raise Damaged(at, f"a record of kind {opcode} stands inside a chunk")
            here += 9 + size
        return messages

    def _check_index(self, content: bytes, at: int) -> None:
        """Compare an index with time and place of the messages before it."""
        channel, size = struct.unpack_from("<HI", content)
        whole = size == len(content) - 6 and size % 16 == 0
        stated = set(struct.iter_unpack("<QQ", content[6:])) if whole else None
        if stated != self._index.get(channel, set()) and not self.salvage:
            what = f"the index of channel {channel} differs from the messages of its chunk"
            raise Damaged(at, what)

    # -- the summary -------------------------------------------------------------------------------

    def _summary(self, file: BinaryIO) -> None:
        start, crc, opcode, statistics = file.tell(), 0, 0, None
        while opcode != FOOTER:
            at = file.tell()
            opcode, content = self._record(file, at)
            if opcode in (SCHEMA, CHANNEL):
                self._define(opcode, content, at)
            elif opcode == STATISTICS:
                statistics = content, at
            elif opcode in (MESSAGE, CHUNK, DATA_END, HEADER, ATTACHMENT, METADATA):
                raise Damaged(at, f"a record of kind {opcode} stands in the summary")
            covered = content if opcode != FOOTER else content[:-4]
            crc = crc32(covered, crc32(struct.pack("<BQ", opcode, len(content)), crc))
        summary_start, _, stated = struct.unpack("<QQI", content)
        if summary_start not in (0, start) or (not summary_start and at != start):
            raise Damaged(
                at,
                f"its footer says the summary begins at byte {summary_start}, but it begins at"
                f" {start}",
            )
        _compare_crc("its summary", crc, stated, at)
        if statistics:
            self._check_statistics(*statistics)
        if file.read(9) != MAGIC:
            what = "it does not end with the magic bytes of MCAP; it was cut off or written over"
            raise Damaged(at, what, cut=True)

    def _check_statistics(self, content: bytes, at: int) -> None:
        messages, schemas, channels, _, _, chunks, _, _, size = struct.unpack_from(
            "<QHIIIIQQI", content
        )
        stated = struct.iter_unpack("<HQ", content[46 : 46 + size]) if size % 10 == 0 else ()
        counts = {key: count for key, count in stated if count}
        own, total = dict(self._counts), self._counts.total()
        same = messages == total and chunks == self._chunks and (not size or counts == own)
        if not same and not (self.salvage and self.lost):
            raise Damaged(
                at,
                f"its statistics state {messages} messages in {chunks} chunks, but it holds"
                f" {total} in {self._chunks}",
            )
        # definitions that are never used need not be written
        more = len(self._schemas) > schemas or len(self.channels) > channels
        if more and not self.salvage:
            raise Damaged(
                at,
                f"its statistics state {schemas} schemas and {channels} channels, but it holds"
                f" {len(self._schemas)} and {len(self.channels)}",
            )


def _compare_crc(what: str, crc: int, stated: int, at: int) -> None:
    """Compare a checksum with the one stored, if one is."""
    if stated and crc != stated:
        raise Damaged(at, f"the checksum of {what} is {crc:#010x}, not {stated:#010x} as stored")


def _string(data: bytes, at: int) -> tuple[str, int]:
    """Return the text at a place in a record, and where it ends."""
    (length,) = struct.unpack_from("<I", data, at)
    if at + 4 + length > len(data):
        raise struct.error("a text reaches past its record")
    return data[at + 4 : at + 4 + length].decode("utf-8"), at + 4 + length


class _Decompressor(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _decompressor(kind: str, path: Path) -> _Decompressor:
    """Return a decompressor of lz4 or zstd, from what rosbags depends on."""
    try:
        if kind == "lz4":
            from lz4.frame import LZ4FrameDecompressor

            lz4: _Decompressor = LZ4FrameDecompressor()
            return lz4
        if sys.version_info >= (3, 14):
            from compression.zstd import ZstdDecompressor
        else:
            from backports.zstd import ZstdDecompressor
        return ZstdDecompressor()
    except ImportError:
        raise MissingExtra(
            f"{label(path)} is compressed by {kind}, which needs the extra 'ros': pip install"
            " 'thetahat[ros]'"
        ) from None
