"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677). Pure: the nonce is handed in.

    client first   n,,n=user,r=CLIENT                       GS2 header, then the bare message
    server first   r=CLIENTserver,s=salt,i=iterations
    client final   c=GS2 header in base64,r=CLIENTserver,p=proof
    server final   v=signature

A login is one object and takes each message once, so a nonce that was seen is no use again. There is no channel
binding: `p=…` is refused, and `y` is right, since no mechanism `…-PLUS` was offered. A user that does not exist is
answered with a salt of its own, the same each time, and fails at the proof as a wrong password does. User names and
passwords have one form, whatever a keyboard made of them: SASLprep (RFC 4013).
"""
from __future__ import annotations

import hashlib
import hmac
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final

from gatehouse.gateways.admission.accounts import MAX_NAME_CHARACTERS, ScramSecret
from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.principal import Principal

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MAX_MESSAGE_BYTES: Final = 4096
MIN_NONCE_CHARACTERS: Final = 8          # of the client's; every client sends 20 or more
REFUSED: Final = "unknown user or wrong password"

Find = Callable[[str], ScramSecret]
"""Finds the secret of a user for the mechanism; where there is none, a secret that fits no password."""

Accept = Callable[[str], Principal]
"""Finds the principal of a user that has proven its password. Raises NotAuthenticated for one that may not log in."""

Admit = Callable[[str], int]
"""Says for how many ms the answer to a proof of this user waits, since others have failed. Raises LoginsFull: the proof
is not looked at."""

Refuse = Callable[[str], NotAuthenticated]
"""Counts a failure, with the user's name as far as it is known; returns the refusal that everybody gets."""


class ForbiddenCharacter(ValueError):
    """The text holds a character that SASLprep prohibits. The message does not repeat it."""


_PROHIBITED = (stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
               stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
               stringprep.in_table_c9)


def saslprep(text: str) -> str:
    """The prepared text. Raises ForbiddenCharacter. Unassigned code points pass, as for queries (RFC 3454, 7)."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(" " if stringprep.in_table_c12(character) else character for character in text
                     if not stringprep.in_table_b1(character))
    prepared = unicodedata.normalize("NFKC", mapped)
    if any(prohibits(character) for character in set(prepared) for prohibits in _PROHIBITED):  # each character once
        raise ForbiddenCharacter("a prohibited character")
    _check_direction(prepared)
    return prepared


def name_form(name: str) -> str:
    """The form in which a user's name is kept; of what can be no name the text itself."""
    if len(name) > 4 * MAX_NAME_CHARACTERS:
        return name                          # nobody's, in whatever form: it is not worth the work
    try:
        return saslprep(name)
    except ForbiddenCharacter:
        return name                          # nobody is called that


