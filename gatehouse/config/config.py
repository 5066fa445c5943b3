"""`gateways.toml` and the environment, read into typed sections and checked as a whole.

    [hub] [kernel] [auth]      one dataclass each, below
    [transactions]             in `gatehouse/config/check_back.py`, with [transactions.topics.NAME]
    [tracing]                  in `gatehouse/config/tracing.py`, with [tracing.topics.NAME]
    [gateways.NAME]            a door: `listen`, and the settings that the door itself declares (GatewaySpec.config)
    [spark.NAME]               a job of `gatehouse spark`: the hub only checks it
    [relay] [[relay.links]]    in `gatehouse/config/relay.py`
    [auth.jwt] [[acl]] [[user_groups]] [[limits]]
                               in `gatehouse/config/rights.py`
    [[routes]]                 handed to `kernel.addresses.routes`, which says what is wrong with one

Every value can be overridden from the environment: GATEHOUSE__KERNEL__FSYNC=never, lists as JSON or separated by
commas, `GATEHOUSE__ROUTES` as a JSON list. All problems are found before one is reported, each as a line
`FILE: key: problem; nearest valid name`.
"""
from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gatehouse.config.check_back import TopicChecks, TransactionSection, read_topics
from gatehouse.config.listeners import expiry_notices, find_conflicts, parse_listen
from gatehouse.config.relay import RelayConfig, read_relay
from gatehouse.config.rights import (
    LIVE_RIGHTS,
    TABLE_LISTS,
    AclSettings,
    LimitSettings,
    RightsConfig,
    UserGroupSettings,
    read_rights,
)
from gatehouse.config.settings import ConfigPlace, Problems, Text, read_section
from gatehouse.config.tracing import TopicTracing, TracingSection, read_topic_rates
from gatehouse.gateways.admission.own_topics import ROUTES as OWN_ROUTES
from gatehouse.gateways.admission.tokens import JwtSettings
from gatehouse.gateways.contract import GatewaySpec, Listen
from gatehouse.gateways.door_side import UNSENT_BYTES
from gatehouse.gateways.registry import Specs
from gatehouse.gateways.tls.certificates import check_rule
from gatehouse.kernel.addresses.routes import InvalidRoutes, RouteEntry, Routes
from gatehouse.kernel.settings import FSYNC_POLICIES, LIVE, KernelSettings
from gatehouse.relay.settings import LinkSettings, RelaySection
from gatehouse.spark.jobs.settings import AnalyticsSettings, ArchiveSettings

ENVIRONMENT_PREFIX: Final = "GATEHOUSE__"
GIB: Final = 1 << 30

# Kafka clients read a message size as a signed 32-bit number; a batch needs room beside its message.
MAX_MESSAGE_BYTES_LIMIT: Final = 1 << 30

# Looked for in this file and not in it: refused with where it is, instead of being called unknown.
NOT_BUILT: Final = "is not built yet; take it out"
ELSEWHERE: Final = {
    "topics": "is no section: topics are made by PUT /v1/topics/NAME",
    "groups": "is no section: groups are made by `gatehouse groups define`",
    "users": "is no section: users are made by `gatehouse users create`",
    "quotas": "is no section: quotas are set by `gatehouse users quota`",
    "webhooks": "is no section: webhooks are made by PUT /v1/webhooks/NAME",
    "catalogue": "is no section: see kernel.catalogue_url",
    "links": "is no section: links are [[relay.links]]"}
ELSEWHERE_OF_AUTH: Final = {
    "users": "is no setting: users are made by `gatehouse users create`",
    "oauth": "is no setting: tokens of an issuer are [auth.jwt]", "ldap": NOT_BUILT}


