"""What a reload does to listeners: certificates, authorities and TLS tables for whoever connects next; addresses opened
and given up. Who is connected stays connected. A door whose change fails goes on as it was, and its caller is told.
"""
from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Mapping

from gatehouse.config.config import Door
from gatehouse.gateways.connections.listener import Listener
from gatehouse.gateways.contract import Listen
from gatehouse.gateways.tls.tls import TlsFault

log = logging.getLogger("gatehouse")


Refuse = Callable[[str], None]
"""Told, in words, what of a reload cannot be."""


async def relisten(open_doors: Mapping[str, Listener], old: Iterable[Door], new: Iterable[Door],
                   refuse: Refuse) -> tuple[Door, ...]:
    """Bring every open door to its new listeners; returns the doors as they listen now."""
    wanted = {door.spec.name: door.listen for door in new}
    return tuple([dataclasses.replace(door, listen=await _relisten(open_doors.get(door.spec.name), door,
                                                                   wanted.get(door.spec.name, door.listen), refuse))
                  for door in old])


async def _relisten(running: Listener | None, door: Door, listens: tuple[Listen, ...], refuse: Refuse
                    ) -> tuple[Listen, ...]:
    name = f"gateways.{door.spec.name}"
    if listens == door.listen and not any(listen.tls for listen in listens):
        return door.listen
    if running is None:
        return door.listen
    try:
        opened, given_up = await running.relisten(listens)
    except TlsFault as fault:
        refuse(f"{name}.tls.{fault.setting}: {fault}; it goes on with what it had")
        return door.listen
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        addresses = ", ".join(str(listen) for listen in listens)
        refuse(f"{name} cannot listen on {addresses}: {reason}; it goes on as it was")
        return door.listen
    for what, changed in (("listens on", opened), ("no longer listens on", given_up)):
        if changed:
            log.info("reload: %s %s %s", name, what, ", ".join(changed))
    if any(listen.tls for listen in listens):
        log.info("reload: %s uses its TLS files as they are now for new connections", name)
    elif not (opened or given_up):
        log.info("reload: %s.listen changed and is in effect for new connections", name)
    return listens
