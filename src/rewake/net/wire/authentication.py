"""Both ends of a connection prove that they know the query's token, without saying it.

    acceptor -> connector   challenge      nonce A (32 bytes)
    connector -> acceptor   response       nonce B, HMAC-SHA256(token, "connector" A B)
    acceptor -> connector   confirmation   HMAC-SHA256(token, "acceptor" A B)

What always holds: the token is never sent, logged or shown; each side's proof covers a nonce that
the other side made for this connection alone, so a recorded conversation is worthless; the two
proofs differ by their role, so that one end's proof cannot be sent back to it.  Neither end accepts
anything else before, and the acceptor proves nothing to a stranger.

Clients have a token of their own, derived from the query's by an HMAC: it tells nothing of the
query's.  An acceptor that is given both takes either, answers with the one that was used, and knows
from it what the peer may say (`rewake.node.rights`).

The host makes the nonces: fresh, from the system's generator.  It sends what `begin` and `receive`
return, and accepts other messages once `done`.
"""

import hmac
from typing import Final

from rewake.model.errors import BadPeer, UsageError
from rewake.net.wire.codec import Frame, Kind, encode_frame
from rewake.node.rights import Right

__all__ = ["NONCE_BYTES", "TOKEN_BYTES", "Handshake", "Token"]

TOKEN_BYTES: Final = 32
NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_CONNECTOR: Final = b"rewake 1 connector"
_ACCEPTOR: Final = b"rewake 1 acceptor"
_CLIENTS: Final = b"rewake 1 clients"


class Token:
    """The secret of one query.  Showing it takes an explicit call of `reveal`."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != TOKEN_BYTES:
            raise UsageError(f"a token has {TOKEN_BYTES} bytes, not {len(secret)}")
        self._secret = bytes(secret)

    @classmethod
    def from_text(cls, text: str) -> "Token":
        """The token that `reveal` wrote."""
        try:
            return cls(bytes.fromhex(text.strip()))
        except (ValueError, UsageError):
            # Without the cause: it would quote what may be most of a secret.
            raise UsageError(
                f"this is no token: expected {2 * TOKEN_BYTES} hexadecimal digits"
            ) from None

    def reveal(self) -> str:
        """The token as text, for a file that only its owner can read."""
        return self._secret.hex()

    def for_clients(self) -> "Token":
        """The token of those who only read and produce."""
        return Token(hmac.digest(self._secret, _CLIENTS, "sha256"))

    def proof(self, role: bytes, challenge: bytes, response: bytes) -> bytes:
        """What only someone with the token can compute for these nonces."""
        return hmac.digest(self._secret, role + challenge + response, "sha256")

    def __repr__(self) -> str:
        return "Token(hidden)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self._secret)


class Handshake:
    """One end of the conversation above."""

    def __init__(
        self,
        token: Token,
        nonce: bytes,
        peer: str,
        *,
        accepting: bool,
        clients: Token | None = None,
    ) -> None:
        assert len(nonce) == NONCE_BYTES
        self._token = token
        self._clients = clients
        # Of an acceptor's peer.  To a connector the acceptor may say everything.
        self.right = Right.NODE
        self._nonce = nonce
        self._peer = peer
        self._awaited: Kind | None = Kind.RESPONSE if accepting else Kind.CHALLENGE
        self._accepting = accepting
        self._challenge = nonce if accepting else b""

    @property
    def done(self) -> bool:
        """Whether the peer has proven that it knows the token."""
        return self._awaited is None

    def begin(self) -> bytes:
        """What to send at first; empty for the connecting end."""
        return encode_frame(Kind.CHALLENGE, self._nonce) if self._accepting else b""

    def receive(self, frame: Frame) -> bytes:
        """Take a frame of the peer and return the answer; `BadPeer` when it proves nothing."""
        if frame.kind is not self._awaited:
            raise self._bad(f"a {frame.kind.name.lower()} message out of turn")
        if frame.kind is Kind.CHALLENGE:
            return self._respond(frame.header)
        if frame.kind is Kind.RESPONSE:
            return self._confirm(frame.header)
        expected = self._token.proof(_ACCEPTOR, self._challenge, self._nonce)
        self._check(frame.header, expected)
        self._awaited = None
        return b""

    def _respond(self, challenge: bytes) -> bytes:
        if len(challenge) != NONCE_BYTES:
            raise self._bad(f"a challenge of {len(challenge)} bytes")
        self._challenge = challenge
        self._awaited = Kind.CONFIRMATION
        proof = self._token.proof(_CONNECTOR, challenge, self._nonce)
        return encode_frame(Kind.RESPONSE, self._nonce + proof)

    def _confirm(self, header: bytes) -> bytes:
        if len(header) != NONCE_BYTES + _PROOF_BYTES:
            raise self._bad(f"a response of {len(header)} bytes")
        response, proof = header[:NONCE_BYTES], header[NONCE_BYTES:]
        if self._clients is not None:
            of_a_client = self._clients.proof(_CONNECTOR, self._challenge, response)
            if hmac.compare_digest(proof, of_a_client):
                self._token, self.right = self._clients, Right.CLIENT
        self._check(proof, self._token.proof(_CONNECTOR, self._challenge, response))
        self._awaited = None
        return encode_frame(
            Kind.CONFIRMATION, self._token.proof(_ACCEPTOR, self._challenge, response)
        )

    def _check(self, proof: bytes, expected: bytes) -> None:
        if not hmac.compare_digest(proof, expected):
            raise self._bad("a proof that was not made with this query's token")

    def _bad(self, what: str) -> BadPeer:
        return BadPeer(
            f"{self._peer} sent {what} while authenticating; the connection is closed. "
            "It has the token of another query, or is none of ours"
        )