@dataclass(frozen=True, slots=True)
class HubSettings:
    """[hub]"""

    name: str = field(default="gatehouse", metadata={
        "help": "Name of this hub, shown to clients and in the metrics."})
    data_dir: str = field(default="data", metadata={
        "help": "Folder of everything that is stored, from the folder of the configuration file on."})
    metrics_names: bool = field(default=False, metadata={
        "help": "Whether `/metrics`, which is read without a login, names groups, their topics, queues and tenants; "
                "else it has their sums alone."})
    log_level: str = field(default="info", metadata={
        "choices": ("debug", "info", "warning", "error"),
        "help": "What the log on standard error tells: this and what is worse."})
    log_format: str = field(default="text", metadata={
        "choices": ("text", "json"), "help": "Lines for people, or one JSON object per line."})
    unsent_bytes: int = field(default=UNSENT_BYTES, metadata={
        "min": 1 << 20, "max": 1 << 40,
        "help": "Bytes that all connections of all doors together hold in memory for clients that do not take them. "
                "The less is left, the less each may hold: the largest go on from the log first. Beside it each "
                "slow connection may hold 128 KiB and a message."})
    memory_bytes: int = field(default=0, metadata={
        "min": 0, "max": 1 << 50,
        "help": "Memory that the hub may use, in bytes; 0: three quarters of what the machine or the container has. "
                "From four fifths of it on the hub leaves undone what it can, and where it is used up publishing "
                "waits; see docs/limits.md."})
    overload_late_s: float = field(default=2.0, metadata={
        "min": 0.05, "max": 3600.0,
        "help": "How late the hub's loop may run before that counts as overload, in seconds."})
    allow_drills: bool = field(default=False, metadata={
        "help": "Whether administrators may have the hub hold its disk, pretend that its memory is used up, or kill "
                "itself, to see what clients then see: `gatehouse drill`. Not for a hub that somebody depends on."})
    ready_flush_s: float = field(default=5.0, metadata={
        "min": 0.1, "max": 3600.0,
        "help": "Seconds for which messages may wait for the disk before `/readyz` says that the hub takes no new "
                "work; after twice that it begins to leave undone what it can. Nothing that waits is lost or refused."})