def _check_direction(text: str) -> None:
    """Raises ForbiddenCharacter for a text that mixes directions: text with right-to-left letters has no others, and
    begins and ends with them (RFC 3454, 6)."""
    if not any(stringprep.in_table_d1(character) for character in text):
        return
    if any(stringprep.in_table_d2(character) for character in text) or not (
            stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ForbiddenCharacter("left-to-right and right-to-left letters together")


def make_secret(mechanism: str, password: bytes, salt: bytes, iterations: int) -> ScramSecret:
    """The secret that the server keeps of a password (RFC 5802, 3). `password` is prepared by SASLprep."""
    hash_name = HASHES[mechanism]
    return salted_secret(mechanism, hashlib.pbkdf2_hmac(hash_name, password, salt, iterations), salt, iterations)


def salted_secret(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramSecret:
    """The secret of a password that was salted by somebody else, as often as he says."""
    hash_name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return ScramSecret(salt, iterations, hashlib.new(hash_name, client_key).digest(),
                       hmac.digest(salted, b"Server Key", hash_name))


class ScramServer:
    """One login. `first`, then `final`, each once."""

    def __init__(self, mechanism: str, nonce: str, find: Find, accept: Accept, refuse: Refuse,
                 admit: Admit = lambda user: 0) -> None:
        self.wait_ms = 0
        """After `final`: how long its answer is to be held back. Then `accepted` says who it is."""

        self._hash_name = HASHES[mechanism]
        self._admit = admit
        self._server_nonce = nonce
        self._find = find
        self._accept = accept
        self._refuse = refuse
        self._user = ""
        self._gs2 = b""
        self._nonce = ""
        self._client_nonce = ""
        self._messages = b""             # client first without its header, server first
        self._secret: ScramSecret | None = None
        self._over = False

    def first(self, client_first: bytes) -> bytes:
        """The server's first message. Raises NotAuthenticated."""
        if self._nonce or self._over:
            raise self._failed("a first message came twice")
        header, bare = self._split_header(client_first)
        attributes = bare.split(",")
        if len(attributes) < 2 or not attributes[0].startswith("n=") or not attributes[1].startswith("r="):
            raise self._failed("the first message has no user or no nonce")     # or m=: no extension is known
        self._user = self._read_name(attributes[0][2:])
        client_nonce = attributes[1][2:]
        if len(client_nonce) < MIN_NONCE_CHARACTERS or not _is_nonce(client_nonce):
            raise self._failed("the nonce is too short, or holds what a nonce may not hold")
        self._gs2 = header
        self._client_nonce = client_nonce
        self._nonce = client_nonce + self._server_nonce
        self._secret = self._find(self._user)
        answer = f"r={self._nonce},s={b64encode(self._secret.salt).decode()},i={self._secret.iterations}".encode()
        self._messages = bare.encode() + b"," + answer
        return answer

    def final(self, client_final: bytes) -> tuple[bytes, Principal]:
        """The server's final message, and who has logged in. Raises NotAuthenticated."""
        if not self._nonce or self._over or self._secret is None:
            raise self._failed("a final message without a first one")
        self._over = True
        without_proof, proof_text = self._split_proof(client_final)
        attributes = without_proof.split(",")
        if len(attributes) < 2 or _decoded(attributes[0].removeprefix("c=")) != self._gs2 \
                or not attributes[0].startswith("c="):
            raise self._failed("the channel binding is not that of the first message")
        if not self._is_ours(attributes[1]):
            raise self._failed("the nonce is not the one of this login")
        signed = self._messages + b"," + without_proof.encode()
        wait_ms = self._admit(self._user)
        if not self._proves(signed, _decoded(proof_text)):
            raise self._failed(REFUSED)
        self.wait_ms = wait_ms
        principal = self._accept(self._user)
        signature = hmac.digest(self._secret.server_key, signed, self._hash_name)
        return b"v=" + b64encode(signature), principal

    def accepted(self) -> Principal:
        """The principal that has proven its password, as things are now. Raises NotAuthenticated."""
        return self._accept(self._user)

    # ---- inside

    def _is_ours(self, attribute: str) -> bool:
        """Whether the client's final message repeats the nonce of the server's message (RFC 5802, 5.1). librdkafka
        before 2.6.1 (Debian's kcat) puts its own nonce before that once more, as Kafka 3 takes it; it is still a nonce
        of this login alone."""
        raw_attribute = attribute.encode()
        return hmac.compare_digest(raw_attribute, f"r={self._nonce}".encode()) \
            or hmac.compare_digest(raw_attribute, f"r={self._client_nonce}{self._nonce}".encode())

    def _proves(self, signed: bytes, proof: bytes | None) -> bool:
        """Whether a proof is right: H(ClientProof XOR HMAC(StoredKey, AuthMessage)) is StoredKey (RFC 5802, 3)."""
        assert self._secret is not None
        stored_key = self._secret.stored_key
        client_signature = hmac.digest(stored_key, signed, self._hash_name)
        if proof is None or len(proof) != len(client_signature):
            return False
        client_key = bytes(byte ^ other for byte, other in zip(proof, client_signature, strict=True))
        return hmac.compare_digest(hashlib.new(self._hash_name, client_key).digest(), stored_key)

    def _split_header(self, client_first: bytes) -> tuple[bytes, str]:
        """(GS2 header with its commas, the bare message)."""
        text = self._text(client_first)
        flag, comma, rest = text.partition(",")
        identity, second, bare = rest.partition(",")
        if not comma or not second or flag not in ("n", "y"):
            raise self._failed("channel binding was asked for, and none was offered" if flag.startswith("p=")
                               else "the first message has no GS2 header")
        if identity and not identity.startswith("a="):
            raise self._failed("the first message has no GS2 header")
        if identity and identity[2:] != bare.partition(",")[0].removeprefix("n="):
            raise self._failed("nobody acts for somebody else here")
        return f"{flag},{identity},".encode(), bare

    def _split_proof(self, client_final: bytes) -> tuple[str, str]:
        without_proof, comma, proof = self._text(client_final).rpartition(",p=")
        if not comma:
            raise self._failed("the final message has no proof")
        return without_proof, proof

    def _text(self, message: bytes) -> str:
        if len(message) > MAX_MESSAGE_BYTES:
            raise self._failed(f"a message of more than {MAX_MESSAGE_BYTES} bytes")
        try:
            return message.decode()
        except UnicodeDecodeError:
            raise self._failed("a message that is not UTF-8") from None

    def _read_name(self, text: str) -> str:
        """The user's name in a message: `=2C` is a comma, `=3D` an equals sign, any other `=` a mistake (RFC 5802,
        5.1)."""
        if "=" in text.replace("=2C", "").replace("=3D", ""):
            raise self._failed("the user's name is not encoded as it must be")
        try:
            return saslprep(text.replace("=2C", ",").replace("=3D", "="))
        except ForbiddenCharacter:
            raise self._failed(REFUSED) from None

    def _failed(self, why: str) -> NotAuthenticated:
        self._over = True
        refusal = self._refuse(self._user)
        return refusal if why is REFUSED else NotAuthenticated(why, refusal.delay_ms)


def _is_nonce(text: str) -> bool:
    """Whether a text may be a nonce: printable ASCII but the comma (RFC 5802, 7)."""
    return text.isascii() and text.isprintable() and " " not in text


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None
