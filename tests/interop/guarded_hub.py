"""A hub that lets nobody in without a login, with users, rules, an issuer of tokens and certificates."""
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from gatehouse.accounts import offline_administration
from gatehouse.gateways.admission.administration import UserChanges
from gatehouse.kernel.state.catalogue import Catalogue, default_url
from tests.certificates import Authority, Pair
from tests.running_hub import RunningHub, free_port

ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "gatehouse"
PASSWORD: Final = "correct horse battery"
"""Of every user."""

RULES: Final = """
[[acl]]
who = "user:ada"
pattern = "open/#"

[[acl]]
who = "user:ada"
kind = "group"
pattern = "crew"

[[acl]]
who = "user:ada"
pattern = "$queue/sealed"
effect = "deny"

[[acl]]
who = "user:ada"
pattern = "$queue/#"

[[acl]]
who = "everyone"
pattern = "inbox/{user}/#"
operations = ["consume"]

[[acl]]
who = "user:bob"
pattern = "part/line1/#"
operations = ["publish"]

[[acl]]
who = "user:bob"
pattern = "whole/#"
operations = ["publish"]

[[acl]]
who = "user:tess"
pattern = "#"
tenant = "red"

[[acl]]
who = "user:tess"
pattern = "$queue/#"
tenant = "red"

[[acl]]
who = "user:fast"
pattern = "load/#"
"""
"""Ada may do everything at `open`, bob read his inbox and publish at `whole` and at a part of `part`, root (of
`admins`) everything. Tess is of the tenant `red`, where she may do everything."""


class GuardedHub:
    """Everything a test needs to log in by any way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self._signing = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._signing.public_key()))
        (folder / "keys.json").write_text(json.dumps({"keys": [{**key, "kid": "1", "use": "sig", "alg": "RS256"}]}))
        self.api_keys: dict[str, str] = {}
        self._make_users()
        self.hub = RunningHub(folder, self._config())

    def _config(self) -> str:
        kafka, kafka_tls = free_port(), free_port()
        server = self.authority.server().toml(f'client_ca = "{self.authority.file}"')

        def door(name: str, more: str = "") -> str:
            listen = f'"127.0.0.1:0", {{ address = "127.0.0.1:0", tls = {server} }}'
            return f"[gateways.{name}]\nlisten = [{listen}]\n{more}\n"

        return "".join([
            '[hub]\ndata_dir = "data"\n[kernel]\nfsync = "never"\n', "[auth]\nallow_anonymous = false\n",
            f'[auth.jwt]\njwks = "keys.json"\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nleeway_s = 0\n', RULES,
            door("mqtt"), door("http"), door("amqp"),
            f'[gateways.kafka]\nlisten = ["127.0.0.1:{kafka}", {{ address = "127.0.0.1:{kafka_tls}", tls = {server}, '
            f'advertise = "localhost:{kafka_tls}" }}]\nadvertise = "127.0.0.1:{kafka}"\n'])

    def _make_users(self) -> None:
        data = self.folder / "data"
        data.mkdir()
        url = default_url(data)
        catalogue = Catalogue(url, print, print)
        catalogue.open()
        administration, store = offline_administration(url, lambda: int(time.time() * 1000))

        def done(result: Any) -> None:
            if isinstance(result, BaseException):
                raise result

        users = {name: UserChanges(password=PASSWORD) for name in ("ada", "bob", "eve")}
        users["root"] = UserChanges(password=PASSWORD, groups=frozenset(("admins",)))
        users["fast"] = UserChanges(password=PASSWORD, messages_per_s=100.0)
        users["tess"] = UserChanges(password=PASSWORD, tenant="red")
        for name, changes in users.items():
            administration.put_user("test", name, changes, done)
        store.close()

    def token(self, user: str, lifetime_s: int = 600, **claims: Any) -> str:
        """A JWT as the issuer gave it a minute ago: it is not of the future where a clock is set back."""
        now = int(time.time())
        return jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now - 60, "exp": now + lifetime_s,
                           **claims}, self._signing, algorithm="RS256", headers={"kid": "1"})

    def certificate(self, user: str) -> Pair:
        return self.authority.issue(user, file=f"client-{user}")

    def ports(self, door: str) -> tuple[int, int]:
        """Where it listens without and with TLS."""
        found = [int(line.rpartition(":")[2].split()[0]) for line in self.hub.lines
                 if line.startswith(f"{door} listens on ")]
        return found[0], found[1]


@contextmanager
def guarded_hub(folder: Path) -> Iterator[GuardedHub]:
    guarded = GuardedHub(folder)
    try:
        guarded.hub.wait_ready()
        yield guarded
    finally:
        guarded.hub.kill()