@dataclass(frozen=True, slots=True)
class KernelSection:
    """[kernel]"""

    fsync: str = field(default="commit", metadata={
        "choices": FSYNC_POLICIES,
        "help": "When the log is forced to disk: `commit` before every acknowledgement, `interval` once a second, "
                "`never` leaves it to the operating system. The last two may lose acknowledged messages when the "
                "machine (not only the hub) goes down."})
    auto_create_topics: bool = field(default=True, metadata={
        "help": "Whether a publish to a first level that is no topic yet creates it; otherwise it is refused."})
    max_auto_topics: int = field(default=10_000, metadata={
        "min": 0, "max": 1_000_000, "help": "Topics that may exist before users make no more, by use or by name; "
                                            "whoever needs one more is refused. What administrators create is not "
                                            "bounded."})
    max_auto_topics_per_user: int = field(default=2_500, metadata={
        "min": 0, "max": 1_000_000, "help": "Topics made by one user that may exist; all of anonymous are one."})
    auto_topics_per_minute: int = field(default=600, metadata={
        "min": 0, "max": 1_000_000, "help": "Topics that one user may make in a minute, or at once after a while "
                                            "without; over Kafka deleting and growing one counts, too."})
    default_partitions: int = field(default=4, metadata={
        "min": 1, "max": 10_000, "help": "Partitions of a new topic."})
    retention_hours: int = field(default=72, metadata={
        "min": 1, "max": 1_000_000, "help": "Segments of the log older than this are deleted."})
    retention_bytes: int = field(default=10 * GIB, metadata={
        "min": 1 << 20, "help": "Size of the whole log, in bytes, above which its oldest segments are deleted."})
    kept_bytes: int = field(default=10 * GIB, metadata={
        "min": 0, "help": "Bytes kept beyond retention for what is still owed to somebody."})
    max_message_bytes: int = field(default=16 << 20, metadata={
        "min": 1024, "max": MAX_MESSAGE_BYTES_LIMIT,
        "help": "Largest message, in bytes, that any door takes; every door advertises it. A topic may set its own. "
                "Over HTTP a body has `max_body_bytes` at most."})
    max_scheduled: int = field(default=10_000_000, metadata={
        "min": 0, "max": 1_000_000_000, "help": "Messages that may wait for their time; what comes beyond is refused."})
    max_sessions: int = field(default=1_000_000, metadata={
        "min": 0, "max": 100_000_000,
        "help": "Sessions that outlive their connections (MQTT); who wants one more is refused."})
    max_session_messages: int = field(default=100_000, metadata={
        "min": 1, "max": 1_000_000_000,
        "help": "Messages that wait for one such session; beyond, the oldest give way, counted."})
    max_session_bytes: int = field(default=1 << 30, metadata={
        "min": 0, "max": 1 << 50,
        "help": "Bytes that wait for one such session; beyond, the oldest messages give way, counted. 0: no limit."})
    max_session_wait_s: int = field(default=0, metadata={
        "min": 0, "max": 3_153_600_000,
        "help": "Seconds that a message waits for such a session; older ones give way, counted. 0: as long as the "
                "session does."})
    session_keeps_transient: bool = field(default=False, metadata={
        "help": "Whether what was sent with QoS 0, or for a filter of QoS 0, waits for a session whose client is "
                "away, within the same limits. It is then sent in one order with the rest, also while the client is "
                "connected."})
    reserve_bytes: int = field(default=64 << 20, metadata={
        "min": 0, "max": 1 << 40,
        "help": "Size of the files `reserve` and `reserve-emergency` of the data directory, in bytes: room that is "
                "given up where the disk is full, so that retention can free some and the hub can start; the second, "
                "an eighth of it, so that half messages can be rolled back. 0: none is held."})
    segment_bytes: int = field(default=256 << 20, metadata={
        "min": 1 << 20, "max": 1 << 40,
        "help": "Size of one file of the log, in bytes; retention deletes whole files."})
    checkpoint_ms: int = field(default=2_000, metadata={
        "min": 100, "max": 600_000, "help": "A checkpoint of the index is taken after this many milliseconds ..."})
    checkpoint_bytes: int = field(default=64 << 20, metadata={
        "min": 1 << 20, "help": "... or after this many bytes of log. Rarer ones make a start after a crash longer."})
    recent_bytes: int = field(default=128 << 20, metadata={
        "min": 0,
        "help": "Bytes of the newest messages kept in memory for readers that are up to date; up to a fifth of it "
                "besides for what finds them, and for pages that were read."})
    pending_bytes: int = field(default=4 << 20, metadata={
        "min": 1 << 20,
        "help": "Bytes waiting for the disk above which publishers are not read until half of it is stored."})
    gather_turns: int = field(default=0, metadata={
        "min": 0, "max": 1_000,
        "help": "Turns of the event loop, of some microseconds each, for which what is written next waits for "
                "publishers with one message in flight who were answered a moment ago. 0: it never waits."})
    idempotency_ms: int = field(default=3_600_000, metadata={
        "min": 0, "help": "How long the answer to an `Idempotency-Key` is remembered, in milliseconds."})
    max_idempotency_keys: int = field(default=100_000, metadata={
        "min": 0, "max": 10_000_000, "help": "How many such answers are remembered; the oldest goes first."})
    max_idempotency_bytes: int = field(default=134_217_728, metadata={
        "min": 0, "help": "How many bytes of them are remembered: an answer has 57, and in a request of many messages "
                          "some 2 more for each."})
    catalogue_url: str | None = field(default=None, metadata={
        "secret": True,
        "help": "Database (an SQLAlchemy URL) that topics and committed offsets are copied to for queries, at every "
                "checkpoint; left out, it is SQLite in the file `catalogue.sqlite` of the data directory."})

    def for_kernel(self) -> KernelSettings:
        """These settings in the kernel's units."""
        values = dataclasses.asdict(self)
        values["retention_ms"] = values.pop("retention_hours") * 3_600_000
        values["max_session_wait_ms"] = values.pop("max_session_wait_s") * 1_000
        del values["catalogue_url"]
        return KernelSettings(**values)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """[auth]"""

    allow_anonymous: bool = field(default=True, metadata={
        "help": "Whether clients may connect without a user. Only accepted while every listener is on loopback. A "
                "reload takes it over, and ends the connections of those who are let in no more."})
    certificate_user: str = field(default="cn", metadata={
        "help": "Which part of a verified certificate is the user: `cn`, `san_dns`, `san_email`, `san_uri`, or "
                "a template of those and `o`, `ou`, `serial`, like `{ou}/{cn}`."})

    def __post_init__(self) -> None:
        check_rule(self.certificate_user)


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """[[routes]]"""

    filter: str = field(metadata={"help": "Addresses this route takes: levels, `{name}` for one level, `+`, `#` at the "
                                          "end. The first route that matches decides."})
    topic: str = field(metadata={"help": "Topic that stores them; may hold `{name}` of the filter."})
    key: str = field(default="{address}", metadata={
        "help": "Key of the message; may hold `{name}`, `{rest}` (what `#` matched) and `{address}` (all of it)."})
    partition_key: str = field(default="", metadata={
        "help": "What chooses the partition instead of the key; may hold `{name}`."})


