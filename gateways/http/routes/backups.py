"""`/v1/backups`: a copy of everything that is stored, taken while the hub runs. For administrators.

    POST   /v1/backups               201 {"id", "hub", "lineage", "created", "files": [{"name", "bytes", "sealed"}]}
    GET    /v1/backups/{id}/{file}   the file's bytes; `Range: bytes=FIRST-LAST` for a piece of it
    DELETE /v1/backups/{id}          the backup has been read; 204

A backup that nobody reads for a minute ends by itself. While one lasts, retention deletes nothing. A file that is
`sealed` is the same in every later backup of the same `hub` and `lineage`; the others may have grown.
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.http.accounts import ADMINISTERING, administering
from gatehouse.gateways.http.declaring import (
    BINARY,
    FLAG,
    MESSAGE_ID,
    TEXT,
    TIME_MS,
    WHOLE,
    Answer,
    Named,
    Parameter,
    declare,
    explained,
    list_of,
    object_of,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import Door, Routes, author
from gatehouse.gateways.http.exchange import Answered, Call, Response, decode_level, json_answer
from gatehouse.gateways.http.problems import Refusal

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.kernel.backup.backups import Backup, BackupFile, Backups
    from gatehouse.kernel.errors import KernelError

BYTES: Final = "application/octet-stream"

ID: Final = Parameter("id", "The backup's `id`.", example="5f0c2b7e91d34a68",
                      text={"type": "string", "minLength": 1, "maxLength": 100})
FILE: Final = Parameter("file", "The file's `name`.", example="log/00000000000000000000.log",
                        text={"type": "string", "minLength": 1, "maxLength": 200})
RANGE: Final = Parameter("Range", "One range of bytes: `bytes=FIRST-LAST`, `bytes=FIRST-`, `bytes=-COUNT`.",
                         example="bytes=0-1048575")
BACKUP: Final = Named("Backup", object_of(
    {"id": TEXT, "name": explained(TEXT, "Of the hub."), "hub": explained(TEXT, "The hub's uuid."),
     "lineage": explained(TEXT, "Another one after the hub was put back from a backup."), "version": TEXT,
     "format": WHOLE, "catalogue": explained(TEXT, "`included`, or the database that is not in it."), "epoch": WHOLE,
     "next_id": explained(MESSAGE_ID, "The first message id that no message in it has."), "created": TIME_MS,
     "files": list_of(object_of({"name": TEXT, "bytes": WHOLE, "sealed": explained(
         FLAG, "It is the same in every later backup of the same `hub` and `lineage`.")}))}))
_RANGE: Final = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")


@declare("backups", answers=(Answer(201, "What the backup consists of.", BACKUP),), needs=ADMINISTERING,
         problems=("too_many_backups", "storage_failed"))
async def begin(door: Door, call: Call) -> Answered:
    """Begin a backup.

    Nothing of it changes until it ends: when it is deleted, or nobody has read it for a minute. Retention waits.
    """
    backups, principal = await _administered(door, call)
    begun: Reply[Backup] = Reply()

    def on_begun(backup: Backup | None, error: KernelError | None) -> None:
        if begun.done():
            if backup is not None:
                backups.end(backup.id)         # who asked has gone
        elif backup is not None:
            begun.set_result(backup)
        elif error is not None:
            begun.set_exception(error)

    backups.begin(on_begun)
    try:
        description = backups.describe(await begun)
    except BaseException:
        begun.cancel()
        raise
    door.admission.audit(author(call, principal.name), "backup.begun", {"id": description["id"]})
    return json_answer(description, 201)


@declare("backups", path=(ID, FILE), headers=(RANGE,), needs=ADMINISTERING,
         answers=(Answer(200, "The file.", BINARY, BYTES), Answer(206, "The range of it.", BINARY, BYTES)),
         problems=("unknown_backup", "not_found", "range_not_satisfiable"))
async def read(door: Door, call: Call) -> Answered:
    """Read a file of a backup, or a range of its bytes."""
    backups, _ = await _administered(door, call)
    backup = backups.find(call.captures[0])
    name = decode_level(call.captures[1])
    if name not in backup.files:
        raise Refusal("not_found", "the backup has no such file")
    file = backup.files[name]
    first, stop = _range(call, file)
    whole = "range" not in call.headers
    headers = {"Accept-Ranges": "bytes", "Content-Type": BYTES}
    if not whole:
        headers["Content-Range"] = f"bytes {first}-{stop - 1}/{file.size_bytes}"
    response = door.stream(call, headers, 200 if whole else 206, stop - first)
    response.start()
    while first < stop and call.method != "HEAD":
        piece = await door.loop.run_in_executor(None, backups.read, file, first, stop - first)
        if not piece or not backups.is_running(backup):
            raise ConnectionResetError("the backup has ended while it was read")
        response.write(piece)
        await response.drained()
        backups.note_reader(backup)
        first += len(piece)
    return response


@declare("backups", path=(ID,), needs=ADMINISTERING, answers=(Answer(204, "It has ended."),),
         problems=("unknown_backup",))
async def end(door: Door, call: Call) -> Answered:
    """End a backup."""
    backups, _ = await _administered(door, call)
    backups.end(call.captures[0])
    return Response(status=204)


async def _administered(door: Door, call: Call) -> tuple[Backups, Principal]:
    principal = await administering(door, call)
    call.query()
    backups = door.services.backups
    if backups is None:
        raise Refusal("not_built", "this hub keeps nothing in files")
    return backups, principal


def _range(call: Call, file: BackupFile) -> tuple[int, int]:
    """First byte and the one behind the last; of a range that begins beyond the file, `range_not_satisfiable`."""
    text = call.headers.get("range")
    if text is None:
        return 0, file.size_bytes
    asked = _RANGE.fullmatch(text.strip())
    if asked is None or not (asked[1] or asked[2]) or asked[1] and asked[2] and int(asked[1]) > int(asked[2]):
        raise Refusal("invalid_header", "Range: one range of bytes can be asked for, bytes=FIRST-LAST")
    if asked[1]:
        first = int(asked[1])
        stop = min(int(asked[2]) + 1, file.size_bytes) if asked[2] else file.size_bytes
    else:
        first, stop = max(0, file.size_bytes - int(asked[2])), file.size_bytes
    if first >= stop:
        raise Refusal("range_not_satisfiable", f"the file has {file.size_bytes} bytes",
                      headers={"Content-Range": f"bytes */{file.size_bytes}"})
    return first, stop


ROUTES: Routes = (("POST", "/v1/backups", begin), ("GET", "/v1/backups/{id}/{file...}", read),
                  ("DELETE", "/v1/backups/{id}", end))
