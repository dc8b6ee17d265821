"""Claims: who owns the log.  A successor fences its predecessor without asking it.

A claim is a file named by its epoch, created exclusively: of two claimants of one epoch, one wins.
Having created its claim durably, the claimant looks for a higher one (then it has lost), and
removes every lower one.  So a writer is still the owner exactly as long as its own claim is there:
one look at one file.

Why this leaves no race: a writer looks *after* its bytes are synced and *before* it acknowledges
them.  If its claim is still there, the successor has not begun to read the log, and will find the
bytes.  If it is gone, nothing is acknowledged.

Nor does one for files that an owner publishes (`publish_as_owner`): segments that seal the log, the
floor.  It looks when its draft is there; a successor removes the claim, then all drafts, and only
then reads.  So the draft is gone before it can be renamed, or the claim was gone when it looked, or
the successor finds the file.
"""

from rewake.log.files.layout import MAX_COUNT, claim_epoch, claim_name
from rewake.log.store import Store, publish
from rewake.model.errors import Fenced, LogInUse, UsageError

__all__ = ["claim", "current_claim", "owns", "publish_as_owner"]

MAX_HOLDER_BYTES = 256


def current_claim(store: Store) -> tuple[int, str]:
    """The highest epoch claimed, and who holds it; (-1, "nobody") when nobody ever did."""
    epoch = max((e for name in store.names() if (e := claim_epoch(name)) is not None), default=-1)
    if epoch < 0:
        return epoch, "nobody"
    try:
        holder = store.read(claim_name(epoch), 0, MAX_HOLDER_BYTES)
    except FileNotFoundError:
        return epoch, "somebody who has just been superseded"
    return epoch, holder.decode(errors="replace") or "somebody unnamed"


def owns(store: Store, epoch: int) -> bool:
    """Whether the writer of `epoch` has not been superseded."""
    try:
        store.size(claim_name(epoch))
    except FileNotFoundError:
        return False
    return True


def publish_as_owner(
    owned: Store, epoch: int, name: str, data: bytes, *, into: Store | None = None
) -> None:
    """Publish a file of the log `owned`; Fenced when the writer of `epoch` has been superseded.

    A successor that has begun to read the log either finds the file, or there will never be one.
    """

    def check() -> None:
        if not owns(owned, epoch):
            raise Fenced(f"epoch {epoch} was superseded before it could publish {name}")

    try:
        publish(owned if into is None else into, name, data, check=check)
    except FileNotFoundError:
        check()  # a successor clears away drafts
        raise


def claim(store: Store, *, epoch: int | None, above: int, holder: str) -> int:
    """Become the owner and return the epoch.  `above`: the highest epoch the log has seen.

    Without an epoch the next one is taken, if the lock is free (else LogInUse).  With one, the
    log is taken over whoever holds it, provided that the epoch is new (else Fenced).
    """
    current, current_holder = current_claim(store)
    above = max(above, current)
    locked = store.try_lock()
    if epoch is None and not locked:
        raise LogInUse(
            f"the log is held by {current_holder} (epoch {current}); wait until it closes, or take "
            f"it over with an explicit epoch of {above + 1} or higher"
        )
    chosen = above + 1 if epoch is None else epoch
    if not 0 <= chosen <= MAX_COUNT:
        raise UsageError(f"epoch {chosen} is out of range; epochs are 0 to {MAX_COUNT}")
    if chosen <= above:
        raise Fenced(f"epoch {chosen} is not new: {_seen(above, current, current_holder)}")
    try:
        store.create(claim_name(chosen), holder.encode()[:MAX_HOLDER_BYTES])
    except FileExistsError:
        raise Fenced(f"epoch {chosen} was claimed by another writer at this moment") from None
    store.sync_directory()
    _outrank(store, chosen)
    return chosen


def _outrank(store: Store, epoch: int) -> None:
    others = {name: e for name in store.names() if (e := claim_epoch(name)) is not None}
    if max(others.values(), default=epoch) > epoch:
        raise Fenced(f"epoch {epoch} lost to epoch {max(others.values())}, claimed meanwhile")
    for name, other in others.items():
        if other < epoch:
            try:
                store.delete(name)
            except FileNotFoundError:
                continue  # another claimant was quicker; the claim is gone all the same


def _seen(above: int, current: int, holder: str) -> str:
    who = f" by {holder}" if above == current else ""
    return f"epoch {above} was already claimed{who}; use epoch {above + 1} or higher"