@dataclass(frozen=True, slots=True)
class Door:
    """One door that opens."""

    spec: GatewaySpec
    listen: tuple[Listen, ...]
    settings: Any
    """An instance of `spec.config`."""


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration that has passed every check."""

    source: str
    hub: HubSettings
    kernel: KernelSection
    auth: AuthSettings
    doors: tuple[Door, ...]
    routes: Routes
    route_entries: tuple[RouteEntry, ...]
    data_dir: Path
    transactions: TransactionSection
    topic_checks: Mapping[str, TopicChecks]
    tracing: TracingSection
    topic_rates: Mapping[str, float]
    rights: RightsConfig = RightsConfig()
    relay: RelayConfig = RelayConfig()
    notices: tuple[str, ...] = ()
    """What is valid and yet worth a line at start."""


class ConfigError(Exception):
    """The configuration cannot be used; `lines` says why, one problem each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


SECTIONS: Final[dict[str, type]] = {"hub": HubSettings, "kernel": KernelSection, "auth": AuthSettings,
                                   "transactions": TransactionSection, "tracing": TracingSection}
JOBS: Final[dict[str, type]] = {"archive": ArchiveSettings, "analytics": AnalyticsSettings}
WHAT_TO_READ: Final = {"topics", "pattern", "filter"}
"""Settings of a job of which one is given: one that is given as an option replaces the file's."""

NESTED: Final = ("gateways", "spark")
"""Tables of tables."""

LISTEN_HELP: Final = ("Addresses to listen on, `HOST:PORT`; port 0 takes a free one. One with settings of its own is a "
                      "table, see `listen` below.")
TLS_HELP: Final = "TLS for all of them, see `tls` below."


def load(path: Path, environ: Mapping[str, str], specs: Mapping[str, GatewaySpec]) -> Config:
    """Read and check a configuration file. Raises ConfigError with every problem that was found."""
    place = ConfigPlace(str(path), path.parent, environ)
    problems = Problems()
    tables = _overridden(_read_toml(path), environ, specs, problems)
    _refuse_unknown_sections(tables, place, problems)
    check_back = read_topics(tables, place, problems)
    topic_rates = read_topic_rates(tables, place, problems)
    rights = read_rights(tables, place, problems)
    relay = read_relay(tables, place, problems)
    sections = {name: read_section(kind, _table(tables, name, place, problems), name, place, problems)
                for name, kind in SECTIONS.items()}
    doors = _read_doors(_table(tables, "gateways", place, problems), specs, place, problems)
    entries, routes = _read_routes(tables.get("routes", []), place, problems)
    _check_jobs(_table(tables, "spark", place, problems), place, problems)
    auth = sections["auth"]
    find_conflicts([(door.spec.name, door.listen, getattr(door.settings, "advertise", None)) for door in doors],
                   auth is not None and auth.allow_anonymous, place.source, problems)
    if problems.lines:
        raise ConfigError(problems.lines)
    data_dir = path.parent / sections["hub"].data_dir
    return Config(place.source, sections["hub"], sections["kernel"], auth, tuple(doors), routes, entries,
                  data_dir, sections["transactions"], check_back, sections["tracing"], topic_rates, rights,
                  relay, _notices(doors, specs))


