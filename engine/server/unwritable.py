"""Refusal with a plain message, not an internal error, where a file system cannot be written."""

import errno

import apsw
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.protocol.problems import Problem

REASONS = {
    errno.EROFS: "its file system is read-only",
    errno.EACCES: "you may not write there",
    errno.EPERM: "you may not write there",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your share of the disk is used up",
}
NO_PLACE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
    errno.ENODEV,
    errno.ENXIO,
)
"""Errors of a path that leads to nothing that can be read or written."""
DATABASE = {
    apsw.ReadOnlyError: REASONS[errno.EROFS],
    apsw.CantOpenError: REASONS[errno.EACCES],
    apsw.FullError: REASONS[errno.ENOSPC],
}
CODE = "store.unwritable"


def unwritable_problem(error: Exception) -> Problem | None:
    """Refusal for an error that means that nothing can be written; None for any other."""
    if isinstance(error, OSError) and error.errno in NO_PLACE:
        return Problem(
            code="file.no_place",
            message=f"A file or folder cannot be used: {error.strerror}.",
            hint="Check that it is still there, and what kind of file it is.",
            where=str(error.filename or "")[:400],
        )
    if isinstance(error, OSError):
        reason, where = REASONS.get(error.errno or 0), str(error.filename or "")
    else:
        known = (words for kind, words in DATABASE.items() if isinstance(error, kind))
        reason, where = next(known, None), ""
    if reason is None:
        return None
    return Problem(
        code=CODE,
        message=f"Nothing was changed: {reason}.",
        hint="It can be read as it is. To change it, copy the project to where you may write.",
        where=where,
        detail=f"{type(error).__name__}: {error}"[:500],
    )


async def answer_unwritable(request: Request, error: Exception) -> Response:
    """Respond with 409 where nothing can be written. Raises any other error again."""
    if problem := unwritable_problem(error):
        return JSONResponse(problem.model_dump(), 409)
    raise error