def _notices(doors: list[Door], specs: Mapping[str, GatewaySpec]) -> tuple[str, ...]:
    notices = [f"{reason}; it is not configured" for reason in _broken(specs).values()]
    if not doors:
        notices.append("no [gateways.NAME] table: no door opens")
    for door in doors:
        notices += expiry_notices(door.spec.name, door.listen)
    return tuple(notices)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError([f"{path}: cannot read it: {error.strerror}; give another file with --config"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: not valid TOML: {error}"]) from None


def _overridden(tables: dict[str, Any], environ: Mapping[str, str], specs: Mapping[str, GatewaySpec],
                problems: Problems) -> dict[str, Any]:
    """The tables with the values of GATEHOUSE__... variables put in."""
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        names = variable[len(ENVIRONMENT_PREFIX):].lower().split("__")
        source, text = f"environment {variable}", environ[variable]
        if len(names) == 1 and names[0] in ("routes", *TABLE_LISTS):
            try:
                tables[names[0]] = json.loads(text)
            except ValueError:
                problems.add(source, names[0], "must be a JSON list of objects")
            continue
        folders = names[:-1]
        if not all(names) or not _is_place(folders):
            problems.add(source, ".".join(names), f"a setting is {ENVIRONMENT_PREFIX}SECTION__NAME or "
                                                  f"{ENVIRONMENT_PREFIX}GATEWAYS__DOOR__NAME")
            continue
        if folders[0] == "gateways" and folders[1] not in specs:
            _refuse_door(source, ".".join(folders), folders[1], specs, problems)
            continue
        if folders[0] not in (*SECTIONS, *NESTED, "relay"):
            problems.unknown(source, folders[0], folders[0], [*SECTIONS, *NESTED, "relay"], "section")
            continue
        table = tables
        for name in folders:
            inner = table.setdefault(name, {})
            if not isinstance(inner, dict):
                break    # wrong in the file too, and reported there
            table = inner
        else:
            table[names[-1]] = Text(source, text)
    return tables


def _is_place(folders: list[str]) -> bool:
    """Whether a setting may stand in this table of tables."""
    if folders[:1] == ["gateways"] and folders[2:] == ["tls"] or folders == ["auth", "jwt"]:
        return True
    return len(folders) == (2 if folders[:1] and folders[0] in NESTED else 1)


def _refuse_unknown_sections(tables: Mapping[str, Any], place: ConfigPlace, problems: Problems) -> None:
    for name in tables:
        if name in ELSEWHERE:
            problems.add(place.source, name, ELSEWHERE[name])
        elif name not in SECTIONS and name not in (*NESTED, "relay", "routes", *TABLE_LISTS):
            problems.unknown(place.source, name, name, [*SECTIONS, *NESTED, "relay", "routes", *TABLE_LISTS],
                             "section")


def _table(tables: Mapping[str, Any], name: str, place: ConfigPlace, problems: Problems) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        problems.add(place.source, name, f"must be a table: [{name}]")
        return {}
    if name == "auth":
        for key in ELSEWHERE_OF_AUTH.keys() & set(table):
            problems.add(place.source, f"auth.{key}", ELSEWHERE_OF_AUTH[key])
        return {key: value for key, value in table.items() if key not in ELSEWHERE_OF_AUTH}
    return table


def _read_doors(tables: dict[str, Any], specs: Mapping[str, GatewaySpec], place: ConfigPlace,
                problems: Problems) -> list[Door]:
    doors = []
    for name, table in tables.items():
        key = f"gateways.{name}"
        if name not in specs:
            _refuse_door(place.source, key, name, specs, problems)
        elif not isinstance(table, dict):
            problems.add(place.source, key, f"must be a table: [{key}]")
        else:
            doors.append(_read_door(specs[name], table, place, problems))
    return doors


def _refuse_door(source: str, key: str, name: str, specs: Mapping[str, GatewaySpec], problems: Problems) -> None:
    broken = _broken(specs)
    if name in broken:
        problems.add(source, key, broken[name])
    else:
        problems.unknown(source, key, name, specs, "door")


def _broken(specs: Mapping[str, GatewaySpec]) -> Mapping[str, str]:
    return specs.broken if isinstance(specs, Specs) else {}


def _read_door(spec: GatewaySpec, table: dict[str, Any], place: ConfigPlace, problems: Problems) -> Door:
    key = f"gateways.{spec.name}"
    own = dict(table)
    listen = parse_listen(own.pop("listen", list(spec.default_listen)), own.pop("tls", None), key, place, problems)
    if not spec.websockets and any(each.websocket for each in listen):
        problems.add(place.source, f"{key}.listen", "this door is not spoken inside a WebSocket; take websocket out")
    settings = read_section(spec.config, own, key, place, problems, also=("listen", "tls"))
    return Door(spec, listen, settings)


def _check_jobs(tables: dict[str, Any], place: ConfigPlace, problems: Problems) -> None:
    for name, table in tables.items():
        if name not in JOBS:
            problems.unknown(place.source, f"spark.{name}", name, JOBS, "job")
        elif not isinstance(table, dict):
            problems.add(place.source, f"spark.{name}", f"must be a table: [spark.{name}]")
        else:
            read_section(JOBS[name], table, f"spark.{name}", place, problems)


def load_job(path: Path, environ: Mapping[str, str], name: str, given: Mapping[str, Any]) -> Any:
    """The settings of one job: the file's table `[spark.NAME]` where there is a file, and over it what was given.

    Raises ConfigError with every problem of this table. The rest of the file is not looked at: the job may run far from
    the hub.
    """
    place = ConfigPlace(str(path), path.parent, environ)
    problems = Problems()
    tables = _overridden(_read_toml(path) if path.exists() else {}, environ, {}, problems)
    problems.lines.clear()      # of other tables; those of this one are found below
    table = _table(_table(tables, "spark", place, problems), name, place, problems)
    if not WHAT_TO_READ.isdisjoint(given):
        table = {key: value for key, value in table.items() if key not in WHAT_TO_READ}
    settings = read_section(JOBS[name], {**table, **given}, f"spark.{name}", place, problems)
    if problems.lines:
        raise ConfigError(problems.lines)
    return settings


def _read_routes(entries: Any, place: ConfigPlace, problems: Problems) -> tuple[tuple[RouteEntry, ...], Routes]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        problems.add(place.source, "routes", "must be a list of tables: [[routes]]")
        return (), Routes((), OWN_ROUTES)
    settings = [read_section(RouteSettings, entry, f"routes[{number}]", place, problems)
                for number, entry in enumerate(entries)]
    routes = tuple(RouteEntry(*dataclasses.astuple(route)) for route in settings if route is not None)
    try:
        return routes, Routes(routes, OWN_ROUTES)
    except InvalidRoutes as error:
        if len(routes) == len(entries):    # else the numbers are not those of the file, and the file is wrong anyway
            for problem in error.problems:
                problems.add(place.source, f"routes[{problem.index}].{problem.field}", problem.text)
        return (), Routes((), OWN_ROUTES)


LIVE_SETTINGS: Final = frozenset(f"kernel.{name}" for name in LIVE - {"retention_ms"} | {"retention_hours"}) | {
    "auth.allow_anonymous", "auth.certificate_user"} | LIVE_RIGHTS
"""Settings that a reload takes over, beside the doors' `listen` and `tls`; the others wait for the next start."""


def changed_settings(old: Config, new: Config) -> list[str]:
    """Names of the settings that two configurations differ in, doors that one of them lacks included."""
    before, after = _flat(old), _flat(new)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _flat(config: Config) -> dict[str, Any]:
    flat: dict[str, Any] = {"routes": config.route_entries}
    for name in SECTIONS:
        flat.update({f"{name}.{key}": value for key, value in dataclasses.asdict(getattr(config, name)).items()})
    flat["transactions.topics"] = config.topic_checks
    flat["tracing.topics"] = config.topic_rates
    flat.update(config.rights.flat())
    flat.update({"relay": config.relay.section, "relay.links": config.relay.links})
    for door in config.doors:
        flat[f"gateways.{door.spec.name}.listen"] = door.listen
        flat.update({f"gateways.{door.spec.name}.{key}": value
                     for key, value in dataclasses.asdict(door.settings).items()})
    return flat


def documented_sections(specs: Mapping[str, GatewaySpec]) -> dict[str, type]:
    """Every section that a file may hold and the dataclass behind it, for the reference page."""
    doors = {f"gateways.{name}": spec.config for name, spec in sorted(specs.items())}
    jobs = {f"spark.{name}": section for name, section in JOBS.items()}
    lists = {"routes": RouteSettings, "acl": AclSettings, "user_groups": UserGroupSettings,
             "limits": LimitSettings, "relay": RelaySection, "relay.links": LinkSettings}
    return {**SECTIONS, "auth.jwt": JwtSettings, "transactions.topics.NAME": TopicChecks,
            "tracing.topics.NAME": TopicTracing, **doors, **jobs, **lists}

